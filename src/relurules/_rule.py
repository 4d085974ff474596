"""What a rule is: one pure function on an array namespace, and what there is to know of it.

M rules and N frameworks must cost M + N pieces of code. So a rule is written once, with
operators, `where`, `any` and `zeros_like` of a namespace `xp` that each backend provides, and
everything that backends must agree on (which sign g has, whether the rule reduces over a
sample, what follows it when its schedule ends) is data beside that function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from relurules.errors import InvalidRuleError

Bounds: TypeAlias = tuple[float, float]
GradientOf: TypeAlias = Literal["score", "loss"]
RuleFn: TypeAlias = Callable[..., Any]

_GRADIENTS = (None, "score", "loss")
_SCOPES = ("element", "sample")
KINDS = frozenset({"relu", "relu6", "hardtanh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How the gradient passes an activation that computes `clip(x, lo, hi)`.

    Attributes:
        name: What `relurules.apply(model, name)` takes; lower case, digits and underscores.
        fn: `fn(x, g, *, bounds, xp)`, and also `batch_axis` where `scope` is `"sample"`.
            x is the activation's input, g the incoming gradient, of one shape and floating
            dtype; `bounds` is `(lo, hi)`. It must be pure and return shape and dtype of g,
            using only operators and `xp.where`, `xp.any`, `xp.zeros_like`, so that it runs
            in every backend. Select with `where`; a product turns inf into NaN.
        gradient_of: Which sign of g the rule is written for: `"score"` (keep what raises the
            response), `"loss"` (what is minimised), or None where the sign does not matter.
        scope: `"element"`, or `"sample"` where one element's result depends on its sample.
        kinds: The site kinds the rule is for (`"relu"`, `"relu6"`, `"hardtanh"`); other
            sites keep their own gradient. None is every site.
        after: The rule that follows when a schedule has ended; None is `standard`.
        is_filter: Every output element is the bits of g or +0.0, so backends must match the
            NumPy specification bit for bit. False allows 1 ulp.
        summary: One line for tables.
        source: The paper or code the rule is from.
        aliases: Other names by which `apply` finds it.

    Raises:
        InvalidRuleError: The fields contradict each other.

    Example:
        >>> def halve(x, g, *, bounds, xp):
        ...     return xp.where(x < bounds[0], g * 0.5, g)
        >>> Rule(name="halve", fn=halve, is_filter=False).name
        'halve'
    """

    name: str
    fn: RuleFn
    gradient_of: GradientOf | None = None
    scope: Literal["element", "sample"] = "element"
    kinds: frozenset[str] | None = None
    after: Rule | None = None
    is_filter: bool = True
    summary: str = ""
    source: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for wrong in _contradictions(self):
            raise InvalidRuleError(f"Rule {self.name!r}: {wrong}")

    def then(self, other: Rule, /) -> Rule:
        """Return this rule with `other` following it once its schedule has ended.

        Example:
            >>> import relurules
            >>> relurules.rule("redirected").then(relurules.rule("guided")).after.name
            'guided'
        """
        return replace(self, after=other)

    def takes(self, kind: str, /) -> bool:
        """Return whether the rule is for sites of this kind."""
        return self.kinds is None or kind in self.kinds

    def check_rank(self, ndim: int, batch_axis: int | None, /) -> None:
        """Raise ValueError where a rule over samples meets a tensor without a batch axis.

        A batch axis that is wrong by one gives plausible, wrong numbers, as under vmap, where
        axis 0 of the tensor a function sees is a feature axis. Lucid asserts rank > 1 too.
        """
        if self.scope == "element" or batch_axis is None:
            return
        if ndim < 2:
            raise ValueError(
                f"Rule {self.name!r} looks at whole samples, but met an activation of rank "
                f"{ndim}, which has no features beside batch axis {batch_axis}. Pass "
                "batch_axis=None to treat the whole tensor as one sample (as inside vmap), or "
                "give the model a batch."
            )
        if not -ndim <= batch_axis < ndim:
            raise ValueError(
                f"batch_axis={batch_axis} is out of range for an activation of rank {ndim}; "
                f"expected {-ndim} to {ndim - 1}, or None for one sample."
            )


