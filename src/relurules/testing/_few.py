"""Fewer programs for a backend that compiles one for every shape, rule, dtype and bounds.

Every shape under every rule in every dtype would be thousands of programs, and minutes. Here
each place, such as a rule in a dtype, meets every fourth of the options and begins elsewhere
than its neighbours: so every option meets every rule, and every option meets every dtype. The
nightly seed moves them all, so that in time everything meets everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from relurules.testing._case import BackendCase, CompilingCase
from relurules.testing._check import Setting

_EVERY = 4

T = TypeVar("T")


def few(
    options: Sequence[T], case: BackendCase, /, *place: int, every: int = _EVERY
) -> Sequence[T]:
    """Return some options, the first of them by place; all of them where nothing is compiled."""
    if not isinstance(case, CompilingCase):
        return options
    every = max(1, min(every, len(options)))
    return options[sum(place) % every :: every]


def few_at(options: Sequence[T], at: Setting, /) -> Sequence[T]:
    """Return the options that this rule meets in this dtype."""
    return few(options, at.case, *place_of(at))


def place_of(at: Setting, /) -> tuple[int, ...]:
    """Return where among its neighbours a check is."""
    return at.rules.index(at.rule), at.case.dtypes.index(at.dtype), at.profile.seed or 0
