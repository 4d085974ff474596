"""A rule is written once: its function must run on any array namespace, and change nothing.

array_api_strict knows the standard and nothing else, so a rule that leans on a habit of
NumPy fails here, before a framework meets it.
"""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import oracle
import pytest
from oracle import BOUNDS, Array, Bounds

from relurules import _library
from relurules._rule import Rule, kind_of
from relurules.errors import InvalidRuleError, RelurulesError

FOLLOWERS = [rule.after for rule in _library.BUILTIN if rule.after is not None]
RULES = [*_library.BUILTIN, *FOLLOWERS]
NAMESPACES = [np, array_api_strict]


def called(rule: Rule, x: Any, g: Any, bounds: Bounds, xp: Any, batch_axis: int | None) -> Any:
    extra = {"batch_axis": batch_axis} if rule.scope == "sample" else {}
    with np.errstate(invalid="ignore"):
        return rule.fn(x, g, bounds=bounds, xp=xp, **extra)


def held(x: Array, bounds: Bounds) -> Bounds:
    """Return the bounds as Python floats, rounded to the dtype of x."""
    return (oracle.rounded(bounds[0], x.dtype), oracle.rounded(bounds[1], x.dtype))


@pytest.mark.parametrize("batch_axis", [0, 1, -1, None])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_same_bits_in_every_namespace(
    rule: Rule, dtype: str, bounds: Bounds, batch_axis: int | None
) -> None:
    x, g = oracle.drawn(oracle.DTYPES[dtype], bounds, seed=5)
    outs = [
        np.array(called(rule, xp.asarray(x), xp.asarray(g), held(x, bounds), xp, batch_axis))
        for xp in NAMESPACES
    ]
    assert outs[0].dtype == g.dtype
    assert np.array_equal(*map(oracle.bits, outs))


@pytest.mark.parametrize("xp", NAMESPACES, ids=lambda xp: xp.__name__)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_inputs_are_only_read(rule: Rule, xp: Any) -> None:
    x, g = (xp.asarray(a) for a in oracle.drawn(oracle.DTYPES["float32"], BOUNDS[1], seed=6))
    before = np.asarray(x).tobytes(), np.asarray(g).tobytes()
    called(rule, x, g, BOUNDS[1], xp, 0)
    assert (np.asarray(x).tobytes(), np.asarray(g).tobytes()) == before


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (2, 1, 3)])
@pytest.mark.parametrize("xp", NAMESPACES, ids=lambda xp: xp.__name__)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_shape_is_that_of_g(rule: Rule, xp: Any, shape: tuple[int, ...]) -> None:
    x = xp.ones(shape, dtype=xp.float32)
    assert called(rule, x, x, BOUNDS[0], xp, 0).shape == shape


# --- What a rule declares ------------------------------------------------------------------


def passing(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    return g


WRONG: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "spaces": {"name": "my rule"},
    "capitals": {"name": "Guided"},
    "leading digit": {"name": "6pack"},
    "name is no text": {"name": None},
    "fn is no function": {"fn": "guided"},
    "unknown gradient": {"gradient_of": "logit"},
    "unknown scope": {"scope": "batch"},
    "no kinds": {"kinds": frozenset()},
    "unknown kind": {"kinds": frozenset({"relu", "gelu"})},
    "after is a name": {"after": "standard"},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=list(WRONG))
def test_contradictory_declarations(fields: dict[str, Any]) -> None:
    declared: dict[str, Any] = {"name": "mine", "fn": passing} | fields
    with pytest.raises(InvalidRuleError) as raised:
        Rule(**declared)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, RelurulesError)
    assert repr(declared["name"]) in str(raised.value)


def test_then_is_checked_too() -> None:
    with pytest.raises(InvalidRuleError, match="after"):
        Rule(name="mine", fn=passing).then("guided")  # type: ignore[arg-type]


def test_a_rule_is_a_value() -> None:
    rule = Rule(name="mine", fn=passing)
    assert rule == Rule(name="mine", fn=passing)
    assert hash(rule) == hash(Rule(name="mine", fn=passing))
    with pytest.raises(AttributeError):
        rule.name = "yours"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Rule("mine", passing)  # type: ignore[call-arg]


def test_defaults_are_those_of_an_elementwise_filter() -> None:
    rule = Rule(name="mine", fn=passing)
    assert (rule.gradient_of, rule.scope, rule.kinds, rule.after) == (None, "element", None, None)
    assert rule.is_filter


@pytest.mark.parametrize("bounds", [*BOUNDS, (0, 6), (0.0, 6.5), (0, 5), (-1, 6)], ids=str)
def test_bounds_decide_the_kind(bounds: Bounds) -> None:
    assert kind_of(bounds) == oracle.kind(bounds)


def test_names_and_aliases_are_unique() -> None:
    names = [name for rule in _library.BUILTIN for name in (rule.name, *rule.aliases)]
    assert len(names) == len(set(names))


def test_every_rule_names_its_source() -> None:
    assert all(rule.source and rule.summary for rule in RULES)
