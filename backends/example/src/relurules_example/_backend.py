"""The backend: a rule behind every activation of a toy model, until it is removed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from relurules.backend import (
    STANDARD,
    Bounds,
    Decision,
    Plan,
    Report,
    Row,
    Rule,
    Site,
    State,
    evaluate,
    judge,
)

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
        self._decisions: dict[Site, Decision] = {}
        self._counts: Counter[Site] = Counter()
        model.wrappers.append(self._wrap)

    def report(self) -> Report:
        """Return what was reached and what was not, so far."""
        rows = (self._plan.row(s, d, self._counts[s]) for s, d in self._decisions.items())
        return Report("example", self._plan.rule_name, tuple(rows))

    def follow(self, optimizer: Any, advance: Callable[[], None], /) -> None:
        """Refuse: the toy framework has no optimisers."""
        raise TypeError(f"The toy framework has no optimisers; got {type(optimizer).__name__}.")

    def remove(self) -> None:
        """Restore the model."""
        if self._wrap in self.model.wrappers:
            self.model.wrappers.remove(self._wrap)

    def _wrap(self, forward: Forward) -> Forward:
        """Return `forward` inside the rule, or as it is where the rule does not hold."""
        if threading.get_ident() != self._thread:
            return forward
        return lambda x: self._run(forward, x)

    def _run(self, forward: Forward, x: Tensor) -> Tensor:
        self.calls += 1
        if self._state.paused:
            return forward(x)
        intercept = _Interceptor(self._decide, self._plan, self._state)
        token = interceptors.set((*interceptors.get(), intercept))
        try:
            y = forward(x)
        finally:
            interceptors.reset(token)
        judge(self.report(), self._plan)
        return y

    def _decide(self, site: Site) -> Rule | None:
        decision = self._decisions.setdefault(site, self._plan.decide(site))
        self._counts[site] += 1
        return decision.rule


class _Interceptor:
    """What one run of a model asks at each activation; it numbers those of one operation."""

    def __init__(self, decide: Callable[[Site], Rule | None], plan: Plan, state: State) -> None:
        self._decide = decide
        self._plan = plan
        self._active = plan.schedule.active(state.step)
        self._seen: Counter[str] = Counter()

    def __call__(self, op: str, x: Tensor, bounds: Bounds) -> Pullback | None:
        """Return the pullback of the rule that this activation takes, or None."""
        name = f"{op}_{self._seen[op]}" if self._seen[op] else op
        self._seen[op] += 1
        rule = self._decide(Site(name, op, bounds))
        if rule is None:
            return None
        rule.check_rank(x.data.ndim, self._plan.batch_axis)
        return lambda g: self._pull(rule, x.data, g, bounds)

    def _pull(self, rule: Rule, x: Any, g: Any, bounds: Bounds) -> Any:
        lo, hi = (np.asarray(bound, x.dtype)[()] for bound in bounds)
        with np.errstate(invalid="ignore", over="ignore"):
            out = evaluate(
                rule,
                x,
                g,
                bounds=(lo, hi),
                xp=np,
                batch_axis=self._plan.batch_axis,
                gradient_of=self._plan.gradient_of,
                active=self._active,
                standard=STANDARD,
            )
        if (getattr(out, "shape", None), getattr(out, "dtype", None)) != (g.shape, g.dtype):
            raise TypeError(f"Rule {rule.name!r} must keep shape and dtype of {g.shape} {g.dtype}.")
        return out
