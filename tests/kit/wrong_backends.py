"""Backends that are wrong in one thing, each with the check that must notice.

Each is the toy backend with one method replaced by one that a busy author might have written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from relurules_example import _backend, tape
from relurules_example._backend import ExampleAttachment

Patch = pytest.MonkeyPatch
WRONG: dict[str, tuple[str, Callable[[Patch], None]]] = {}


def caught_by(check: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
        WRONG[break_it.__name__] = (check, break_it)
        return break_it

    return register


def method(patch: Patch, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a method of the toy attachment; the new one is given the old one first."""
    old = getattr(ExampleAttachment, name)

    def put(new: Callable[..., Any]) -> None:
        patch.setattr(ExampleAttachment, name, lambda self, *args: new(old, self, *args))

    return put


# --- Leaving ---------------------------------------------------------------------------------


@caught_by("apply_and_restore")
def does_not_restore(patch: Patch) -> None:
    @method(patch, "remove")
    def _(old, self):
        pass


@caught_by("removed_in_any_order")
def restores_the_last_one(patch: Patch) -> None:
    @method(patch, "remove")
    def _(old, self):
        if self.model.wrappers:
            self.model.wrappers.pop()


@caught_by("remove_is_idempotent")
def restores_everything(patch: Patch) -> None:
    @method(patch, "remove")
    def _(old, self):
        self.model.wrappers.clear()


@caught_by("remove_is_idempotent")
def removes_once_only(patch: Patch) -> None:
    @method(patch, "remove")
    def _(old, self):
        self.model.wrappers.remove(self._wrap)
        self.model.wrappers.append(self._wrap)


@caught_by("restored_after_an_exception")
def does_not_restore_after_an_exception(patch: Patch) -> None:
    import sys

    @method(patch, "remove")
    def _(old, self):
        if sys.exc_info()[0] is None and not _unwinding():
            old(self)


def _unwinding() -> bool:
    """Return whether `Applied.__exit__` was called for an exception."""
    import inspect

    frames = (frame.frame for frame in inspect.stack() if frame.function == "__exit__")
    return any(frame.f_locals.get("kind") is not None for frame in frames)


@caught_by("refusal[rank_1]")
def leaves_its_interceptor_behind(patch: Patch) -> None:
    @method(patch, "_run")
    def _(old, self, forward, x):
        intercept = partial(self._intercept, _backend.Counter(), True)
        token = tape.interceptors.set((*tape.interceptors.get(), intercept))
        y = forward(x)
        tape.interceptors.reset(token)
        _backend.judge(self.report(), self._plan)
        self.calls += 1
        return y


# --- Reaching too far, or not far enough -----------------------------------------------------


@caught_by("other_threads")
def leaks_to_other_threads(patch: Patch) -> None:
    @method(patch, "_wrap")
    def _(old, self, forward):
        return forward if self._state.paused else partial(self._run, forward)


@caught_by("two_threads_at_once")
def has_one_rule_for_all_threads(patch: Patch) -> None:
    current: list[ExampleAttachment] = []

    @method(patch, "__init__")
    def _(old, self, model, plan, state):
        old(self, model, plan, state)
        current.append(self)

    @method(patch, "_intercept")
    def _(old, self, seen, active, op, x, bounds):
        self._met[_backend.Site(op, op, bounds)] += 1
        return old(current[-1], seen, active, op, x, bounds)


@caught_by("other_models")
def leaks_to_other_models(patch: Patch) -> None:
    shared: list[Any] = []
    own = property(lambda self: shared, lambda self, new: None)
    patch.setattr(tape.Model, "wrappers", own, raising=False)


