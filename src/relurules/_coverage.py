"""Never silent: the judgement on what a rule reached.

The field's first fault is a guided gradient that is quietly the plain one. So after every
call of a model its backend hands the report to `judge`, which raises (or warns, on request)
for each way in which the plain gradient could have got through, and names the way out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from relurules._plan import Plan
from relurules._report import Report, Row
from relurules.errors import (
    NoActivationError,
    UncoveredActivationError,
    UncoveredActivationWarning,
)

_LISTED = 8
_LOOSEN = 'Pass missing="warn" or missing="ignore" to go on all the same.'


def judge(report: Report, plan: Plan, /) -> None:
    """Raise, or warn, where an activation may have kept its plain gradient.

    Raises:
        NoActivationError: No activation took the rule.
        UncoveredActivationError: One was left over, or something opaque may hide one.
    """
    if plan.missing == "ignore":
        return
    for error, find in _COMPLAINTS:
        if message := find(report):
            complain(error, message, plan)
            return


def judge_gates(report: Report, /) -> bool:
    """Warn of gates left alone beside real sites, and return whether there were any."""
    gates = report.where("gate")
    if gates and report.sites:
        warnings.warn(
            f"{_names(gates)} kept their own gradient: clamp, maximum and the like are bounds "
            "as often as activations. If these are activations, pass match='structural'.",
            UncoveredActivationWarning,
            stacklevel=2,
        )
    return bool(gates)


def complain(error: type[Exception], message: str, plan: Plan, /) -> None:
    """Raise `error`, or warn, as `plan.missing` says."""
    if plan.missing == "error":
        raise error(f"{message} {_LOOSEN}")
    if plan.missing == "warn":
        warnings.warn(message, UncoveredActivationWarning, stacklevel=2)


def never_called(report: Report, hint: str, /) -> str:
    """Return the message for a model that never ran while its rule was applied."""
    return (
        f"The rule {report.rule!r} was applied, but the model was never called, so every "
        f"gradient taken meanwhile was the plain one. {hint}"
    )


def _missed(report: Report) -> str:
    if not (rows := report.where("missed")):
        return ""
    return (
        f"{_names(rows)} kept the plain gradient under rule {report.rule!r}: {rows[0].detail} "
        "Exclude them by name with exclude=, if that is what you want."
    )


def _opaque(report: Report) -> str:
    if not (rows := report.opaque):
        return ""
    return (
        f"{_names(rows)} cannot be looked into and may hide an activation with the plain "
        f"gradient: {rows[0].detail}"
    )


def _nothing(report: Report) -> str:
    if report.where("replaced", "overruled"):
        return ""
    seen = "; ".join(filter(None, (_group(report, *group) for group in _GROUPS)))
    return (
        f"No activation took the rule {report.rule!r}, so the gradient would be the plain one. "
        f"{seen or 'The model ran no nonlinearity that relurules knows.'} "
        "Rules act on relu, relu6, hardtanh and threshold."
    )


_GROUPS = (
    ("other", "Seen and left alone: {names}: {details}."),
    ("gate", "Seen: {names}, which match='structural' takes, except where()."),
    ("excluded", "Left out by only=, exclude= or the rule's kind: {names}."),
)


def _group(report: Report, status: str, text: str) -> str:
    rows = tuple(row for row in report.rows if row.status == status)
    details = "; ".join(dict.fromkeys(row.detail for row in rows))
    return text.format(names=_names(rows), details=details) if rows else ""


def _names(rows: tuple[Row, ...]) -> str:
    shown = [f"{row.name or 'the model'} ({row.kind})" for row in rows[:_LISTED]]
    more = len(rows) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


_COMPLAINTS: tuple[tuple[type[Exception], Callable[[Report], str]], ...] = (
    (UncoveredActivationError, _opaque),  # first, since it names the place
    (UncoveredActivationError, _missed),
    (NoActivationError, _nothing),
)
