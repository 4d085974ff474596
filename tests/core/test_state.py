"""The step and the pause of one applied rule, and what a backend enters along with them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from relurules.backend import State


class Noting:
    """Scopes that note what is entered and left, and what the state says meanwhile."""

    def __init__(self, state: State, name: str = "") -> None:
        self.state = state
        self.name = name
        self.seen: list[str] = []

    def at(self, step: Any) -> Any:
        return self._noted(f"at {step}")

    def pause(self) -> Any:
        return self._noted("pause")

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        self.seen.append(f"{self.name}enter {what}, step {self.state.step}")
        try:
            yield
        finally:
            self.seen.append(f"{self.name}leave {what}, step {self.state.step}")


def test_the_innermost_step_is_in_force() -> None:
    state, other = State(), State()
    state.advance(2)
    with state.at(5), other.at(7):
        assert (state.step, other.step) == (5, 7)
        with state.at(6):
            assert state.step == 6
        assert state.step == 5
    assert (state.step, other.step) == (2, 0)


def test_steps_and_pauses_are_of_one_thread() -> None:
    state = State()
    with state.at(5), state.pause(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: (state.step, state.paused)).result() == (0, False)
        assert (state.step, state.paused) == (5, True)


def test_watchers_hear_of_each_change_of_the_step() -> None:
    state, steps = State(), []
    state.watch(lambda: steps.append(state.step))
    assert not state.moved
    with state.at(5):
        state.advance(1)
    assert state.moved
    assert steps == [5, 5, 1]


def test_scopes_are_entered_inside() -> None:
    state = State()
    scopes = Noting(state)
    state.surround(scopes)
    with state.at(5):
        pass
    with state.pause():
        assert state.paused
    assert scopes.seen == [
        "enter at 5, step 5",
        "leave at 5, step 5",
        "enter pause, step 0",
        "leave pause, step 0",
    ]


def test_several_scopes_leave_in_reverse() -> None:
    state = State()
    first, second = Noting(state, "first: "), Noting(state, "second: ")
    second.seen = first.seen
    state.surround(first)
    state.surround(second)
    with state.at(1):
        pass
    assert [line.partition(" at")[0] for line in first.seen] == [
        "first: enter",
        "second: enter",
        "second: leave",
        "first: leave",
    ]


def test_scopes_and_state_are_left_after_an_error() -> None:
    state = State()
    scopes = Noting(state)
    state.surround(scopes)
    with pytest.raises(KeyError), state.at(5), state.pause():
        raise KeyError
    assert (state.step, state.paused) == (0, False)
    assert len(scopes.seen) == 4


def test_scopes_that_refuse_leave_the_state_as_it_was() -> None:
    class Refusing(Noting):
        def at(self, step: Any) -> Any:
            raise ValueError(step)

    state = State()
    state.surround(Refusing(state))
    with pytest.raises(ValueError, match="5"), state.at(5):
        pass
    assert state.step == 0