@caught_by("backward_after_exit")
def reads_the_rule_in_backward(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        held = self._wrap in self.model.wrappers
        return old(self, rule if held else _backend.STANDARD, x, bounds, active, g)


@caught_by("backward_before_entry")
def changes_graphs_built_before(patch: Patch) -> None:
    entered: list[ExampleAttachment] = []
    clip = tape.clip

    @method(patch, "_wrap")
    def _(old, self, forward):
        entered.append(self)
        return old(self, forward)

    def late(x, lo, hi, **options):
        y = clip(x, lo, hi, **options)
        own = y.pull
        y.pull = lambda g: (
            entered[-1]._plan.choices[0][1].fn(x.data, g, bounds=(lo, hi), xp=np)
            if entered
            else own(g)
        )
        return y

    patch.setattr(tape, "clip", late)


@caught_by("several_sites")
def reaches_the_first_site_only(patch: Patch) -> None:
    @method(patch, "_intercept")
    def _(old, self, seen, active, op, x, bounds):
        pull = old(self, seen, active, op, x, bounds)
        return pull if seen.total() == 1 else None


@caught_by("spelling[Tensor.relu_]")
def misses_in_place(patch: Patch) -> None:
    relu_ = tape.Tensor.relu_

    def unseen(self):
        token = tape.interceptors.set(())
        try:
            return relu_(self)
        finally:
            tape.interceptors.reset(token)

    patch.setattr(tape.Tensor, "relu_", unseen)


@caught_by("innermost_rule_wins")
def lets_the_outermost_win(patch: Patch) -> None:
    @method(patch, "__init__")
    def _(old, self, model, plan, state):
        old(self, model, plan, state)
        model.wrappers.insert(0, model.wrappers.pop())


@caught_by("selected_sites")
def ignores_exclude(patch: Patch) -> None:
    plans(patch, exclude=None)


@caught_by("rules_by_kind")
def gives_every_site_the_first_rule(patch: Patch) -> None:
    change_plans(patch, lambda plan: replace(plan, choices=(("*", plan.choices[0][1]),)))


@caught_by("rule_of_a_kind")
def gives_every_kind_the_rule(patch: Patch) -> None:
    def all_kinds(plan):
        return replace(plan, choices=tuple((k, replace(r, kinds=None)) for k, r in plan.choices))

    change_plans(patch, all_kinds)


def plans(patch: Patch, **fields: Any) -> None:
    change_plans(patch, lambda plan: replace(plan, **fields))


def change_plans(patch: Patch, change: Callable[[Any], Any]) -> None:
    @method(patch, "__init__")
    def _(old, self, model, plan, state):
        old(self, model, change(plan), state)


# --- Numbers -----------------------------------------------------------------------------------


@caught_by("special_grid")
def changes_the_forward(patch: Patch) -> None:
    @method(patch, "_run")
    def _(old, self, forward, x):
        y = old(self, forward, x)
        y.data = y.data + y.data.dtype.type(0)
        return y


@caught_by("special_grid")
def widens_the_gradient(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, *args):
        return old(self, *args).astype(np.float64)


@caught_by("special_grid")
def takes_every_site_for_a_relu(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        return old(self, rule, x, (0.0, np.inf), active, g)


@caught_by("special_grid")
def keeps_the_output(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        return old(self, rule, np.clip(x, *bounds).astype(x.dtype), bounds, active, g)


@caught_by("mixed_draws")
def ignores_the_batch_axis(patch: Patch) -> None:
    plans(patch, batch_axis=0)


@caught_by("other_sign")
def ignores_gradient_of(patch: Patch) -> None:
    plans(patch, gradient_of=None)


@caught_by("law[negates_for_the_other_sign]")
def negates_too_late(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        flipped = _backend.Plan(choices=self._plan.choices, standard=_backend.STANDARD)
        other = self._plan.gradient_of not in (None, rule.gradient_of)
        self._plan, plan = replace(flipped, batch_axis=self._plan.batch_axis), self._plan
        try:
            out = old(self, rule, x, bounds, active, g)
        finally:
            self._plan = plan
        return -out if other and rule.gradient_of else out
