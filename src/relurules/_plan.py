"""What the user asked for, resolved: which rule each site takes, or why it takes none.

Backends meet sites one by one and must all decide alike, so the deciding is here. A plan is
immutable: it can be shared by threads and be part of a compiled model's cache key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from relurules._library import BUILTIN
from relurules._report import Row, Site, Status
from relurules._rule import KINDS, GradientOf, Rule
from relurules._schedule import ALWAYS, Schedule

Missing: TypeAlias = Literal["error", "warn", "ignore"]
Match: TypeAlias = Literal["named", "structural"]
Smooth: TypeAlias = Literal["incoming", "outgoing", "gate"]
Select: TypeAlias = str | Iterable[str] | Callable[[Site], bool] | None
Selector: TypeAlias = tuple[str, ...] | Callable[[Site], bool] | None

_GUIDED = next(rule for rule in BUILTIN if rule.name == "guided")


@dataclass(frozen=True, slots=True)
class Decision:
    """The rule that a site takes, or None and the reason."""

    rule: Rule | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The arguments of `apply`, checked and resolved.

    Attributes:
        choices: Pairs of a site kind or name pattern, and a rule; the first that fits wins.
        standard: The rule that follows a schedule where the rule names none.
        schedule: When the rules are active.
        gradient_of: What the user differentiates, or None for each rule's own convention.
        batch_axis: The axis that separates samples, or None.
        only: Sites that may take a rule; None is all.
        exclude: Sites that may not.
        missing: What to do about an activation that no rule reached.
        match: Whether clamp, maximum and the like count as activations.
        smooth_activations: What guided means on gelu, silu and the like, or None to leave them
            alone.
    """

    choices: tuple[tuple[str, Rule], ...]
    standard: Rule
    schedule: Schedule = ALWAYS
    gradient_of: GradientOf | None = None
    batch_axis: int | None = 0
    only: Selector = None
    exclude: Selector = None
    missing: Missing = "error"
    match: Match = "named"
    smooth_activations: Smooth | None = None

    @property
    def rule_name(self) -> str:
        """The rule's name, or the names of all rules of a mapping."""
        return ", ".join(dict.fromkeys(rule.name for _, rule in self.choices))

    @property
    def may_take_smooth(self) -> bool:
        """Whether every rule is one that has a meaning on smooth activations, if not just one."""
        return all(rule == _GUIDED for _, rule in self.choices)

    @property
    def asks_names(self) -> bool:
        """Whether a decision may depend on more than a site's kind."""
        selects = self.only is not None or self.exclude is not None
        return selects or any(key != "*" and key not in KINDS for key, _ in self.choices)

    def decide(self, site: Site, /) -> Decision:
        """Return the rule for `site`, or the reason why it keeps its own gradient."""
        if self.only is not None and not _selected(self.only, site):
            return Decision(None, "not in only=")
        if _selected(self.exclude, site):
            return Decision(None, "in exclude=")
        for pattern, rule in self.choices:
            if pattern in ("*", site.kind) or fnmatchcase(site.name, pattern):
                return self._for_kind(rule, site)
        return Decision(None, "no key of the rule mapping fits")

    def excludes(self, name: str, /) -> bool:
        """Return whether `exclude` names this place, whatever is there."""
        return isinstance(self.exclude, tuple) and _matches(self.exclude, name)

    def row(self, site: Site, decision: Decision, calls: int, /) -> Row:
        """Return the report's row for a site and what was decided about it."""
        status: Status = "replaced" if decision.rule else "excluded"
        return Row(status, site.name, site.kind, calls, decision.reason)

    def _for_kind(self, rule: Rule, site: Site) -> Decision:
        if site.is_smooth:
            return Decision(rule, f"{rule.name} ({self.smooth_activations})")
        if rule.takes(site.kind):
            return Decision(rule, rule.name)
        kinds = ", ".join(sorted(rule.kinds or ()))
        return Decision(None, f"{rule.name} is for {kinds} only")


def _selected(selector: Selector, site: Site) -> bool:
    if selector is None:
        return False
    if isinstance(selector, tuple):
        return _matches(selector, site.name)
    return bool(selector(site))


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
