"""`at(step)` and `paused()` around a function that is jitted already.

Both live in a context variable, which jit knows nothing of: a function jitted before
`paused()` would go on with the rule that it was traced under. So while one of them is entered,
a value that is part of jit's key says so. Of a step only whether the rule is active at it is
part of the key, which gives two compilations and not one for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax

from relurules import Always, Schedule
from relurules.backend import State

_entered = jax.make_user_context(None)

Scope = Callable[..., AbstractContextManager[None]]


class Scopes:
    """Which of one applied rule's scopes are entered on this thread."""

    def __init__(self, state: State, schedule: Schedule) -> None:
        self._schedule = schedule
        self._at: Scope = state.at
        self._pause: Scope = state.pause
        state.at = self.at  # type: ignore[method-assign]
        state.pause = self.pause  # type: ignore[method-assign]

    @property
    def fixes_step(self) -> bool:
        """Whether the step in force is one that `at` has made part of jit's key."""
        steps = [what for owner, what in _now() if owner is self and what != "paused"]
        return bool(steps) and steps[-1] != "traced"

    @contextmanager
    def at(self, step: Any, /) -> Iterator[None]:
        """Hold the step at `step`."""
        with self._at(step), _entered((*_now(), *self._key(step))):
            yield

    def _key(self, step: Any) -> tuple[tuple[Scopes, Any], ...]:
        if isinstance(self._schedule, Always):  # a step changes nothing
            return ()
        if isinstance(step, jax.core.Tracer):
            return ((self, "traced"),)
        return ((self, bool(self._schedule.active(step))),)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Give the plain gradient."""
        with self._pause(), _entered((*_now(), (self, "paused"))):
            yield


def unscoped() -> AbstractContextManager[None]:
    """Return a context for code that asks no applied rule, and is compiled once for all."""
    return _entered(None)  # type: ignore[no-any-return]


def _now() -> tuple[tuple[Scopes, Any], ...]:
    return _entered.value or ()
