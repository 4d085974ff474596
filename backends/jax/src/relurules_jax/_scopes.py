"""`at(step)` and `paused()` around a function that is jitted already.

Both live in a context variable, which jit knows nothing of: a function jitted before
`paused()` would go on with the rule that it was traced under. So while one of them is entered,
a value that is part of jit's key says so. Of a step only whether the rule is active at it is
part of the key, which gives two compilations and not one for each step.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax

from relurules import Always, Schedule
from relurules.backend import State

_entered = jax.make_user_context(None)


class Scopes:
    """Which of one applied rule's scopes are entered on this thread."""

    def __init__(self, state: State, schedule: Schedule) -> None:
        self._schedule = schedule
        state.surround(self)

    @property
    def fixes_step(self) -> bool:
        """Whether the step in force is one that `at` has made part of jit's key."""
        steps = [what for owner, what in _now() if owner is self and what != "paused"]
        return bool(steps) and steps[-1] != "traced"

    def at(self, step: Any, /) -> AbstractContextManager[None]:
        """Return a context that says whether the rule is active at `step`."""
        return _entered((*_now(), *self._key(step)))  # type: ignore[no-any-return]

    def pause(self) -> AbstractContextManager[None]:
        """Return a context that says that the rule is paused."""
        return _entered((*_now(), (self, "paused")))  # type: ignore[no-any-return]

    def _key(self, step: Any) -> tuple[tuple[Scopes, Any], ...]:
        if isinstance(self._schedule, Always):  # a step changes nothing
            return ()
        if isinstance(step, jax.core.Tracer):
            return ((self, "traced"),)
        return ((self, bool(self._schedule.active(step))),)


def unscoped() -> AbstractContextManager[None]:
    """Return a context for code that asks no applied rule, and is compiled once for all."""
    return _entered(None)  # type: ignore[no-any-return]


def _now() -> tuple[tuple[Scopes, Any], ...]:
    return _entered.value or ()
