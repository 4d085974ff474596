"""The kit as a pytest suite, for any installed backend.

Run it with `pytest --relurules-backend=torch --pyargs relurules.testing.suite`. The options are
those of the plugin `_relurules_pytest`.
"""

from __future__ import annotations

from typing import Any

from relurules.testing._check import Check
from relurules.testing._extra import require
from relurules.testing._guard import assert_ieee
from relurules.testing._pytest import parameters


def pytest_generate_tests(metafunc: Any) -> None:
    """Give the test a check of each backend that the command line names."""
    option = metafunc.config.getoption
    backends = option("relurules_backend")
    if not backends:
        raise require("pytest").UsageError("name a backend: --relurules-backend=torch")
    assert_ieee()
    found = [p for b in backends for p in parameters(b, profile=option("relurules_profile"))]
    metafunc.parametrize("check", found)


def test_conformance(check: Check) -> None:
    """The check passes."""
    check()
