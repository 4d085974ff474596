"""The conformance kit: proof that every rule is the same bits in every backend.

Shipped with relurules, so that whoever writes a backend or a rule can prove it with the checks
that prove ours. It needs no framework, and no pytest: one generator of plain functions stands
behind `check_backend`, `relurules check`, `parametrize_with_checks` and the pytest suite
`relurules.testing.suite`.
"""

from __future__ import annotations

from relurules.testing._case import (
    BackendCase,
    CompilingCase,
    Mode,
    NoCaseError,
    Pull,
    find_case,
)
from relurules.testing._catalogue import PROFILES, backend_checks
from relurules.testing._check import Check, Profile
from relurules.testing._guard import SubnormalsFlushedError, assert_ieee
from relurules.testing._known import KnownFailure
from relurules.testing._pytest import parametrize_with_checks
from relurules.testing._rules import check_rule, rule_checks
from relurules.testing._run import (
    CheckResult,
    ConformanceError,
    ConformanceWarning,
    check_backend,
)

__all__ = [
    "PROFILES",
    "BackendCase",
    "Check",
    "CheckResult",
    "CompilingCase",
    "ConformanceError",
    "ConformanceWarning",
    "KnownFailure",
    "Mode",
    "NoCaseError",
    "Profile",
    "Pull",
    "SubnormalsFlushedError",
    "assert_ieee",
    "backend_checks",
    "check_backend",
    "check_rule",
    "find_case",
    "parametrize_with_checks",
    "rule_checks",
]
