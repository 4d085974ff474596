"""Rule by rule, dtype by dtype, mode by mode: the same bits as the specification."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from relurules._rule import Bounds, GradientOf, Rule, kind_of
from relurules._schedule import until
from relurules.testing._check import Setting
from relurules.testing._few import few, few_at, place_of
from relurules.testing._trial import Trial, compare
from relurules.testing._values import (
    RELU,
    SIZES,
    bounds_for,
    grid,
    layouts,
    mixed,
    sweep,
)

_LAST_STEP = 16
_COMPILED_DRAWS = 2
_KINDS = 4  # of draws, where each kind is compiled
_STEPS = (0, _LAST_STEP, _LAST_STEP + 1)
_SIGNS: tuple[GradientOf | None, ...] = (None, "score", "loss")

T = TypeVar("T")
_EMPTY = ((0, 3), (3, 0), (2, 0, 4), (0, 0))


def special_grid(at: Setting) -> int:
    """Compare every pair of special values, beside live and dead neighbours, at each bounds."""
    x, g = grid(at.dtype)
    return sum(
        compare(at.case, Trial(rule=at.rule, x=x, g=g, bounds=bounds, mode=at.mode))
        for bounds in _grid_bounds(at)
    )


def _grid_bounds(at: Setting) -> Sequence[Bounds]:
    chosen = bounds_for(at.rule)
    if at.mode == "eager":
        return chosen
    if at.mode == "compiled":  # and each is compiled anew
        chosen = tuple(dict.fromkeys((chosen[0], chosen[-1])))
    return few_at(chosen, at)


def other_sign(at: Setting) -> int:
    """Compare `-rule(x, -g)`, for who differentiates what the rule is not written for."""
    x, g = grid(at.dtype)
    trial = Trial(
        rule=at.rule,
        x=x,
        g=g,
        bounds=bounds_for(at.rule)[-1],
        mode=at.mode,
        gradient_of="score" if at.rule.gradient_of == "loss" else "loss",
    )
    return compare(at.case, trial)


def every_16_bit_pattern(at: Setting) -> int:
    """Compare every x with each special g and every g with each special x."""
    (x, g), bounds = sweep(at.dtype), bounds_for(at.rule)[-1]
    return compare(at.case, Trial(rule=at.rule, x=x, g=g, bounds=bounds, mode=at.mode))


def mixed_draws(at: Setting) -> int:
    """Compare random samples, half of them dead, over axes, signs and steps."""
    return sum(compare(at.case, trial) for trial in _draws(at))


def _draws(at: Setting) -> Iterator[Trial]:
    start, draws = at.profile.seed or 0, at.profile.draws
    if at.mode == "compiled":
        draws = _COMPILED_DRAWS
    seeds = range(start, start + draws)
    kinds = few(seeds, at.case, *place_of(at), every=draws // _KINDS)
    return (_draw(at, seed, kind=kind) for seed, kind in zip(seeds, itertools.cycle(kinds)))


def _draw(at: Setting, seed: int, *, kind: int) -> Trial:
    axes: Sequence[int | None] = (0,) if at.mode == "vmap" else (0, 1, -1, None)
    random = np.random.default_rng(kind)
    bounds, batch_axis = _one(random, bounds_for(at.rule)), _one(random, axes)
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
        gradient_of=_one(random, _SIGNS),
        schedule=until(_LAST_STEP),
        step=_one(random, _STEPS),
    )


def _one(random: np.random.Generator, options: Sequence[T]) -> T:
    return options[int(random.integers(len(options)))]


def sizes(at: Setting) -> int:
    """Compare vectors of lengths around those of registers, as one sample each."""
    rule = at.rule
    bounds = bounds_for(rule)[0]
    drawn = (mixed(at.dtype, bounds, size, shape=(size,)) for size in few_at(SIZES, at))
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds, batch_axis=None))
        for x, g in drawn
    )


def memory_layouts(at: Setting) -> int:
    """Compare arrays that are strided, permuted, reversed or expanded."""
    rule = at.rule
    bounds = bounds_for(rule)[-1]
    pair = mixed(at.dtype, bounds, 1, shape=(4, 5, 3, 5))  # transposed it has this shape too
    return sum(
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds), note=f", {name}")
        for name, x, g in layouts(pair)
    )


def empty_arrays(at: Setting) -> int:
    """Compare arrays of no elements, which come back empty and raise nothing."""
    rule = at.rule
    for shape in few_at(_EMPTY, at):
        x, g = mixed(at.dtype, RELU, 0, shape=shape)
        compare(at.case, Trial(rule=rule, x=x, g=g, bounds=bounds_for(rule)[0]))
    return 0


def spelling(at: Setting) -> int:
    """Compare an activation written in another way: its value and every rule's gradient."""
    bounds = at.case.spellings[at.spelling]
    rules = [rule for rule in at.rules if rule.takes(kind_of(bounds))]
    return sum(_spelled(at, rule) for rule in rules)


def _spelled(at: Setting, rule: Rule) -> int:
    bounds = at.case.spellings[at.spelling]
    x, g = mixed(at.dtype, bounds, 3)
    trial = Trial(rule=rule, x=x, g=g, bounds=bounds)
    model = at.case.spelled(at.spelling)
    return compare(at.case, trial, model=model, note=f", written as {at.spelling}")
