"""Rules that are wrong on purpose, each of which the comparison with the oracle must notice.

A test suite that passes shows that it passes; this shows that it can fail. Each mutant is a
mistake that somebody has made, in a published tool or in a draft of this one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from oracle import BOUNDS, DTYPES, Array, Bounds, Case

from relurules import _library, spec
from relurules._rule import Rule
from relurules._schedule import Schedule, Until

RULES = {rule.name: rule for rule in _library.BUILTIN}


def select(blocked: Any, g: Any) -> Any:
    return np.where(blocked, np.zeros_like(g), g)


def axes(x: Array, batch_axis: int | None) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if batch_axis is None or i != batch_axis % x.ndim)


def redirect(
    x: Any,
    g: Any,
    lo: Any,
    hi: Any,
    batch_axis: Any,
    *,
    gate: Callable[..., Any] = lambda x, lo, hi: (x < lo) | (x > hi),
    nonzero: Callable[..., Any] = lambda passed: passed != 0,
    quantifier: Callable[..., Any] = np.any,
    reduced: Callable[..., Any] = axes,
    away: Callable[..., Any] = lambda x, g, lo, hi: ((x < lo) & (g > 0)) | ((x > hi) & (g < 0)),
) -> Any:
    """Redirect dead samples, with a place for each mistake."""
    blocked = gate(x, lo, hi)
    alive = nonzero(select(blocked, g))
    live = quantifier(alive, axis=reduced(x, batch_axis), keepdims=True)
    return select((live & blocked) | (~live & away(x, g, lo, hi)), g)


def tiny(a: Array) -> Any:
    """Return the largest subnormal, below which a processor that flushes sees zero."""
    return np.array(oracle.smallest_normal(a.dtype) * (1 - 1e-4)).astype(a.dtype)


def gate(x: Any, lo: Any, hi: Any) -> Any:
    return (x <= lo) | (x >= hi)


def scaled(g: Array, slope: float = 0.1) -> Array:
    return g * g.dtype.type(slope)


BLOCKS: dict[str, dict[str, Callable[[Any, Any, Any, Any], Any]]] = {
    "standard": {
        "nothing": lambda x, g, lo, hi: x != x,
        "passes x = lo": lambda x, g, lo, hi: (x < lo) | (x >= hi),
        "passes x = hi": lambda x, g, lo, hi: (x <= lo) | (x > hi),
        "ignores lo": lambda x, g, lo, hi: x >= hi,
        "ignores hi": lambda x, g, lo, hi: x <= lo,
        "takes lo for 0": lambda x, g, lo, hi: gate(x, 0, hi),
        "takes hi for 6": lambda x, g, lo, hi: gate(x, lo, 6),
        "blocks NaN x": lambda x, g, lo, hi: ~((x > lo) & (x < hi)),
        "blocks NaN g": lambda x, g, lo, hi: gate(x, lo, hi) | (g != g),
        "flushes x": lambda x, g, lo, hi: gate(np.where(abs(x) <= tiny(x), 0 * x, x), lo, hi),
        "looks at g": lambda x, g, lo, hi: gate(x, lo, hi) & (g != 0),
        "takes g for x": lambda x, g, lo, hi: gate(g, lo, hi),
    },
    "deconv": {
        "passes -0.0": lambda x, g, lo, hi: g < 0,
        "blocks NaN": lambda x, g, lo, hi: ~(g > 0),
        "flushes g": lambda x, g, lo, hi: g <= tiny(g),
        "other sign": lambda x, g, lo, hi: g >= 0,
        "looks at x": lambda x, g, lo, hi: (g <= 0) | (x < lo),
    },
    "guided": {
        "is deconv": lambda x, g, lo, hi: g <= 0,
        "is standard": lambda x, g, lo, hi: gate(x, lo, hi),
        "and for or": lambda x, g, lo, hi: gate(x, lo, hi) & (g <= 0),
        "passes x = lo": lambda x, g, lo, hi: (x < lo) | (x >= hi) | (g <= 0),
        "passes x = hi": lambda x, g, lo, hi: (x <= lo) | (x > hi) | (g <= 0),
        "passes -0.0": lambda x, g, lo, hi: gate(x, lo, hi) | (g < 0),
        "blocks NaN x": lambda x, g, lo, hi: ~((x > lo) & (x < hi)) | (g <= 0),
        "blocks NaN g": lambda x, g, lo, hi: gate(x, lo, hi) | ~(g > 0),
        "other sign": lambda x, g, lo, hi: gate(x, lo, hi) | (g >= 0),
    },
    "identity": {"blocks NaN": lambda x, g, lo, hi: g != g},
}

COMPUTES: dict[str, dict[str, Callable[[Any, Any, Any, Any], Any]]] = {
    "standard": {
        "product for where": lambda x, g, lo, hi: g * (~gate(x, lo, hi)).astype(g.dtype),
        "blocked is -0.0": lambda x, g, lo, hi: np.where(gate(x, lo, hi), -np.zeros_like(g), g),
        "blocked is a copy": lambda x, g, lo, hi: np.where(gate(x, lo, hi), g - g, g),
        "loses -0.0": lambda x, g, lo, hi: select(gate(x, lo, hi), g) + np.zeros_like(g),
        "loses NaN": lambda x, g, lo, hi: select(gate(x, lo, hi), np.where(g != g, 0 * x, g)),
        "minus g": lambda x, g, lo, hi: select(gate(x, lo, hi), -g),
        "mask only": lambda x, g, lo, hi: (~gate(x, lo, hi)).astype(g.dtype),
    },
    "guided": {
        "product for where": lambda x, g, lo, hi: (
            select(g <= 0, g) * (~gate(x, lo, hi)).astype(g.dtype)
        ),
        "relu(g) * a": lambda x, g, lo, hi: select(g <= 0, g) * np.clip(x, lo, hi),
    },
    "deconv": {
        "product for where": lambda x, g, lo, hi: g * (~(g <= 0)).astype(g.dtype),
        "relu keeps -0.0": lambda x, g, lo, hi: np.where(g == 0, g, select(g <= 0, g)),
    },
    "leaky": {
        "scales x = lo": lambda x, g, lo, hi: np.where(x <= lo, scaled(g), g),
        "scales above hi": lambda x, g, lo, hi: np.where((x < lo) | (x > hi), scaled(g), g),
        "scales g > 0 only": lambda x, g, lo, hi: np.where((x < lo) & (g > 0), scaled(g), g),
        "scales all": lambda x, g, lo, hi: scaled(g),
        "another slope": lambda x, g, lo, hi: np.where(x < lo, scaled(g, 0.11), g),
    },
    "identity": {"g + 0 x": lambda x, g, lo, hi: g + x * 0},
}

REDIRECTS: dict[str, dict[str, Callable[..., Any]]] = {
    "never redirects": {"away": lambda x, g, lo, hi: (x < lo) | (x > hi)},
    "always redirects": {"nonzero": lambda passed: passed != passed},
    "dead samples pass everything": {"away": lambda x, g, lo, hi: x != x},
    "other sign": {"away": lambda x, g, lo, hi: ((x < lo) & (g < 0)) | ((x > hi) & (g > 0))},
    "one sign": {"away": lambda x, g, lo, hi: ((x < lo) | (x > hi)) & (g > 0)},
    "ignores hi when dead": {"away": lambda x, g, lo, hi: (x < lo) & (g > 0)},
    "ignores x when dead": {"away": lambda x, g, lo, hi: g > 0},
    "product for signs": {"away": lambda x, g, lo, hi: ((x < lo) | (x > hi)) & (x * g < 0)},
    "x = lo is blocked": {"gate": lambda x, lo, hi: (x <= lo) | (x > hi)},
    "x = hi is blocked": {"gate": lambda x, lo, hi: (x < lo) | (x >= hi)},
    "NaN x is blocked": {"gate": lambda x, lo, hi: ~((x >= lo) & (x <= hi))},
    "only g > 0 is life": {"nonzero": lambda passed: passed > 0},
    "NaN is no life": {"nonzero": lambda passed: abs(passed) > 0},
    "subnormals are no life": {"nonzero": lambda passed: ~(abs(passed) <= tiny(passed))},
    "norm for any": {"nonzero": lambda passed: passed * passed > 0},
    "all for any": {"quantifier": np.all},
    "whole batch": {"reduced": lambda x, batch_axis: axes(x, None)},
    "axis 0 always": {"reduced": lambda x, batch_axis: axes(x, 0)},
    "last axis only": {"reduced": lambda x, batch_axis: (-1,)},
    "over the batch axis": {"reduced": lambda x, batch_axis: batch_axis},
    "element by element": {"reduced": lambda x, batch_axis: ()},
}


class Before(Until):
    """Active while step < last_step: one step short."""

    def active(self, step: Any, /) -> Any:
        return step < self.last_step


SCHEDULES: dict[str, tuple[Schedule | None, Rule]] = {
    "one step short": (Before(16), RULES["redirected"]),
    "one step more": (Until(17), RULES["redirected"]),
    "for ever": (None, RULES["redirected"]),
    "standard follows": (Until(16), RULES["redirected"].then(RULES["standard"])),
}


def candidate(rule: Rule, schedule: Schedule | None) -> oracle.Candidate:
    def evaluate(case: Case, bounds: Bounds) -> Array:
        options: dict[str, Any] = {
            "batch_axis": case.batch_axis,
            "schedule": schedule,
            "step": case.step,
        }
        with np.errstate(all="ignore"):
            return spec.evaluate(rule, case.x, case.g, bounds=bounds, **options)

    return evaluate


def noticed(rule: Rule, name: str, schedule: Schedule | None = None) -> bool:
    """Return whether some input tells `rule` from the oracle of rule `name`."""
    wrong = candidate(rule, schedule)
    sites = [bounds for bounds in BOUNDS if RULES[name].takes(oracle.kind(bounds))]
    trials = itertools.product(DTYPES, sites)
    return any(oracle.first_difference(wrong, name, *trial) for trial in trials)


def mutant(name: str, fn: Callable[..., Any]) -> Rule:
    """Return rule `name` with another function."""
    scope = RULES[name].scope

    def wrong(x: Any, g: Any, *, bounds: Bounds, xp: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return fn(x, g, *bounds, *options.values())

    return Rule(name="mutant", fn=wrong, scope=scope, after=RULES[name].after)


def mistakes(table: dict[str, dict[str, Any]]) -> list[Any]:
    rows = [(name, label) for name, labels in table.items() for label in labels]
    return [pytest.param(*row, id=": ".join(row)) for row in rows]


@pytest.mark.parametrize(("name", "mistake"), mistakes(BLOCKS))
def test_blocks_the_wrong_elements(name: str, mistake: str) -> None:
    blocks = BLOCKS[name][mistake]
    wrong = mutant(name, lambda x, g, lo, hi: select(blocks(x, g, lo, hi), g))
    assert noticed(wrong, name)


@pytest.mark.parametrize(("name", "mistake"), mistakes(COMPUTES))
def test_computes_the_wrong_value(name: str, mistake: str) -> None:
    assert noticed(mutant(name, COMPUTES[name][mistake]), name)


@pytest.mark.parametrize("name", ["redirected", "redirected_relu6"])
@pytest.mark.parametrize("mistake", REDIRECTS)
def test_redirects_the_wrong_sample(mistake: str, name: str) -> None:
    assert noticed(mutant(name, functools.partial(redirect, **REDIRECTS[mistake])), name, Until(16))


@pytest.mark.parametrize("mistake", SCHEDULES)
def test_ends_at_the_wrong_step(mistake: str) -> None:
    schedule, rule = SCHEDULES[mistake]
    assert noticed(rule, "redirected", schedule)


@pytest.mark.parametrize("name", RULES)
def test_the_rule_itself_is_not_noticed(name: str) -> None:
    assert not noticed(RULES[name], name, Until(16) if name.startswith("redirected") else None)


def test_the_scaffold_of_the_mutants_is_right() -> None:
    assert not noticed(mutant("redirected", redirect), "redirected", Until(16))
