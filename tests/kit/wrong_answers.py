"""Backends that are wrong about steps and pauses, or hide an error, or report what was not so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from wrong_backends import Patch, caught_by, change_plans, method

from relurules.backend import Report
from relurules_example import _backend
from relurules_example._backend import ExampleAttachment
from relurules_example.testing import ExampleCase

# --- Steps and pauses --------------------------------------------------------------------------


@caught_by("pausing")
def ignores_the_pause(patch: Patch) -> None:
    @method(patch, "_wrap")
    def _(old, self, forward):
        return partial(self._run, forward) if self._here() else forward

    patch.setattr(
        ExampleAttachment,
        "_here",
        lambda self: threading.get_ident() == self._thread,
        raising=False,
    )


def steps(patch: Patch, change: Callable[[ExampleAttachment, Any], Any]) -> None:
    """Replace the step that the backend reads."""

    class Read:
        def __init__(self, attachment: ExampleAttachment, state: Any) -> None:
            self._attachment, self._state = attachment, state

        @property
        def paused(self) -> bool:
            return self._state.paused

        @property
        def step(self) -> Any:
            return change(self._attachment, self._state)

    @method(patch, "__init__")
    def _(old, self, model, plan, state):
        old(self, model, plan, Read(self, state))


@caught_by("schedule_boundary")
def keeps_a_stale_step(patch: Patch) -> None:
    steps(patch, lambda attachment, state: 0)


@caught_by("schedule_boundary")
def stops_a_step_early(patch: Patch) -> None:
    steps(patch, lambda attachment, state: state.step + 1)


@caught_by("schedule_boundary")
def stops_a_step_late(patch: Patch) -> None:
    steps(patch, lambda attachment, state: state.step - 1)


@caught_by("at_a_step")
def counts_steps_itself(patch: Patch) -> None:
    steps(patch, lambda attachment, state: state._step)


@caught_by("at_a_scalar_step")
def knows_numbers_only(patch: Patch) -> None:
    @method(patch, "_run")
    def _(old, self, forward, x):
        if not isinstance(self._state.step, int):
            raise TypeError("a step is an int")
        return old(self, forward, x)

    patch.setattr(ExampleCase, "scalar", lambda self, step: np.int64(step))


@caught_by("rule_after_the_schedule")
def ends_in_the_plain_gradient(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        return old(self, rule if active else _backend.STANDARD, x, bounds, True, g)


# --- Errors and reports ------------------------------------------------------------------------


@caught_by("errors_get_through")
def swallows_errors(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        try:
            return old(self, rule, x, bounds, active, g)
        except Exception:  # noqa: BLE001 - the mistake that is made here
            return g


@caught_by("refusal[rule_adds_an_axis]")
def passes_on_any_shape(patch: Patch) -> None:
    @method(patch, "_pull")
    def _(old, self, rule, x, bounds, active, g):
        return rule.fn(x, g, bounds=bounds, xp=np)


@caught_by("refusal[axis_2]")
def wraps_the_batch_axis(patch: Patch) -> None:
    def wrapped(plan):
        return replace(plan, batch_axis=plan.batch_axis and plan.batch_axis % 2)

    change_plans(patch, wrapped)


@caught_by("one_sample_of_any_rank")
def always_wants_a_batch(patch: Patch) -> None:
    @method(patch, "_intercept")
    def _(old, self, seen, active, op, x, bounds):
        if x.data.ndim < 2:
            raise ValueError("no batch")
        return old(self, seen, active, op, x, bounds)


@caught_by("follow_refuses")
def follows_anything(patch: Patch) -> None:
    @method(patch, "follow")
    def _(old, self, optimizer, advance):
        pass


@caught_by("never_silent")
def is_silent(patch: Patch) -> None:
    patch.setattr(_backend, "judge", lambda report, plan: None)


@caught_by("never_called")
def counts_a_call_too_many(patch: Patch) -> None:
    @method(patch, "__init__")
    def _(old, self, model, plan, state):
        old(self, model, plan, state)
        self.calls = 1


@caught_by("report_is_true")
def reports_one_call(patch: Patch) -> None:
    @method(patch, "report")
    def _(old, self):
        report = old(self)
        return Report(report.backend, report.rule, tuple(replace(r, calls=1) for r in report.rows))
