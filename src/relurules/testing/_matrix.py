"""The support matrix, made from the kit's records and from nothing else.

A table of what works, kept by hand, is a wish. This one is written by the run that proved it,
so it names the versions, the seed and the number of elements that were compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

BEGIN = "<!-- conformance matrix: begin -->"
END = "<!-- conformance matrix: end -->"

_NUMERIC = ("rule", "dtype", "mode")
_MARKS = {"passed": "✓", "xfailed": "known failure", "failed": "**fails**", "xpassed": "**fails**"}


def matrix(records: Iterable[dict[str, Any]], /) -> str:
    """Return the records as Markdown: one table per backend, rules against dtypes and modes.

    Args:
        records: What `relurules check NAME --json` writes.
    """
    return "\n\n".join(_section(one) for one in records)


def into(page: str, records: Iterable[dict[str, Any]], /) -> str:
    """Return a page with the matrix between its two marker lines.

    Raises:
        ValueError: The page has no markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"The page has no lines {BEGIN!r} and {END!r}.")
    return f"{before}{begin}\n\n{matrix(records)}\n\n{end}{after}"


def _section(one: dict[str, Any]) -> str:
    return "\n\n".join(
        [f"### {one['backend']}", _headline(one), _table(one["results"]), _known(one["results"])]
    ).rstrip()


def _headline(one: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
    counts = ", ".join(f"{count} {status}" for status, count in sorted(one["counts"].items()))
    profile = one["profile"]
    return (
        f"{sum(one['counts'].values())} checks: {counts}; {one['compared']:,} elements compared. "
        f"{versions}; {one['platform']}; profile {profile['name']} ({profile['examples']} examples "
        f"a law, seed {profile['seed']})."
    )


def _table(results: Sequence[dict[str, Any]]) -> str:
    numeric = [one for one in results if all(one[axis] for axis in _NUMERIC)]
    columns = _distinct((one["dtype"], one["mode"]) for one in numeric)
    rows = [("rule", *(f"{dtype}, {mode}" for dtype, mode in columns))]
    rows.append(("---",) * len(rows[0]))
    rules = _distinct(one["rule"] for one in numeric)
    rows += [(rule, *(_cell(numeric, rule, *column) for column in columns)) for rule in rules]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(results: Sequence[dict[str, Any]], rule: str, dtype: str, mode: str) -> str:
    wanted = (rule, dtype, mode)
    here = [one for one in results if tuple(one[axis] for axis in _NUMERIC) == wanted]
    compared = sum(one["compared"] for one in here)
    for status in ("failed", "xpassed", "xfailed", "passed"):
        if any(one["status"] == status for one in here):
            return f"{_MARKS[status]} {_short(compared)}" if compared else _MARKS[status]
    return ""


def _known(results: Sequence[dict[str, Any]]) -> str:
    reasons: dict[str, list[str]] = {}
    for one in results:
        if one["status"] == "xfailed":
            reasons.setdefault(one["reason"], []).append(one["id"])
    lines = [f"- {reason}: {_ids(ids)}" for reason, ids in reasons.items()]
    return "\n".join(["Known failures:", "", *lines]) if lines else "No known failure."


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(f"`{one}`" for one in ids[:3]) + more


def _short(number: int) -> str:
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))
