"""One gradient through one rule, in a backend and in the specification.

Everything numeric that the kit asks is this question: the same rule, the same input, once by
`relurules.apply` on a real model and once by `relurules.spec`; are these the same bits?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import relurules
from relurules import spec
from relurules._rule import Bounds, GradientOf, Rule
from relurules._schedule import Schedule
from relurules.testing._bits import Array, assert_same
from relurules.testing._case import BackendCase, CompilingCase, Mode
from relurules.testing._values import RELU


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A rule, what it is run on, and how."""

    rule: Rule
    x: Array
    g: Array
    bounds: Bounds = RELU
    mode: Mode = "eager"
    batch_axis: int | None = 0
    gradient_of: GradientOf | None = None
    schedule: Schedule | None = None
    step: int = 0

    def __str__(self) -> str:
        options = {
            "bounds": self.bounds,
            "batch_axis": self.batch_axis,
            "gradient_of": self.gradient_of,
            "schedule": self.schedule,
            "step": self.step,
        }
        listed = ", ".join(f"{name}={value}" for name, value in options.items())
        return f"rule {self.rule.name}, {self.x.dtype}, mode {self.mode}, {listed}"


def run(case: BackendCase, trial: Trial, /, *, model: Any = None) -> tuple[Array, Array]:
    """Return the value and the gradient that the backend gives, of this model or a new one."""
    applied = relurules.apply(
        case.model(trial.bounds) if model is None else model,
        trial.rule,
        schedule=trial.schedule,
        gradient_of=trial.gradient_of,
        # Under vmap a model sees one sample at a time.
        batch_axis=None if trial.mode == "vmap" else trial.batch_axis,
        backend=case.name,
    )
    with applied as ruled, applied.at(trial.step):
        y, pull = case.pullback(ruled, trial.x, mode=trial.mode)
        return y, pull(trial.g)


def expected(trial: Trial, /) -> Array:
    """Return the gradient that the specification gives."""
    with np.errstate(all="ignore"):
        return spec.evaluate(
            trial.rule,
            trial.x,
            trial.g,
            bounds=trial.bounds,
            batch_axis=trial.batch_axis,
            gradient_of=trial.gradient_of,
            schedule=trial.schedule,
            step=trial.step,
        )


def compare(case: BackendCase, trial: Trial, /, *, model: Any = None, note: str = "") -> int:
    """Assert that value and gradient are right, and return how many pairs were compared.

    The value must have the bits of the model's own without a rule, and the gradient those of
    the specification; 1 ulp is allowed where the rule computes.

    Raises:
        AssertionError: One of them is not.
    """
    model = case.model(trial.bounds) if model is None else model
    own = _own_value(case, model, trial.x)
    y, dx = run(case, trial, model=model)
    where = f"{trial}{note}"
    assert_same(y, own, x=trial.x, g=trial.g, what=f"the forward value under {where}")
    ulps = 0 if trial.rule.is_filter else 1
    return assert_same(dx, expected(trial), x=trial.x, g=trial.g, what=where, ulps=ulps)


def _own_value(case: BackendCase, model: Any, x: Array) -> Array:
    if isinstance(case, CompilingCase):
        return case.value(model, x)
    return case.pullback(model, x, mode="eager")[0]