def _contradictions(rule: Rule) -> list[str]:
    checks = [
        (_is_name(rule.name), "the name must be a lower-case identifier such as 'guided'."),
        (
            isinstance(rule.aliases, tuple) and all(map(_is_name, rule.aliases)),
            f"aliases must be a tuple of lower-case identifiers, got {rule.aliases!r}.",
        ),
        (callable(rule.fn), f"fn must be callable, got {type(rule.fn).__name__}."),
        (
            rule.gradient_of in _GRADIENTS,
            f"gradient_of must be 'score', 'loss' or None, got {rule.gradient_of!r}.",
        ),
        (
            rule.scope in _SCOPES,
            f"scope must be 'element' or 'sample', got {rule.scope!r}.",
        ),
        (
            rule.kinds is None or (isinstance(rule.kinds, frozenset) and _are_kinds(rule.kinds)),
            f"kinds must be None or a frozenset of some of {sorted(KINDS)}, got {rule.kinds!r}.",
        ),
        (
            rule.after is None or isinstance(rule.after, Rule),
            f"after must be a Rule or None, got {type(rule.after).__name__}.",
        ),
    ]
    return [message for ok, message in checks if not ok]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.islower()


def _are_kinds(kinds: frozenset[str]) -> bool:
    return bool(kinds) and kinds <= KINDS


def kind_of(bounds: Bounds, /) -> str:
    """Return the kind of a site: relu is (0, inf), relu6 (0, 6), any other hardtanh.

    The bounds decide and not the spelling, so a `hardtanh(0, 6)` is a relu6 in every
    framework and behind every mechanism.

    >>> kind_of((0, 6)), kind_of((0.0, float("inf"))), kind_of((-1, 1))
    ('relu6', 'relu', 'hardtanh')
    """
    if bounds == (0, math.inf):
        return "relu"
    return "relu6" if bounds == (0, 6) else "hardtanh"


def evaluate(
    rule: Rule,
    x: Any,
    g: Any,
    /,
    *,
    bounds: Bounds,
    xp: Any,
    batch_axis: int | None = 0,
    gradient_of: GradientOf | None = None,
    active: Any = True,
    standard: Rule,
) -> Any:
    """Return the gradient that `rule` lets pass: what a rule means, for every backend.

    Args:
        rule: The rule.
        x: The activation's input, an array of `xp`.
        g: The incoming gradient, of the shape and dtype of x.
        bounds: `(lo, hi)` of the activation, already rounded to x's dtype.
        xp: The array namespace, of which rules use `where`, `any` and `zeros_like`.
        batch_axis: The axis that separates samples, or None for one sample.
        gradient_of: What the user differentiates; None is the rule's own convention.
        active: Whether the schedule is running: a bool, or a traced boolean scalar.
        standard: The rule that follows where `rule.after` is None.

    Returns:
        An array of the shape and dtype of g. Where the user differentiates the other sign
        than the rule is written for, this is `-rule(x, -g)`.
    """
    rule.check_rank(len(x.shape), batch_axis)

    def run(one: Rule) -> Any:
        extra = {"batch_axis": batch_axis} if one.scope == "sample" else {}
        if flips(one, gradient_of):
            return -one.fn(x, -g, bounds=bounds, xp=xp, **extra)
        return one.fn(x, g, bounds=bounds, xp=xp, **extra)

    after = rule.after or standard
    if isinstance(active, bool):
        return run(rule if active else after)
    return xp.where(active, run(rule), run(after))


def flips(rule: Rule, gradient_of: GradientOf | None, /) -> bool:
    """Return whether g must change its sign before and after the rule."""
    return None not in (gradient_of, rule.gradient_of) and gradient_of != rule.gradient_of
