"""The specification against the oracle, wherever rules have gone wrong before.

Ties, subnormals, infinities, NaN of both signs and dead samples decide whether two backends
agree, and random numbers meet none of them. So the values are chosen, the 16-bit dtypes are
tried in full, and every comparison is of bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from oracle import BOUNDS, DTYPES, RELU, RELU6, Array, Bounds, Case

from relurules import _library, spec
from relurules._rule import Rule
from relurules._schedule import Always, Schedule, Until, until

RULES = {rule.name: rule for rule in _library.BUILTIN}
PER_SAMPLE = ("redirected", "redirected_relu6")
SITES = [
    pytest.param(name, bounds, id=f"{name}-{bounds}")
    for name in RULES
    for bounds in BOUNDS
    if RULES[name].takes(oracle.kind(bounds))
]
EMPTY = [(0, 3), (3, 0), (0, 0, 2), (2, 3, 0, 1)]


def call(name: str, case: Case, bounds: Bounds) -> Array:
    """Call `spec.<name>` as a user does."""
    fn = getattr(spec, name)
    if name in PER_SAMPLE:
        return fn(case.x, case.g, case.step, batch_axis=case.batch_axis, bounds=bounds)
    return fn(case.x, case.g, bounds=bounds)


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


# --- Values ------------------------------------------------------------------------------


def test_every_rule_has_an_oracle() -> None:
    assert set(oracle.ORACLES) == set(RULES) == set(spec.__all__) - {"DTYPES", "evaluate"}
    assert set(DTYPES) == set(spec.DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "bounds"), SITES)
def test_equals_the_oracle(name: str, bounds: Bounds, dtype: str) -> None:
    def candidate(case: Case, bounds: Bounds) -> Array:
        return call(name, case, bounds)

    assert oracle.first_difference(candidate, name, dtype, bounds) == ""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("name", ["standard", "deconv", "guided", "identity"])
def test_every_16_bit_pattern(name: str, bounds: Bounds, dtype: str) -> None:
    for x, g in oracle.sweeps(DTYPES[dtype]):
        blocked = oracle.blocks(name, x, g, bounds)
        assert_filtered(getattr(spec, name)(x, g, bounds=bounds), g, blocked)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_every_16_bit_pattern_redirected(bounds: Bounds, dtype: str) -> None:
    for x, g in oracle.sweeps(DTYPES[dtype]):
        column, gradient = x.reshape(-1, 1), g.reshape(-1, 1)
        out = spec.redirected(column, gradient, bounds=bounds)
        assert_filtered(out, gradient, oracle.blocks("redirected", column, gradient, bounds))
        late = spec.redirected(column, gradient, 17, bounds=bounds)
        assert_filtered(late, gradient, oracle.outside(column, bounds))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("slope", [0.1, 0.5, 2.0, 0.0])
def test_every_16_bit_pattern_leaky(slope: float, dtype: str) -> None:
    g = oracle.every_pattern(DTYPES[dtype])
    out = spec.leaky(np.full_like(g, -1), g, slope=slope)
    with np.errstate(over="ignore", invalid="ignore"):
        product = g.astype(np.float64) * oracle.rounded(slope, g.dtype)
        assert oracle.same(out, product.astype(g.dtype), ulps=1)


def assert_filtered(out: Array, g: Array, blocked: Any) -> None:
    assert np.array_equal(oracle.bits(out), np.where(blocked, 0, oracle.bits(g)))


# --- Numbers from papers and from issue threads ------------------------------------------

TOY_X, TOY_G = [-1.0, 1.0, 2.0, -3.0], [1.0, -1.0, 2.0, 3.0]
KNOWN: dict[str, tuple[Callable[..., Array], Any, Any, Bounds, Any]] = {
    "Springenberg et al. 2014, gradient": (spec.standard, TOY_X, TOY_G, RELU, [0, -1, 2, 0]),
    "Springenberg et al. 2014, deconvnet": (spec.deconv, TOY_X, TOY_G, RELU, [1, 0, 2, 3]),
    "Springenberg et al. 2014, guided": (spec.guided, TOY_X, TOY_G, RELU, [0, 0, 2, 0]),
    "captum PR 521": (
        spec.redirected,
        [[-1.0, -2.0], [3.0, -2.0]],
        [[-1.0, -1.0], [1.0, -1.0]],
        RELU,
        [[-1, -1], [1, 0]],
    ),
    "insikk/Grad-CAM-tensorflow 10": (spec.guided, [-1.0, 3.0, 7.0], [1.0] * 3, RELU6, [0, 1, 0]),
    "captum PR 1843, inner ReLU": (spec.deconv, [-1.0], [1.0], RELU, [1]),
    "captum PR 1843, outer ReLU": (spec.deconv, [0.0], [1.0], RELU, [1]),
    "Lucid at x = 0": (spec.redirected, [[0.0, 1.0, -1.0]], [[5.0, 5.0, 5.0]], RELU, [[5, 5, 0]]),
    "Lucid relu6, dead above": (
        spec.redirected_relu6,
        [[7.0, 8.0]],
        [[2.0, -2.0]],
        RELU6,
        [[2, 0]],
    ),
    "Lucid relu6, dead below": (
        spec.redirected_relu6,
        [[-1.0, -2.0]],
        [[2.0, -2.0]],
        RELU6,
        [[0, -2]],
    ),
    "Lucid relu6 at 0 and 6": (
        spec.redirected_relu6,
        [[0.0, 6.0]],
        [[3.0, -3.0]],
        RELU6,
        [[3, -3]],
    ),
    "frameworks' relu6 at 0 and 6": (spec.standard, [0.0, 6.0], [3.0, -3.0], RELU6, [0, 0]),
    "grad-cam, -inf at a blocked unit": (spec.guided, [-1.0], [-math.inf], RELU, [0]),
    "Lucent, 0.1 below zero": (spec.leaky, [-1.0, 0.0, 2.0], [10.0, 10.0, 10.0], RELU, [1, 10, 10]),
    "open ReLU": (spec.identity, TOY_X, TOY_G, RELU, TOY_G),
}


@pytest.mark.parametrize("source", KNOWN)
def test_known_numbers(source: str) -> None:
    fn, x, g, bounds, right = KNOWN[source]
    assert oracle.same(fn(x, g, bounds=bounds), np.array(right, float))


def test_default_bounds() -> None:
    x, g = [[7.0, 7.0]], [[1.0, -1.0]]
    assert spec.redirected(x, g).tolist() == [[1, -1]]
    assert spec.redirected_relu6(x, g).tolist() == [[1, 0]]
    assert spec.standard(x, g).tolist() == [[1, -1]]


@pytest.mark.parametrize("scalar", [float, np.float64])
@pytest.mark.parametrize("edge", [0.1, 0.3])
def test_bounds_are_rounded_to_the_dtype(edge: float, scalar: Callable[[float], float]) -> None:
    # float16(0.1) is below 0.1 and float16(0.3) above 0.3: unrounded bounds are no ties.
    x, g = np.array([[edge]], np.float16), ones(1, 1, dtype=np.float16)
    bounds = (-1.0, scalar(edge))
    assert spec.standard(x, g, bounds=bounds).tolist() == [[0]]
    assert spec.guided(x, g, bounds=bounds).tolist() == [[0]]
    assert spec.redirected(x, -g, 17, bounds=bounds).tolist() == [[-1]]
    assert spec.leaky(x, g, bounds=(scalar(edge), 1.0)).tolist() == [[1]]


# --- When and in which sign ---------------------------------------------------------------


@pytest.mark.parametrize(("step", "active"), [(0, True), (16, True), (17, False), (10**9, False)])
def test_until_16_is_active_for_17_steps(step: int, active: bool) -> None:
    assert until(16).active(step) is active
    out = spec.redirected([[-1.0, -2.0]], [[-1.0, 1.0]], step)
    assert out.tolist() == [[-1, 0] if active else [0, 0]]


@pytest.mark.parametrize(("step", "right"), [(3, -1), (4, 0)])
def test_last_step(step: int, right: int) -> None:
    assert spec.redirected([[-1.0]], [[-1.0]], step, 3).tolist() == [[right]]


def test_always_and_the_protocol() -> None:
    assert Always().active(10**9) is True
    assert isinstance(Always(), Schedule)
    assert isinstance(until(1), Schedule)
    assert until(1) == Until(1)


@pytest.mark.parametrize("last_step", [1.0, "16", None, True])
def test_until_takes_an_int(last_step: Any) -> None:
    with pytest.raises(TypeError, match="int"):
        until(last_step)


def test_until_counts_from_zero() -> None:
    with pytest.raises(ValueError, match="0"):
        until(-1)


@pytest.mark.parametrize("name", RULES)
def test_standard_follows_but_redirected_keeps_its_boundaries(name: str) -> None:
    case = Case(*oracle.pairs(DTYPES["float32"]))
    out = spec.evaluate(RULES[name], case.x, case.g, bounds=RELU6, schedule=until(2), step=3)
    follower = name if name in PER_SAMPLE else "standard"
    assert oracle.same(out, oracle.run(follower, case.x, case.g, bounds=RELU6, step=17))


def test_then_names_what_follows() -> None:
    rule = RULES["redirected"].then(RULES["deconv"])
    x, g = [[-1.0, 1.0]], [[2.0, -2.0]]
    assert spec.evaluate(rule, x, g, schedule=until(0), step=0).tolist() == [[0, -2]]
    assert spec.evaluate(rule, x, g, schedule=until(0), step=1).tolist() == [[2, 0]]
    assert RULES["redirected"].after is not RULES["deconv"]


CONVENTIONS = {
    "standard": None,
    "deconv": "score",
    "guided": "score",
    "redirected": "loss",
    "redirected_relu6": "loss",
    "leaky": None,
    "identity": None,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gradient_of", [None, "score", "loss"])
@pytest.mark.parametrize("name", RULES)
def test_the_sign_of_g(name: str, gradient_of: Any, dtype: str) -> None:
    x, g = oracle.drawn(DTYPES[dtype], RELU6, seed=7)
    out = spec.evaluate(RULES[name], x, g, bounds=RELU6, gradient_of=gradient_of)
    right = oracle.run(name, x, g, bounds=RELU6)
    if {gradient_of, CONVENTIONS[name]} == {"score", "loss"}:
        right = oracle.negated(oracle.run(name, x, oracle.negated(g), bounds=RELU6))
    assert oracle.same(out, right, ulps=name == "leaky")


def test_conventions_are_declared() -> None:
    assert {name: rule.gradient_of for name, rule in RULES.items()} == CONVENTIONS
    assert [name for name, rule in RULES.items() if rule.scope == "sample"] == [*PER_SAMPLE]
    assert [name for name, rule in RULES.items() if not rule.is_filter] == ["leaky"]
    assert RULES["redirected_relu6"].kinds == {"relu6"}


# --- What goes in and comes out -----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("name", RULES)
def test_empty(name: str, shape: tuple[int, ...], dtype: str) -> None:
    empty = np.empty(shape, DTYPES[dtype])
    out = getattr(spec, name)(empty, empty)
    assert (out.shape, out.dtype) == (shape, empty.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_inputs_are_only_read(name: str, dtype: str) -> None:
    x, g = oracle.drawn(DTYPES[dtype], RELU, seed=3)
    before = x.tobytes(), g.tobytes()
    out = getattr(spec, name)(x, g)
    assert (x.tobytes(), g.tobytes()) == before
    assert not np.shares_memory(out, x)
    assert not np.shares_memory(out, g)
    out[...] = 0
    x.flags.writeable = g.flags.writeable = False
    assert getattr(spec, name)(x, g).shape == out.shape


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("name", PER_SAMPLE)
def test_one_sample_has_any_rank(name: str, rank: int) -> None:
    x, g = -ones(*[2] * rank), -ones(*[2] * rank)
    assert oracle.same(getattr(spec, name)(x, g, batch_axis=None), g)


@pytest.mark.parametrize("name", [name for name in RULES if name not in PER_SAMPLE])
def test_elementwise_rules_take_any_rank(name: str) -> None:
    assert getattr(spec, name)(2.0, 3.0).tolist() == 3.0
    assert getattr(spec, name)([2.0], [3.0]).tolist() == [3.0]


def test_byte_order_is_kept() -> None:
    swapped = np.array([-1.0, 2.0], ">f4")
    out = spec.standard(swapped, swapped)
    assert out.dtype == swapped.dtype
    assert out.tolist() == [0, 2]


@pytest.mark.parametrize("name", RULES)
def test_quiet_whatever_numpy_is_told(name: str) -> None:
    for dtype in DTYPES.values():
        x, g = oracle.pairs(dtype)
        with np.errstate(all="raise"):
            assert getattr(spec, name)(x, g).shape == g.shape


# --- Errors --------------------------------------------------------------------------------

WRONG_DTYPES = [
    np.int32,
    np.uint8,
    np.int64,
    bool,
    np.complex64,
    np.complex128,
    np.longdouble,
    object,
]


@pytest.mark.parametrize("dtype", WRONG_DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_only_the_four_dtypes(name: str, dtype: Any) -> None:
    with pytest.raises(TypeError, match="dtype"):
        getattr(spec, name)(ones(2, 2, dtype=dtype), ones(2, 2, dtype=dtype))


@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_one_dtype(name: str, dtype: str, other: str) -> None:
    x, g = ones(2, 2, dtype=DTYPES[dtype]), ones(2, 2, dtype=DTYPES[other])
    if dtype == other:
        assert getattr(spec, name)(x, g).dtype == g.dtype
        return
    with pytest.raises(TypeError, match="dtype"):
        getattr(spec, name)(x, g)


@pytest.mark.parametrize(
    "shape", [(3, 2), (2, 1), (1, 3), (1, 1), (3,), (), (1, 2, 3), (6,), (2, 0)]
)
@pytest.mark.parametrize("name", RULES)
def test_nothing_is_broadcast(name: str, shape: tuple[int, ...]) -> None:
    for x, g in [(ones(2, 3), ones(*shape)), (ones(*shape), ones(2, 3))]:
        with pytest.raises(ValueError, match="shape"):
            getattr(spec, name)(x, g)


@pytest.mark.parametrize("step", [0, 17])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (0,)])
@pytest.mark.parametrize("name", PER_SAMPLE)
def test_a_batch_axis_needs_features(name: str, shape: tuple[int, ...], step: int) -> None:
    for batch_axis in (0, -1):
        with pytest.raises(ValueError, match="batch_axis=None"):
            getattr(spec, name)(ones(*shape), ones(*shape), step, batch_axis=batch_axis)


@pytest.mark.parametrize("batch_axis", [2, 3, -3, 10**6])
@pytest.mark.parametrize("name", PER_SAMPLE)
def test_batch_axis_out_of_range(name: str, batch_axis: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        getattr(spec, name)(ones(2, 2), ones(2, 2), batch_axis=batch_axis)


@pytest.mark.parametrize(
    "bounds", [(1, 1), (2, 1), (0, -math.inf), (math.nan, 1), (0, math.nan), (math.inf, math.inf)]
)
@pytest.mark.parametrize("name", RULES)
def test_bounds_are_an_interval(name: str, bounds: Bounds) -> None:
    with pytest.raises(ValueError, match="bounds"):
        getattr(spec, name)(ones(2, 2), ones(2, 2), bounds=bounds)


def test_a_rule_of_ones_own() -> None:
    def halved(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
        return g * 0.5

    rule = Rule(name="halved", fn=halved, is_filter=False)
    assert spec.evaluate(rule, [1.0, -1.0], [4.0, 2.0]).tolist() == [2, 1]
