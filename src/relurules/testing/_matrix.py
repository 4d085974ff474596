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
_MARKS = {"failed": "**fails**", "xpassed": "**fails**", "xfailed": "known failure", "passed": "✓"}
"""How each status is shown, the worst first."""


def matrix(records: Iterable[dict[str, Any]], /) -> str:
    """Return the records as Markdown: one table per backend, rules against dtypes.

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
    dtypes = _distinct(one["dtype"] for one in numeric)
    rows = [("rule", *dtypes), ("---",) * (len(dtypes) + 1)]
    for rule in _distinct(one["rule"] for one in numeric):
        of = [[o for o in numeric if (o["rule"], o["dtype"]) == (rule, dtype)] for dtype in dtypes]
        rows.append((rule, *map(_cell, of)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(results: Sequence[dict[str, Any]]) -> str:
    modes = _distinct(one["mode"] for one in results)
    return "<br>".join(_line(mode, [r for r in results if r["mode"] == mode]) for mode in modes)


def _line(mode: str, results: Sequence[dict[str, Any]]) -> str:
    compared = _short(sum(one["compared"] for one in results))
    worst = next(s for s in _MARKS if any(one["status"] == s for one in results))
    return f"{mode} {_MARKS[worst]} {compared}"


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
