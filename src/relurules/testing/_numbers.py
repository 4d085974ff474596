"""Rule by rule, dtype by dtype, mode by mode: the same bits as the specification."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import get_args

import numpy as np

from relurules._rule import Bounds, GradientOf, Rule, kind_of
from relurules._schedule import until
from relurules.testing._bits import assert_same
from relurules.testing._check import Setting
from relurules.testing._trial import Trial, assert_right, compare, run
from relurules.testing._values import (
    RELU,
    SIZES,
    bounds_for,
    grids,
    layouts,
    mixed,
    sweeps,
)

_LAST_STEP = 16
_STEPS = (0, _LAST_STEP, _LAST_STEP + 1)
_EMPTY = ((0, 3), (3, 0), (2, 0, 4), (0, 0))


def special_grid(at: Setting) -> int:
    """Compare every pair of special values, alone and beside live and dead neighbours."""
    rule = at.rule
    pairs = itertools.product(bounds_for(rule), grids(at.dtype))
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds, mode=at.mode))
        for bounds, (x, g) in pairs
    )


def other_sign(at: Setting) -> int:
    """Compare `-rule(x, -g)`, for who differentiates what the rule is not written for."""
    rule = at.rule
    bounds = bounds_for(rule)[-1]
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds, mode=at.mode, gradient_of=sign))
        for sign, (x, g) in itertools.product(get_args(GradientOf), grids(at.dtype))
    )


def every_16_bit_pattern(at: Setting) -> int:
    """Compare every x with each special g and every g with each special x."""
    rule = at.rule
    bounds = bounds_for(rule)[-1]
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds, mode=at.mode))
        for x, g in sweeps(at.dtype)
    )


def mixed_draws(at: Setting) -> int:
    """Compare random samples, half of them dead, over axes, signs and steps."""
    return sum(compare(at.case, trial) for trial in _draws(at))


def _draws(at: Setting) -> Iterator[Trial]:
    start = at.profile.seed
    return (_draw(at, seed) for seed in range(start, start + at.profile.draws))


def _draw(at: Setting, seed: int) -> Trial:
    axes = (0,) if at.mode == "vmap" else (0, 1, -1, None)
    random = np.random.default_rng(seed)
    bounds, batch_axis, step, sign = (
        options[random.integers(len(options))]
        for options in (bounds_for(at.rule), axes, _STEPS, (None, *get_args(GradientOf)))
    )
    x, g = mixed(at.dtype, bounds, seed)
    if batch_axis:
        x, g = np.moveaxis(x, 0, batch_axis), np.moveaxis(g, 0, batch_axis)
    return Trial(
        rule=at.rule,
        x=np.ascontiguousarray(x),
        g=np.ascontiguousarray(g),
        bounds=bounds,
        mode=at.mode,
        batch_axis=batch_axis,
        gradient_of=sign,
        schedule=until(_LAST_STEP),
        step=step,
    )


def sizes(at: Setting) -> int:
    """Compare vectors of lengths around those of registers, as one sample each."""
    rule = at.rule
    bounds = bounds_for(rule)[0]
    drawn = (mixed(at.dtype, bounds, size, shape=(size,)) for size in SIZES)
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds, batch_axis=None))
        for x, g in drawn
    )


def memory_layouts(at: Setting) -> int:
    """Compare arrays that are strided, permuted, reversed or expanded."""
    rule = at.rule
    bounds = bounds_for(rule)[-1]
    pair = mixed(at.dtype, bounds, 1, shape=(4, 3, 5, 6))
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds), note=f", {name}")
        for name, x, g in layouts(pair)
    )


def empty_arrays(at: Setting) -> int:
    """Compare arrays of no elements, which come back empty and raise nothing."""
    rule = at.rule
    for shape in _EMPTY:
        x, g = mixed(at.dtype, RELU, 0, shape=shape)
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds_for(rule)[0]))
    return 0


def forward_value(at: Setting) -> int:
    """Compare the model's value under a rule with its own, bit for bit."""
    rule = at.rule
    return sum(_forward(at, rule, bounds) for bounds in bounds_for(rule))


def _forward(at: Setting, rule: Rule, bounds: Bounds) -> int:
    x, g = next(grids(at.dtype))
    trial = Trial(rule=rule, x=x, g=g, bounds=bounds, mode=at.mode)
    own, _ = at.case.pullback(at.case.model(bounds), x, mode=at.mode)
    ruled, _ = run(at.case, trial)
    return assert_same(ruled, own, x=x, g=g, what=f"the forward value under {trial}")


def spelling(at: Setting) -> int:
    """Compare an activation written in another way: its value and every rule's gradient."""
    bounds = at.case.spellings[at.spelling]
    rules = [rule for rule in at.rules if rule.takes(kind_of(bounds))]
    return sum(_spelled(at, rule) for rule in rules)


def _spelled(at: Setting, rule: Rule) -> int:
    bounds, model = at.case.spellings[at.spelling], at.case.spelled(at.spelling)
    x, g = mixed(at.dtype, bounds, 3)
    trial = Trial(rule=rule, x=x, g=g, bounds=bounds)
    note = f", written as {at.spelling}"
    own, _ = at.case.pullback(model, x, mode="eager")
    y, dx = run(at.case, trial, model=model)
    assert_same(y, own, x=x, g=g, what=f"the forward value under {trial}{note}")
    return assert_right(dx, trial, note=note)
