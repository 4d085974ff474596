"""Every wrong backend is caught, by the check that is meant to catch it."""

from __future__ import annotations

import contextvars

import pytest
import wrong_answers  # noqa: F401 - adds to the table
import wrong_backends
import wrong_elementwise  # noqa: F401
import wrong_redirected  # noqa: F401
import wrong_rules
import wrong_standard  # noqa: F401
from compiling import CompilingExample

from relurules.testing import backend_checks, check_backend
from relurules_example.testing import ExampleCase

WRONG = wrong_backends.WRONG


@pytest.mark.parametrize("case", ["example", CompilingExample()], ids=["plain", "compiling"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backend_is_caught(
    name: str, case: str | ExampleCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, break_it = WRONG[name]
    break_it(monkeypatch)
    context = contextvars.copy_context()  # a wrong backend may leave something behind
    results = context.run(check_backend, case, only=lambda one: is_named(one, check), on_fail=None)
    assert results, f"no check is called {check}"
    assert any(result.status == "failed" for result in results)


@pytest.mark.parametrize("check", sorted({check for check, _ in WRONG.values()}))
def test_the_right_backend_is_not(check: str) -> None:
    results = check_backend("example", only=lambda one: is_named(one, check), on_fail=None)
    assert {result.status for result in results} == {"passed"}


def test_every_check_has_caught_something() -> None:
    catching = {check.partition("[")[0] for check, _ in WRONG.values()}
    catching |= {mutant.check.partition("[")[0] for mutant in wrong_rules.WRONG.values()}
    assert {check.name for check in backend_checks("example")} == catching


def is_named(check_id: str, check: str) -> bool:
    return check_id == check or check_id.partition("[")[0] == check
