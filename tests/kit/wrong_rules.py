"""Rules that are wrong in one thing, each with the check that must notice.

A suite is worth what it catches. These are the mistakes that people make when they write these
rules down, and some that compilers make for them. Each stands in for the right function of one
rule, inside a backend that is right in everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relurules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRule:
    name: str
    rule: str
    fn: Callable[..., Any]
    check: str
    after: bool = False

    def __call__(self, rule: Rule) -> Rule:
        """Return the rule, with the wrong function if it is the one meant."""
        if rule.name != self.rule:
            return rule
        if self.after:
            assert rule.after is not None
            return replace(rule, after=replace(rule.after, fn=self.fn))
        return replace(rule, fn=self.fn)


WRONG: dict[str, WrongRule] = {}


def wrong(
    rule: str, *, check: str = "special_grid", after: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        name = fn.__name__
        assert name not in WRONG
        WRONG[name] = WrongRule(name=name, rule=rule, fn=fn, check=check, after=after)
        return fn

    return register


def filters(rule: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of `(x, g, lo, hi)` that says what is blocked."""

    def register(blocks: Callable[..., Any]) -> Callable[..., Any]:
        def fn(x: Any, g: Any, *, bounds: Any, xp: Any, **_: Any) -> Any:
            return select(blocks(x, g, *bounds), g)

        fn.__name__ = blocks.__name__
        return wrong(rule, **options)(fn)

    return register


def select(blocked: Any, g: Any) -> Any:
    return np.where(blocked, np.zeros_like(g), g)


def open_gate(x: Any, lo: Any, hi: Any) -> Any:
    return (x <= lo) | (x >= hi)


def closed_gate(x: Any, lo: Any, hi: Any) -> Any:
    return (x < lo) | (x > hi)


def tiny(a: Any) -> Any:
    return np.abs(a) < np.finfo(a.dtype).smallest_normal
