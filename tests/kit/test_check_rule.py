"""A rule that nobody has seen: what `check_rule` asks of it, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import relurules
from relurules import Rule
from relurules.testing import ConformanceError, check_rule
from relurules_example import _backend

GATE = {"is_filter": False}
calls: list[int] = []


def gate(x: Any, bounds: Any) -> Any:
    return (x <= bounds[0]) | (x >= bounds[1])


def halved(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return xp.where(gate(x, bounds), xp.zeros_like(g), g * 0.5)


def in_place(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    g[g < 0] = 0
    return xp.where(gate(x, bounds), xp.zeros_like(g), g)


def counting(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    calls.append(1)
    return g if len(calls) % 2 else xp.zeros_like(g)


def widening(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return xp.where(gate(x, bounds), xp.zeros_like(g), g).astype("float64")


def flat(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return g.reshape(-1)


def clipping(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return xp.maximum(g, 0)


def a_numpy_method(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return xp.where(gate(x, bounds), xp.zeros_like(g), g.clip(-1, 1))


def scaling(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return g * 0.5


def by_batch(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
    return xp.where(xp.any(g > 0), g, xp.zeros_like(g))


def over_the_batch(x: Any, g: Any, *, bounds: Any, xp: Any, batch_axis: Any) -> Any:
    return by_batch(x, g, bounds=bounds, xp=xp)


@pytest.mark.parametrize("name", [one.name for one in relurules.rules() if one.item])
def test_installed_rules_pass(name: str) -> None:
    results = check_rule(name)
    assert {result.status for result in results} == {"passed"}
    assert any(result.id.startswith("example:special_grid") for result in results)


def test_a_rule_of_ones_own_passes() -> None:
    assert {r.status for r in check_rule(Rule(name="halved", fn=halved, **GATE))} == {"passed"}


@pytest.mark.parametrize(
    ("check", "rule"),
    [
        ("rule_is_pure", Rule(name="in_place", fn=in_place)),
        ("rule_is_pure", Rule(name="counting", fn=counting)),
        ("rule_keeps_shape_and_dtype", Rule(name="widening", fn=widening)),
        ("rule_keeps_shape_and_dtype", Rule(name="flat", fn=flat, **GATE)),
        ("rule_uses_the_subset", Rule(name="clipping", fn=clipping, **GATE)),
        ("rule_uses_the_subset", Rule(name="a_numpy_method", fn=a_numpy_method, **GATE)),
        ("rule_filters", Rule(name="scaling", fn=scaling)),
        ("rule_keeps_its_scope", Rule(name="by_batch", fn=by_batch)),
        ("rule_keeps_its_scope", Rule(name="over_the_batch", fn=over_the_batch, scope="sample")),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_wrong_rule_is_caught(check: str, rule: Rule) -> None:
    results = check_rule(rule, backends=(), on_fail=None)
    assert check in {result.check for result in results if result.status == "failed"}


def test_a_backend_that_differs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule(name="halved", fn=halved, is_filter=False)
    monkeypatch.setattr(_backend, "evaluate", lambda rule, x, g, **_: g)
    with pytest.raises(ConformanceError, match=r"^example:special_grid\[halved-float16-eager\]"):
        check_rule(rule, backends=["example"])


def test_names_are_looked_up() -> None:
    with pytest.raises(relurules.UnknownRuleError, match="guided"):
        check_rule("guidde")
