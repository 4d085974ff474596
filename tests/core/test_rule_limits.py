"""What a rule may not do, and where it does not act."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import relurules
from relurules import Rule, spec

Bounds = tuple[float, float]
RELU, RELU6 = (0.0, math.inf), (0.0, 6.0)
RULES = {name: relurules.rule(name) for name in ("guided", "redirected_relu6")}


@pytest.mark.parametrize("bounds", [(-math.inf, 2.0), (-2.0, math.inf)])
def test_an_infinite_bound_is_no_bound(bounds: Bounds) -> None:
    x = np.array([-math.inf, math.inf])
    inside = [float(lo_or_hi == x_) for lo_or_hi, x_ in zip(bounds, x, strict=True)]
    assert spec.standard(x, np.ones(2), bounds=bounds).tolist() == inside


def test_a_rule_for_one_kind_leaves_the_others_standard() -> None:
    x, g = np.array([[-1.0, -2.0, 7.0]]), np.array([[-1.0, 1.0, 1.0]])
    for bounds in (RELU, (-1.0, 1.0)):
        out = spec.evaluate(RULES["redirected_relu6"], x, g, bounds=bounds)
        assert out.tolist() == spec.standard(x, g, bounds=bounds).tolist()
        assert out.tolist() == spec.redirected_relu6(x, g, bounds=bounds).tolist()
    assert spec.evaluate(RULES["redirected_relu6"], x, g, bounds=RELU6).tolist() == [[-1, 0, 1]]


def test_an_unknown_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="gradient_of must be 'score', 'loss' or None"):
        spec.evaluate(RULES["guided"], [1.0], [1.0], gradient_of="scores")  # type: ignore[arg-type]


def test_an_impure_rule_cannot_change_its_arguments() -> None:
    def impure(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
        g *= 2
        return g

    g = np.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        spec.evaluate(Rule(name="impure", fn=impure), g, g)
    assert g.tolist() == [1, 1, 1]


def test_a_rule_that_changes_the_shape_is_refused() -> None:
    rule = Rule(name="total", fn=lambda x, g, *, bounds, xp: g.sum())
    with pytest.raises(relurules.InvalidRuleError, match=r"'total' returned float64 of shape \(\)"):
        spec.evaluate(rule, np.ones(3), np.ones(3))


def test_a_rule_that_changes_the_dtype_is_refused() -> None:
    rule = Rule(name="wide", fn=lambda x, g, *, bounds, xp: g.astype(np.float64))
    g = np.ones(3, np.float32)
    with pytest.raises(relurules.InvalidRuleError, match="'wide' returned float64"):
        spec.evaluate(rule, g, g)
