"""Where in a model each call comes from, and what was decided there.

A function such as `relu` does not know which module calls it, and hooks on every module would
slow each call and leak into other models that share one. The Python frames know it: the
innermost one whose first argument is a module of this model made the call. The place in that
frame's code then tells two ReLUs of one forward apart, and the same ReLU run twice is one site
with two calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

from relurules.backend import Bounds, Decision, Plan, Report, Row, Site
from torch import nn

Place: TypeAlias = tuple[nn.Module, CodeType, int]

_ACTIVATIONS = "torch.nn.modules.activation"


@dataclass(slots=True)
class Entry:
    """One line of the ledger: a place in the model's code, and how often it ran."""

    row: Row
    decision: Decision | None = None
    calls: int = 0


class Ledger:
    """All that one applied rule met in one model, in the order in which it ran."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self._plan = plan
        self._paths = {module: path for path, module in model.named_modules()}
        self._entries: dict[Any, Entry] = {}
        self._names = set(self._paths.values())
        self.changed = True

    def place(self, depth: int = 2) -> Place | None:
        """Return which of the model's code is running, or None where none of it is."""
        frame = sys._getframe(depth)
        while frame is not None:
            names = frame.f_code.co_varnames
            owner = frame.f_locals.get(names[0]) if names else None
            if isinstance(owner, nn.Module) and owner in self._paths:
                return owner, frame.f_code, frame.f_lasti
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def site(self, place: Place, op: str, bounds: Bounds) -> Entry:
        """Return the entry of an activation, new or known, and count the call."""
        key = (place, op, bounds)
        entry = self._entries.get(key)
        if entry is None:
            site = Site(self._name(place, op), op, bounds)
            decision = self._plan.decide(site)
            entry = self._new(key, Entry(self._plan.row(site, decision, 0), decision))
        entry.calls += 1
        return entry

    def note(self, place: Place, status: Any, op: str, detail: str) -> None:
        """Count a call of something that is no site."""
        key = (place, op, status)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._new(key, Entry(Row(status, self._name(place, op), op, 0, detail)))
        entry.calls += 1

    def add(self, status: Any, name: str, kind: str, detail: str) -> None:
        """Note something that no call led to, such as a node found in the graph."""
        if not self._plan.excludes(name):
            entry = Entry(Row(status, name, kind, 0, detail))
            entry = self._entries.get((name, kind)) or self._new((name, kind), entry)
            entry.calls += 1

    def path_of(self, module: nn.Module) -> str:
        """Return the module's path in the model."""
        return self._paths[module]

    def modules(self) -> Iterable[tuple[str, nn.Module]]:
        """Return every module of the model with its path."""
        return ((path, module) for module, path in self._paths.items())

    def report(self, backend: str) -> Report:
        """Return everything met so far."""
        rows = (
            Row(e.row.status, e.row.name, e.row.kind, e.calls, e.row.detail)
            for e in self._entries.values()
        )
        return Report(backend, self._plan.rule_name, tuple(rows))

    def _new(self, key: Any, entry: Entry) -> Entry:
        self._entries[key] = entry
        self.changed = True
        return entry

    def _name(self, place: Place, op: str) -> str:
        module, path = place[0], self._paths[place[0]]
        if path and type(module).__module__ == _ACTIVATIONS:
            return path
        base = f"{path}.{op}" if path else op
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name
