"""Where in a model each call comes from, and what was decided there.

A function such as `relu` does not know which module calls it, and hooks on every module would
slow each call and leak into other models that share one. The Python frames know it: the
innermost one whose first argument is a module of this model made the call. The place in that
frame's code then tells two ReLUs of one forward apart, and the same ReLU run twice is one site
with two calls.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeAlias

from relurules.backend import Bounds, Decision, Plan, Report, Row, Site
from torch import nn

from relurules_torch._function import RuleCall

Place: TypeAlias = tuple[nn.Module, CodeType, int]

_ACTIVATIONS = "torch.nn.modules.activation"
_FINE = frozenset({"replaced", "other"})
_REFUSED = frozenset({"missed", "opaque"})


@dataclass(slots=True)
class Entry:
    """An activation at one place in the model's code.

    Attributes:
        site: The activation.
        decision: The rule it takes, or why it takes none.
        calls: How often it ran.
        prepared: How its last backward was to run, to be used again where it fits.
    """

    site: Site
    decision: Decision
    calls: int = 0
    prepared: RuleCall | None = None

    def row(self, plan: Plan) -> Row:
        """Return the report's row."""
        return plan.row(self.site, self.decision, self.calls)


@dataclass(slots=True)
class Note:
    """Something that was met and is no activation that a rule could take."""

    status: Any
    name: str
    kind: str
    detail: str
    calls: int = 0

    def row(self, plan: Plan) -> Row:
        """Return the report's row."""
        return Row(self.status, self.name, self.kind, self.calls, self.detail)


class Ledger:
    """All that one applied rule met in one model, in the order in which it ran."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self._plan = plan
        self.paths = {module: path for path, module in model.named_modules()}
        self._lines: dict[Any, Entry | Note] = {}
        self._names = set(self.paths.values())
        self._statuses: set[Any] = set()
        self.changed = True

    @property
    def is_fine(self) -> bool:
        """Whether some activation took a rule and nothing met is worth a complaint."""
        return "replaced" in self._statuses and self._statuses <= _FINE

    def place(self, depth: int) -> Place | None:
        """Return which of the model's code is running, or None where none of it is.

        Where a forward names its module otherwise than `self`, the frame of
        `torch.nn.Module._call_impl` around it still does.
        """
        frame: FrameType | None = sys._getframe(depth)
        while frame is not None:
            code = frame.f_code
            if code.co_varnames[:1] == ("self",):  # asked first, since f_locals builds a dict
                owner = frame.f_locals.get("self")
                if isinstance(owner, nn.Module) and owner in self.paths:
                    return owner, code, frame.f_lasti
            frame = frame.f_back
        return None

    def site(self, place: Place, op: str, bounds: Bounds) -> Entry:
        """Return the entry of an activation, new or known."""
        key = (place, op, bounds)
        entry = self._lines.get(key)
        if not isinstance(entry, Entry):
            site = Site(self._name(place, op), op, bounds)
            entry = Entry(site, self._plan.decide(site))
            self._add(key, entry, "replaced" if entry.decision.rule else "excluded")
        return entry

    def note(self, place: Place, status: Any, op: str, detail: str) -> Note:
        """Count a call of something that is no activation for a rule."""
        key = (place, op, status)
        line = self._lines.get(key)
        if not isinstance(line, Note):
            line = self._note(key, status, self._name(place, op), op, detail)
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
        rows = tuple(line.row(self._plan) for line in self._lines.values())
        return Report("torch", self._plan.rule_name, rows)

    def _note(self, key: Any, status: Any, name: str, kind: str, detail: str) -> Note:
        if status in _REFUSED and self._plan.excludes(name):
            status, detail = "excluded", "in exclude="
        return self._add(key, Note(status, name, kind, detail), status)

    def _add(self, key: Any, line: Any, status: Any) -> Any:
        self._lines[key] = line
        self._statuses.add(status)
        self.changed = True
        return line

    def _name(self, place: Place, op: str) -> str:
        module, path = place[0], self.paths[place[0]]
        if path and type(module).__module__ == _ACTIVATIONS:
            return path
        base = f"{path}.{op}" if path else op
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name
