"""The checks as pytest sees them: one parameter each, its known failures strict xfails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relurules._rule import Rule
from relurules.testing._case import BackendCase, find_case
from relurules.testing._catalogue import backend_checks
from relurules.testing._check import Check, Profile
from relurules.testing._extra import require
from relurules.testing._guard import assert_ieee
from relurules.testing._known import KnownFailure
from relurules.testing._run import Failures, known_failures


def parametrize_with_checks(
    backend: str | BackendCase,
    /,
    *,
    rules: Iterable[Rule] | None = None,
    expected_failures: Failures = (),
    profile: str | Profile = "default",
) -> Any:
    """Return a decorator that gives a pytest function each check of a backend in turn.

    Args:
        backend: The name of an installed backend, or a `BackendCase`.
        rules: The rules to check; None is the built-in ones.
        expected_failures: As in `check_backend`.
        profile: As in `check_backend`.

    Returns:
        A `pytest.mark.parametrize` of the argument `check`, which is called without arguments.

    Raises:
        SubnormalsFlushedError: This process cannot judge.
        UnknownBackendError: No such backend.
        ValueError: An expected failure fits no check.

    Example:
        >>> @parametrize_with_checks("torch")
        ... def test_conformance(check):
        ...     check()
    """
    assert_ieee()
    params = parameters(backend, rules=rules, expected_failures=expected_failures, profile=profile)
    return require("pytest").mark.parametrize("check", params)


def parameters(
    backend: str | BackendCase,
    /,
    *,
    rules: Iterable[Rule] | None = None,
    expected_failures: Failures = (),
    profile: str | Profile = "default",
) -> list[Any]:
    """Return a `pytest.param` for each check; arguments and errors as for the decorator."""
    case = find_case(backend)
    known = known_failures(case, expected_failures, rules=rules)
    checks = backend_checks(case, rules=rules, profile=profile)
    return [_parameter(check, known) for check in checks]


def _parameter(check: Check, known: tuple[KnownFailure, ...]) -> Any:
    pytest = require("pytest")
    marks = [
        pytest.mark.xfail(reason=str(one), strict=True) for one in known if one.covers(check.id)
    ]
    return pytest.param(check, id=check.id, marks=marks[:1])
