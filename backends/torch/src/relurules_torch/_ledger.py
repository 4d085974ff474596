"""Where in a model each call comes from, and what was decided there.

The place in the code that runs tells two ReLUs of one forward apart, and the same ReLU run
twice is one site with two calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from relurules.backend import Bounds, Decision, Plan, Report, Row, Site
from relurules_torch._callers import Place
from relurules_torch._function import RuleCall

Key: TypeAlias = tuple[Place, str, Bounds | None]
_UNBOUNDED: Bounds = (-math.inf, math.inf)
_ACTIVATIONS = "torch.nn.modules.activation"
_FINE = frozenset({"replaced", "other"})
_REFUSED = frozenset({"missed", "opaque"})


@dataclass(slots=True)
class Entry:
    """An activation at one place in the model's code.

    Attributes:
        decision: The rule it takes, or why it takes none.
        place: Where it is.
        op: The operation's name.
        bounds: `(lo, hi)`, or None for a smooth activation.
        calls: How often it ran.
        prepared: How its last backward was to run, to be used again where it fits.
    """

    decision: Decision
    place: Place
    op: str
    bounds: Bounds | None
    calls: int = 0
    prepared: RuleCall | None = None


@dataclass(slots=True)
class Note:
    """Something that was met and is no activation that a rule could take."""

    status: Any
    name: str
    kind: str
    detail: str
    calls: int = 0


def _new_site(name: str, op: str, bounds: Bounds | None) -> Site:
    return Site(name, op, bounds or _UNBOUNDED, is_smooth=bounds is None)


class Ledger:
    """All that one applied rule met in one model, in the order in which it ran."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self._plan = plan
        self._asks_names = plan.asks_names
        self.paths: dict[nn.Module, str] = {module: path for path, module in model.named_modules()}
        self._lines: dict[Any, Entry | Note] = {}
        self._names: dict[Any, str] = {}
        self._taken = set(self.paths.values())
        self._statuses: set[Any] = set()
        self._by_kind: dict[Bounds | None, Decision] = {}
        self.changed = True

    def has(self, *statuses: Any) -> bool:
        """Return whether anything of these statuses was met."""
        return not self._statuses.isdisjoint(statuses)

    @property
    def is_fine(self) -> bool:
        """Whether some activation took a rule and nothing met is worth a complaint."""
        return "replaced" in self._statuses and self._statuses <= _FINE

    def site(self, place: Place, op: str, bounds: Bounds | None) -> Entry:
        """Return the entry of an activation, new or known."""
        key = (place, op, bounds)
        entry = self._lines.get(key)
        if not isinstance(entry, Entry):
            decision = self._decide(key)
            entry = Entry(decision, place, op, bounds)
            self._add(key, entry, "replaced" if decision.rule else "excluded")
        return entry

    def note(self, place: Place, status: Any, op: str, detail: str) -> Note:
        """Count a call of something that is no activation for a rule."""
        key = (place, op, status)
        line = self._lines.get(key)
        if not isinstance(line, Note):
            line = self._note(key, status, self._name(key, place, op), op, detail)
        line.calls += 1
        return line

    def found(self, status: Any, name: str, kind: str, detail: str) -> None:
        """Note something that no call led to, such as a node of the graph."""
        line = self._lines.get((name, kind))
        if line is None:
            line = self._note((name, kind), status, name, kind, detail)
        line.calls += 1

    def report(self) -> Report:
        """Return everything met so far."""
        rows = tuple(self._row(key, line) for key, line in self._lines.items())
        return Report("torch", self._plan.rule_name, rows)

    def _row(self, key: Any, line: Entry | Note) -> Row:
        if isinstance(line, Entry):
            return self._plan.row(self._site(key), line.decision, line.calls)
        return Row(line.status, line.name, line.kind, line.calls, line.detail)

    def _site(self, key: Key) -> Site:
        place, op, bounds = key
        return _new_site(self._name(key, place, op), op, bounds)

    def _decide(self, key: Key) -> Decision:
        if self._asks_names:
            return self._plan.decide(self._site(key))
        bounds = key[2]  # the same decision for all of a kind, so no name is needed yet
        decision = self._by_kind.get(bounds)
        if decision is None:
            decision = self._by_kind[bounds] = self._plan.decide(_new_site("", key[1], bounds))
        return decision

    def _note(self, key: Any, status: Any, name: str, kind: str, detail: str) -> Note:
        if status in _REFUSED and self._plan.excludes(name):
            status, detail = "excluded", "in exclude="
        note: Note = self._add(key, Note(status, name, kind, detail), status)
        return note

    def _add(self, key: Any, line: Any, status: Any) -> Any:
        self._lines[key] = line
        self._statuses.add(status)
        self.changed = True
        return line

    def _name(self, key: Any, place: Place, op: str) -> str:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._new_name(place[0], op)
        return name

    def _new_name(self, module: nn.Module, op: str) -> str:
        path = self.paths[module]
        if path and type(module).__module__ == _ACTIVATIONS:
            return path
        base = f"{path}.{op}" if path else op
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name
