"""The moving parts of an applied rule: the step, and whether it is paused.

`at(step)` and `paused()` hold for the code that runs inside them and for nobody else, so they
live in a context variable and not in the object: two threads that evaluate one model at two
steps do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

_steps: ContextVar[tuple[tuple[int, Any], ...]] = ContextVar("relurules_steps", default=())
_paused: ContextVar[tuple[int, ...]] = ContextVar("relurules_paused", default=())


class Scopes(Protocol):
    """What a backend enters along with a fixed step and with a pause."""

    def at(self, step: Any, /) -> AbstractContextManager[None]:
        """Return what to enter while the step is held at `step`."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Return what to enter while the rule is paused."""
        ...


class State:
    """The step counter and the pause switch of one applied rule."""

    def __init__(self) -> None:
        self._step = 0
        self.moved = False
        self._watchers: list[Callable[[], None]] = []
        self._scopes: list[Scopes] = []

    def watch(self, changed: Callable[[], None], /) -> None:
        """Call `changed` whenever the step may have changed, for code that cannot ask."""
        self._watchers.append(changed)

    def surround(self, scopes: Scopes, /) -> None:
        """Enter these scopes inside `at` and `pause`, for a framework that has its own context."""
        self._scopes.append(scopes)

    @property
    def step(self) -> Any:
        """The step in force here: that of the innermost `at`, else the counter."""
        for owner, step in reversed(_steps.get()):
            if owner == id(self):
                return step
        return self._step

    @property
    def paused(self) -> bool:
        """Whether the code that asks runs inside `pause`."""
        paused = _paused.get()
        return bool(paused) and id(self) in paused

    def advance(self, n: int, /) -> None:
        """Move the counter by n steps."""
        self._step += n
        self._has_moved()

    @contextmanager
    def at(self, step: Any, /) -> Iterator[None]:
        """Hold the step at `step` inside the context."""
        token = _steps.set((*_steps.get(), (id(self), step)))
        self._has_moved()
        try:
            with self._surrounded(lambda scopes: scopes.at(step)):
                yield
        finally:
            _steps.reset(token)
            self._has_moved()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Give the plain gradient inside the context."""
        token = _paused.set((*_paused.get(), id(self)))
        try:
            with self._surrounded(lambda scopes: scopes.pause()):
                yield
        finally:
            _paused.reset(token)

    @contextmanager
    def _surrounded(
        self, enter: Callable[[Scopes], AbstractContextManager[None]], /
    ) -> Iterator[None]:
        with ExitStack() as stack:
            for scopes in self._scopes:
                stack.enter_context(enter(scopes))
            yield

    def _has_moved(self) -> None:
        self.moved = True
        for changed in self._watchers:
            changed()
