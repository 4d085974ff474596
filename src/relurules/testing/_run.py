"""Running checks without pytest, and what comes of each.

One declared failure must be told from a new one, and one crash must not hide what follows. So
every check ends in a result, and the caller says whether the first bad one raises.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from relurules import _plugins
from relurules._rule import Rule
from relurules.errors import RelurulesError
from relurules.testing._case import BackendCase, find_case
from relurules.testing._catalogue import backend_checks
from relurules.testing._check import Check, Profile
from relurules.testing._guard import assert_ieee
from relurules.testing._known import KnownFailure, check_declared

Status: TypeAlias = Literal["passed", "failed", "xfailed", "xpassed"]
OnFail: TypeAlias = Literal["raise", "warn"] | None
Failures: TypeAlias = Mapping[str, str] | Iterable[KnownFailure]


class ConformanceError(RelurulesError, AssertionError):
    """A check failed, or one passed that was declared to fail."""


class ConformanceWarning(UserWarning):
    """What `on_fail="warn"` gives instead of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What came of one check.

    Attributes:
        id: The check's id.
        check: The check's name.
        rule: The rule it was about, or "" where it was about all.
        dtype: The dtype, or "".
        mode: The mode, or "".
        status: `"passed"`, `"failed"`, `"xfailed"` (as declared) or `"xpassed"` (declared to
            fail, and passed; this counts as a failure).
        compared: How many elements were compared.
        seconds: How long it took.
        message: What went wrong, or "".
        reason: Why it was declared to fail, or "".
        error: What was raised, or None.
    """

    id: str
    check: str
    rule: str
    dtype: str
    mode: str
    status: Status
    compared: int = 0
    seconds: float = 0.0
    message: str = ""
    reason: str = ""
    error: BaseException | None = None

    @property
    def bad(self) -> bool:
        """Whether it says that something is wrong."""
        return self.status in ("failed", "xpassed")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        fields = ("id", "check", "rule", "dtype", "mode", "status", "compared", "message", "reason")
        return {name: getattr(self, name) for name in fields} | {"seconds": round(self.seconds, 4)}


def check_backend(
    backend: str | BackendCase,
    /,
    *,
    rules: Iterable[Rule] | None = None,
    expected_failures: Failures = (),
    only: Callable[[str], bool] | None = None,
    profile: str | Profile = "default",
    on_fail: OnFail = "raise",
    callback: Callable[[CheckResult], None] | None = None,
) -> tuple[CheckResult, ...]:
    """Check that a backend gives the specification's bits, and keeps what `apply` promises.

    Args:
        backend: The name of an installed backend, or a `BackendCase`.
        rules: The rules to check; None is the built-in ones.
        expected_failures: What fails beside what the backend itself declares: ids or patterns
            with reasons, or `KnownFailure` objects. One that passes, or fits no check, is an
            error.
        only: Chooses checks by id; None is all.
        profile: `"default"`, `"ci"` or `"nightly"`: how long to search.
        on_fail: `"raise"` at the first failure, `"warn"` of each, or None: only return.
        callback: Called with each result.

    Returns:
        A result for each check, in the order they were run.

    Raises:
        ConformanceError: A check failed.
        SubnormalsFlushedError: This process cannot judge.
        UnknownBackendError: No such backend.
        ValueError: An expected failure fits no check.

    Example:
        >>> results = check_backend("torch", only=lambda id: id.startswith("sizes[guided"))
        >>> {result.status for result in results}
        {'passed'}
    """
    case = find_case(backend)
    checks = list(backend_checks(case, rules=rules, profile=profile))
    known = known_failures(case, expected_failures, rules=rules)
    chosen = [check for check in checks if only is None or only(check.id)]
    return run_checks(chosen, known=known, on_fail=on_fail, callback=callback)


def run_checks(
    checks: Iterable[Check],
    /,
    *,
    known: Iterable[KnownFailure] = (),
    on_fail: OnFail = "raise",
    callback: Callable[[CheckResult], None] | None = None,
) -> tuple[CheckResult, ...]:
    """Run these checks; arguments, result and errors as `check_backend`."""
    assert_ieee()
    known, results = tuple(known), []
    for check in checks:
        result = _run(check, next((one for one in known if one.covers(check.id)), None))
        results.append(result)
        if callback is not None:
            callback(result)
        if result.bad:
            _complain(result, on_fail)
    return tuple(results)


def known_failures(
    case: BackendCase, more: Failures = (), /, *, rules: Iterable[Rule] | None = None
) -> tuple[KnownFailure, ...]:
    """Return what the caller, a backend and plugins declare, each of which fits some check.

    Raises:
        ValueError: One fits no check.
    """
    known = (*as_known(more), *case.known_failures, *_of_plugins(case.name))
    check_declared(known, (check.id for check in backend_checks(case, rules=rules)))
    return known


def as_known(failures: Failures, /) -> tuple[KnownFailure, ...]:
    """Return declarations, made of a mapping from ids to reasons where it is one."""
    if isinstance(failures, Mapping):
        return tuple(
            KnownFailure(check=check, kind="notimpl", reason=reason)
            for check, reason in failures.items()
        )
    return tuple(failures)


def _of_plugins(backend: str) -> Iterator[KnownFailure]:
    for declared in _plugins.catalogue().manager.hook.relurules_known_failures(backend=backend):
        yield from declared


def _run(check: Check, known: KnownFailure | None) -> CheckResult:
    begun, compared, error = time.perf_counter(), 0, None
    try:
        compared = check()
    except Exception as caught:  # noqa: BLE001 - a backend may raise anything; it is a result
        error = caught
    setting, axes = check.setting, check.axes
    return CheckResult(
        id=check.id,
        check=check.name,
        rule=setting.rule.name if "rule" in axes else "",
        dtype=setting.dtype if "dtype" in axes else "",
        mode=setting.mode if "mode" in axes else "",
        status=_status(error, known),
        compared=compared,
        seconds=time.perf_counter() - begun,
        message=_message(error),
        reason=str(known or ""),
        error=error,
    )


def _status(error: BaseException | None, known: KnownFailure | None) -> Status:
    if known is None:
        return "passed" if error is None else "failed"
    return "xpassed" if error is None else "xfailed"


def _message(error: BaseException | None) -> str:
    if error is None:
        return ""
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    name = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{name}{error}{notes}"


def _complain(result: CheckResult, on_fail: OnFail) -> None:
    told = result.message or f"passed, but was declared to fail ({result.reason})"
    message = f"{result.id}: {told}"
    if on_fail == "raise":
        raise ConformanceError(message) from result.error
    if on_fail == "warn":
        warnings.warn(message, ConformanceWarning, stacklevel=4)
