"""All that one applied rule met while its model ran, in the order in which it was met.

JAX runs Python only when it traces, so `calls` counts how often a call was traced, and a
function that was compiled already adds the sites that its jaxpr holds and no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from relurules.backend import Decision, Plan, Report, Row, Site

_OWN_GRADIENT = (
    "it runs an activation and did not ask for the activation's gradient while the model ran. Take "
    "the gradient inside jit, as in jax.jit(jax.grad(ruled)), so that this can be seen; if it "
    "computes its own gradient and that is what you want, exclude it by this name."
)


@dataclass(frozen=True, slots=True)
class ShapedRow(Row):
    """One line of a report, with the dtype and shape of what it is about, if it has one."""

    shape: str = ""


@dataclass(slots=True)
class Entry:
    """One line of the ledger."""

    row: ShapedRow
    calls: int = 0


class Ledger:
    """What one applied rule met."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._entries: dict[Any, Entry] = {}
        self._differentiated: set[str] = set()
        self._owners: set[str] = set()
        self.changed = True

    def __len__(self) -> int:
        return len(self._entries)

    def site(self, site: Site, decision: Decision, shape: str, *, only_new: bool = False) -> None:
        """Count a call of an activation; of one met in a jaxpr only if it is new."""
        entry = self._entries.get(site)
        if entry is None:
            row = self._plan.row(site, decision, 0)
            shaped = ShapedRow(row.status, row.name, row.kind, 0, row.detail, shape)
            entry = self._new(site, shaped)
        elif only_new:
            return
        entry.calls += 1

    def note(self, status: Any, name: str, kind: str, detail: str, only_new: bool = False) -> None:
        """Count a call of something that is no site."""
        if status in ("missed", "opaque") and self._plan.excludes(name):
            status, detail = "excluded", "in exclude="
        key = (status, name, kind)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._new(key, ShapedRow(status, name, kind, 0, detail))
        elif only_new:
            return
        entry.calls += 1

    def differentiated(self, owner: str) -> None:
        """Note that somebody's custom gradient asked for the gradient of a site."""
        self._differentiated.add(owner)

    def inside(self, owner: str) -> None:
        """Note that somebody's custom gradient runs a site."""
        self._owners.add(owner)

    def settle_owners(self) -> None:
        """Note each custom gradient that kept its site's gradient to itself."""
        for owner in sorted(self._owners - self._differentiated):
            self.note("opaque", owner, "custom gradient", _OWN_GRADIENT)
        self._owners.clear()

    def sites(self) -> tuple[Site, ...]:
        """Return the activations met so far."""
        return tuple(key for key in self._entries if isinstance(key, Site))

    def report(self, backend: str) -> Report:
        """Return everything met so far."""
        rows = (replace(entry.row, calls=entry.calls) for entry in list(self._entries.values()))
        return Report(backend, self._plan.rule_name, tuple(rows))

    def _new(self, key: Any, row: ShapedRow) -> Entry:
        entry = self._entries[key] = Entry(row)
        self.changed = True
        return entry
