"""The backend: a rule behind every activation of a toy model, until it is removed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from relurules.backend import STANDARD, Bounds, Plan, Report, Rule, Site, State, evaluate, judge
from relurules_example.tape import Forward, Model, Pullback, Tensor, interceptors


class ExampleBackend:
    """The backend for `relurules_example.tape.Model`."""

    name = "example"

    def attach(self, model: Model, plan: Plan, state: State, /) -> ExampleAttachment:
        """Put the plan's rules behind the model's activations."""
        return ExampleAttachment(model, plan, state)


class ExampleAttachment:
    """One rule behind one toy model."""

    hint = "Call the model inside the context, in the thread that applied the rule."

    def __init__(self, model: Model, plan: Plan, state: State) -> None:
        self.model = model
        self.calls = 0
        self._plan = plan
        self._state = state
        self._thread = threading.get_ident()
        self._met: Counter[Site] = Counter()
        model.wrappers.append(self._wrap)

    def report(self) -> Report:
        """Return what was reached and what was not, so far."""
        plan = self._plan
        rows = tuple(plan.row(site, plan.decide(site), n) for site, n in self._met.items())
        return Report("example", plan.rule_name, rows)

    def follow(self, optimizer: Any, _advance: Callable[[], None], /) -> None:
        """Refuse: the toy framework has no optimisers."""
        raise TypeError(f"The toy framework has no optimisers; got {type(optimizer).__name__}.")

    def remove(self) -> None:
        """Restore the model."""
        if self._wrap in self.model.wrappers:
            self.model.wrappers.remove(self._wrap)

    def _wrap(self, forward: Forward) -> Forward:
        """Return `forward` under the rule, or as it is where the rule does not hold."""
        if threading.get_ident() != self._thread or self._state.paused:
            return forward
        return partial(self._run, forward)

    def _run(self, forward: Forward, x: Tensor) -> Tensor:
        """Run the model so that each of its activations asks `_intercept` for its gradient."""
        self.calls += 1
        active = bool(self._plan.schedule.active(self._state.step))
        intercept = partial(self._intercept, Counter(), active)
        token = interceptors.set((*interceptors.get(), intercept))
        try:
            y = forward(x)
        finally:
            interceptors.reset(token)
        judge(self.report(), self._plan)
        return y

    def _intercept(
        self, seen: Counter[str], active: bool, op: str, x: Tensor, bounds: Bounds
    ) -> Pullback | None:
        """Return the pullback of the rule that this activation takes, or None."""
        seen[op] += 1
        site = Site(f"{op}_{seen[op]}", op, bounds)
        self._met[site] += 1
        if (rule := self._plan.decide(site).rule) is None:
            return None
        rule.check_rank(x.data.ndim, self._plan.batch_axis)
        return partial(self._pull, rule, x.data, bounds, active)

    def _pull(self, rule: Rule, x: Any, bounds: Bounds, active: bool, g: Any) -> Any:
        """Return the gradient that the rule lets pass."""
        lo, hi = (float(np.asarray(bound, x.dtype)) for bound in bounds)  # rounded as x is
        with np.errstate(invalid="ignore", over="ignore"):
            out = evaluate(
                rule,
                x,
                g,
                bounds=(lo, hi),
                xp=np,
                batch_axis=self._plan.batch_axis,
                gradient_of=self._plan.gradient_of,
                active=active,
                standard=STANDARD,
            )
        if (getattr(out, "shape", None), getattr(out, "dtype", None)) != (g.shape, g.dtype):
            raise TypeError(f"Rule {rule.name!r} must keep shape and dtype, {g.shape} {g.dtype}.")
        return out
