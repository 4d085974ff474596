"""What a rule reached in a model, what it did not, and why.

A tool that replaces gradients owes its user a list: which activations took the rule, which
other nonlinearities kept their own gradient, and where nobody could look. Every row has the
same shape, so that one table serves the terminal, a notebook and a file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from relurules._rule import Bounds, kind_of

Status: TypeAlias = Literal[
    "replaced", "overruled", "excluded", "missed", "gate", "other", "opaque"
]

STATUSES: dict[Status, str] = {
    "replaced": "took the rule",
    "overruled": "took a rule that was applied later, inside this one",
    "excluded": "an activation left alone on request, or because the rule is not for its kind",
    "missed": "an activation that kept its plain gradient",
    "gate": "clamp, maximum and the like: taken only with match='structural'",
    "other": "another nonlinearity, left alone",
    "opaque": "could not be looked into",
}
"""What each status of a report row means."""


@dataclass(frozen=True, slots=True)
class Site:
    """One call of an activation that computes `clip(x, lo, hi)`, or of a smooth one on request.

    Attributes:
        name: Where it is: the path of the module that makes the call, followed by the
            function's name where a module's own code makes it (`"layer1.0.relu"`).
        op: The function called, such as `"relu"` or `"hardtanh"`.
        bounds: `(lo, hi)`; infinite for a smooth activation, which clips nothing.
        is_smooth: Whether it is one of those that `smooth_activations=` takes.
    """

    name: str
    op: str
    bounds: Bounds
    is_smooth: bool = False

    @property
    def kind(self) -> str:
        """`"relu"`, `"relu6"` or `"hardtanh"`, by the bounds; a smooth one has its own name."""
        return self.op if self.is_smooth else kind_of(self.bounds)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a report.

    Attributes:
        status: One of the keys of `STATUSES`.
        name: Where in the model.
        kind: The kind of site, or the name of the operation.
        calls: How often it ran since the rule was applied.
        detail: The rule it took, or the reason why it took none.
    """

    status: Status
    name: str
    kind: str
    calls: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a rule met in a model; prints as a table, also in a notebook.

    Attributes:
        backend: The backend's name.
        rule: The rule's name.
        rows: All rows, in the order in which the model ran them.

    Example:
        >>> row = Row("replaced", "layer1.relu", "relu", 2, "guided")
        >>> print(Report("torch", "guided", (row,)))
        relurules: rule 'guided' on torch: 1 replaced
        status    name         kind  calls  detail
        replaced  layer1.relu  relu      2  guided
    """

    backend: str
    rule: str
    rows: tuple[Row, ...] = ()

    def where(self, *statuses: Status) -> tuple[Row, ...]:
        """Return the rows of these statuses."""
        return tuple(row for row in self.rows if row.status in statuses)

    @property
    def sites(self) -> tuple[Row, ...]:
        """The activations that took the rule."""
        return self.where("replaced")

    @property
    def others(self) -> tuple[Row, ...]:
        """The other nonlinearities that were seen and left alone."""
        return self.where("other")

    @property
    def opaque(self) -> tuple[Row, ...]:
        """The regions that could not be looked into."""
        return self.where("opaque")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists and strings, ready for JSON."""
        return {
            "backend": self.backend,
            "rule": self.rule,
            "rows": [asdict(row) for row in self.rows],
        }

    def _headline(self) -> str:
        counts = [(status, len(self.where(status))) for status in STATUSES]
        seen = ", ".join(f"{count} {status}" for status, count in counts if count)
        return f"relurules: rule {self.rule!r} on {self.backend}: {seen or 'nothing seen yet'}"

    def _cells(self) -> list[tuple[str, ...]]:
        return [(r.status, r.name, r.kind, str(r.calls), r.detail) for r in self.rows]

    def __str__(self) -> str:
        head = ("status", "name", "kind", "calls", "detail")
        cells = [head, *self._cells()] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [_line(row, widths) for row in cells]
        return "\n".join([self._headline(), *lines])

    def _repr_html_(self) -> str:
        from html import escape  # noqa: PLC0415 - only in notebooks

        head = "".join(f"<th>{name}</th>" for name in ("status", "name", "kind", "calls", "detail"))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._cells()
        )
        caption = escape(self._headline())
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, numbers = row[:3], row[3:]
    left = [cell.ljust(width) for cell, width in zip(name, widths, strict=False)]
    right = [numbers[0].rjust(widths[3]), numbers[1]]
    return "  ".join([*left, *right]).rstrip()
