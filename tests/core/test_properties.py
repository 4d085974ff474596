"""What must hold for every input: 18 properties of the rules, searched for an exception.

An oracle answers for the inputs somebody thought of. A property needs no answer, so it can
be asked of any bit pattern, shape and axis. Floats are drawn as integers and viewed, since
drawing them as floats leaves out NaN payloads and most subnormals, and half the draws have
dead samples, which random numbers hardly ever have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import oracle
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import BOUNDS, DTYPES, RELU6, Array, Bounds

from relurules import _library, spec
from relurules._rule import Rule

RULES = {rule.name: rule for rule in _library.BUILTIN}
FILTERS = [rule for rule in RULES.values() if rule.is_filter]
REDIRECTED = [RULES["redirected"], RULES["redirected_relu6"]]
ELEMENTWISE = [rule for rule in FILTERS if rule.scope == "element"]


class Draw(NamedTuple):
    """A site, what flows through it, and a rule that takes it."""

    rule: Rule
    x: Array
    g: Array
    bounds: Bounds

    def __call__(self, x: Array | None = None, g: Array | None = None, **options: Any) -> Array:
        """Evaluate the rule, on the drawn x and g where no others are given."""
        x, g = self.x if x is None else x, self.g if g is None else g
        return spec.evaluate(self.rule, x, g, bounds=self.bounds, **options)


@st.composite
def draws(draw: st.DrawFn, rules: list[Rule] = FILTERS, bounds: Bounds | None = None) -> Draw:
    rule, dtype = draw(st.sampled_from(rules)), draw(st.sampled_from([*DTYPES.values()]))
    allowed = [site for site in BOUNDS if rule.takes(oracle.kind(site))]
    site = draw(st.sampled_from(allowed)) if bounds is None else bounds
    shape = draw(shapes())
    x, g = draw(floats(dtype, shape)), draw(floats(dtype, shape))
    if draw(st.booleans()):
        x = oracle.dead(x, site, rows=slice(None, None, draw(st.sampled_from([1, 2]))))
    return Draw(rule, x, g, site)


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    sides = st.sampled_from([1, 2, 3, 5, 0])
    return st.lists(sides, min_size=2, max_size=5).map(tuple).filter(lambda s: np.prod(s) <= 200)


def floats(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    unsigned, special = f"u{dtype.itemsize}", oracle.bits(oracle.specials(dtype)).tolist()
    elements = st.sampled_from(special) | st.integers(0, 2 ** (8 * dtype.itemsize) - 1)
    return hnp.arrays(unsigned, shape, elements=elements).map(lambda a: a.view(dtype))


def same(actual: Array, expected: Array) -> bool:
    return oracle.same(actual, expected)


def value(array: Array) -> Array:
    """Return the values as float64, which holds those of every dtype."""
    with np.errstate(invalid="ignore"):
        return np.where(oracle.is_nan(array), np.nan, array.astype(np.float64))


# --- Of every filter rule ------------------------------------------------------------------


@given(draws())
def test_output_is_g_or_positive_zero(d: Draw) -> None:
    out, g = oracle.bits(d()), oracle.bits(d.g)
    assert np.all((out == g) | (out == 0))


@given(draws())
def test_idempotent(d: Draw) -> None:
    once = d()
    assert same(d(g=once), once)


@given(draws(), st.integers(-3, 3))
def test_scaling_by_a_power_of_two_passes_through(d: Draw, exponent: int) -> None:
    factor = d.g.dtype.type(2.0**exponent)
    with np.errstate(all="ignore"):
        lossless = oracle.matches(d.g * factor / factor, d.g)
        g = np.where(lossless, d.g, d.g.dtype.type(0))
        assert same(d(g=g * factor), d(g=g) * factor)


@given(draws(), st.randoms())
def test_permuting_samples_permutes_the_result(d: Draw, random: Any) -> None:
    order = random.sample(range(len(d.x)), len(d.x))
    assert same(d(d.x[order], d.g[order]), d()[order])


@given(draws(), st.randoms())
def test_permuting_features_permutes_the_result(d: Draw, random: Any) -> None:
    order = random.sample(range(d.x.shape[1]), d.x.shape[1])
    assert same(d(d.x[:, order], d.g[:, order]), d()[:, order])


@given(draws())
def test_a_batch_is_its_samples(d: Draw) -> None:
    out = d()
    for i in range(len(d.x)):
        assert same(d(d.x[i : i + 1], d.g[i : i + 1]), out[i : i + 1])


@given(draws([*RULES.values()]))
def test_shape_and_dtype_are_those_of_g(d: Draw) -> None:
    with np.errstate(all="ignore"):
        out = d()
    assert (type(out), out.shape, out.dtype) == (np.ndarray, d.g.shape, d.g.dtype)


@given(draws())
def test_inputs_are_left_alone(d: Draw) -> None:
    before = d.x.tobytes(), d.g.tobytes()
    d()[...] = 1
    assert (d.x.tobytes(), d.g.tobytes()) == before


@given(draws())
def test_memory_layout_does_not_matter(d: Draw) -> None:
    flipped = d(d.x[::-1, ::-1], d.g[::-1, ::-1])
    assert same(flipped, np.ascontiguousarray(d()[::-1, ::-1]))
    assert same(d(np.asfortranarray(d.x), d.g), d())


# --- Of single rules -----------------------------------------------------------------------


@given(draws([RULES["guided"]]))
def test_guided_is_standard_and_deconv_in_either_order(d: Draw) -> None:
    after = spec.standard(d.x, spec.deconv(d.x, d.g, bounds=d.bounds), bounds=d.bounds)
    before = spec.deconv(d.x, spec.standard(d.x, d.g, bounds=d.bounds), bounds=d.bounds)
    assert same(d(), after)
    assert same(d(), before)


@given(draws([RULES["guided"]]))
def test_guided_is_the_smaller_of_standard_and_deconv(d: Draw) -> None:
    parts = (spec.standard(d.x, d.g, bounds=d.bounds), spec.deconv(d.x, d.g, bounds=d.bounds))
    assert np.array_equal(oracle.magnitude(d()), np.minimum(*map(oracle.magnitude, parts)))


@given(draws([RULES["deconv"]]))
def test_deconv_does_not_look_at_x(d: Draw) -> None:
    assert same(d(), d(x=d.x[::-1]))
    assert same(d(), d(x=np.zeros_like(d.x)))


@given(draws([RULES["deconv"]]))
def test_deconv_of_both_signs_adds_up_to_g(d: Draw) -> None:
    with np.errstate(invalid="ignore"):
        total = value(d()) - value(d(g=oracle.negated(d.g)))
    np.testing.assert_array_equal(total, value(d.g))


@given(draws(REDIRECTED))
def test_redirected_is_the_closed_gate_on_live_samples(d: Draw) -> None:
    out = d()
    gated = np.where(oracle.outside(d.x, d.bounds), np.zeros_like(d.g), d.g)
    for row, gate in zip(out, gated, strict=True):
        live = oracle.magnitude(gate).any()
        assert same(row, gate) or not live


@given(draws(REDIRECTED))
def test_descent_never_pushes_a_blocked_unit_further_out(d: Draw) -> None:
    out, x = value(d()), value(d.x)
    lo, hi = (oracle.rounded(bound, d.x.dtype) for bound in d.bounds)
    assert not np.any((x < lo) & (out > 0))
    assert not np.any((x > hi) & (out < 0))


@given(draws([RULES["redirected_relu6"]], RELU6), st.data())
def test_redirected_relu6_is_symmetric_about_3(d: Draw, data: st.DataObject) -> None:
    # On halves, since 6 - x rounds elsewhere.
    halves = hnp.arrays(np.int8, d.x.shape, elements=st.integers(-8, 20))
    x = (data.draw(halves) / 2).astype(d.x.dtype)
    mirrored = value(d((6 - x.astype(float)).astype(x.dtype), oracle.negated(d.g)))
    np.testing.assert_array_equal(mirrored, -value(d(x)))


@given(draws(REDIRECTED), st.integers(-5, 4))
def test_the_batch_axis_may_be_any(d: Draw, axis: int) -> None:
    axis %= d.x.ndim
    moved = (np.moveaxis(a, 0, axis) for a in (d.x, d.g))
    out = d(*moved, batch_axis=axis)
    assert same(np.ascontiguousarray(np.moveaxis(out, axis, 0)), d())
    assert same(d(*(np.moveaxis(a, 0, axis) for a in (d.x, d.g)), batch_axis=axis - d.x.ndim), out)


@given(draws(REDIRECTED))
def test_no_batch_axis_is_one_sample(d: Draw) -> None:
    assert same(d(batch_axis=None), d(d.x[None], d.g[None])[0])
    assert same(d(batch_axis=None), d(d.x.reshape(1, -1), d.g.reshape(1, -1)).reshape(d.x.shape))
