"""Every rule gives the specification's bits, eagerly, compiled and mapped, in four dtypes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ACTIVATIONS, DTYPES, assert_bits, draws, grid

import relurules
from relurules import Rule, spec
from relurules_jax._bits import Exact

FILTERS = ("standard", "deconv", "guided", "redirected", "identity")


def pullback(activation: Callable[[Any], Any], rule: Any, **options: Any) -> Callable[..., Any]:
    ruled = relurules.apply(activation, rule, **options)
    return lambda x, g: jax.vjp(ruled, x)[1](g)[0]


MODES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda pull: pull,
    "jit": jax.jit,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", FILTERS)
def test_grid(rule: str, dtype: str, mode: str) -> None:
    x, g = grid(DTYPES[dtype])
    for activation, bounds in ACTIVATIONS.values():
        pull = MODES[mode](pullback(activation, rule))
        right = spec.evaluate(relurules.rule(rule), x, g, bounds=bounds)
        assert_bits(pull(jnp.asarray(x), jnp.asarray(g)), right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gradient_of", ["score", "loss"])
@pytest.mark.parametrize("rule", FILTERS)
def test_random_bits_in_either_sign(rule: str, gradient_of: str, dtype: str) -> None:
    activation, bounds = ACTIVATIONS["relu6"]
    pull = jax.jit(pullback(activation, rule, gradient_of=gradient_of))
    for seed in range(5):
        x, g = draws(DTYPES[dtype], seed)
        right = spec.evaluate(relurules.rule(rule), x, g, bounds=bounds, gradient_of=gradient_of)
        assert_bits(pull(jnp.asarray(x), jnp.asarray(g)), right)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rule", ["standard", "deconv", "guided"])
def test_every_16_bit_number(rule: str, dtype: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    few = grid(DTYPES[dtype])[0][:, 0]
    pull = jax.jit(pullback(jax.nn.relu6, rule))
    for x, g in (np.meshgrid(every, few[::3]), np.meshgrid(few[::3], every)):
        right = spec.evaluate(relurules.rule(rule), x, g, bounds=(0.0, 6.0))
        assert_bits(pull(jnp.asarray(x), jnp.asarray(g)), right)


@pytest.mark.parametrize("batch_axis", [0, 1, -1, None])
def test_batch_axis(batch_axis: int | None) -> None:
    x, g = draws(DTYPES["float32"], 7)
    pull = pullback(jax.nn.relu, "redirected", batch_axis=batch_axis)
    right = spec.redirected(x, g, batch_axis=batch_axis)
    assert_bits(pull(jnp.asarray(x), jnp.asarray(g)), right)


@pytest.mark.parametrize("rule", FILTERS)
def test_vmap_is_a_loop(rule: str) -> None:
    x, g = draws(DTYPES["float32"], 3)
    pull = pullback(jax.nn.relu, rule, batch_axis=None)
    right = [
        spec.evaluate(relurules.rule(rule), one, h, batch_axis=None)
        for one, h in zip(x, g, strict=True)
    ]
    assert_bits(jax.vmap(pull)(jnp.asarray(x), jnp.asarray(g)), np.stack(right))


@pytest.mark.parametrize("dtype", DTYPES)
def test_leaky_is_within_one_ulp(dtype: str) -> None:
    x, g = draws(DTYPES[dtype], 1)
    g = np.random.default_rng(2).uniform(0.5, 2.0, x.shape).astype(DTYPES[dtype])
    right = spec.leaky(x, g)
    actual = np.asarray(pullback(jax.nn.relu, "leaky")(jnp.asarray(x), jnp.asarray(g)))
    assert_one_ulp(actual, right)


def assert_one_ulp(actual: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> None:
    integer = np.dtype(f"int{8 * right.dtype.itemsize}")
    assert actual.dtype == right.dtype
    assert (abs(actual.view(integer).astype(np.int64) - right.view(integer)) <= 1).all()


@pytest.mark.parametrize("slope", [0.1, -0.1, 1.0, 2.0**-20])
@pytest.mark.parametrize("dtype", DTYPES)
def test_leaky_rounds_subnormals_instead_of_flushing_them(dtype: str, slope: float) -> None:
    info = jnp.finfo(DTYPES[dtype])
    counts = np.array([0, 1, 2, 5, 15, 64, 99, 3 << (info.nmant - 1), 2 << info.nmant])
    g = (np.concatenate([counts, -counts]) * float(info.smallest_subnormal)).astype(info.dtype)
    x = np.full_like(g, -1)
    rule = relurules.leaky(slope=slope)
    right = spec.evaluate(rule, x, g, batch_axis=None)
    for mode in MODES.values():
        pull = mode(pullback(jax.nn.relu, rule))
        assert_one_ulp(np.asarray(pull(jnp.asarray(x), jnp.asarray(g))), right)


def test_leaky_keeps_its_own_derivative_at_zero_and_at_subnormals() -> None:
    x, g = -jnp.ones((1, 3)), jnp.asarray([[0.0, 1e-310, 1.0]])
    pull = pullback(jax.nn.relu, "leaky")
    (second,) = jax.vjp(lambda g: pull(x, g), g)[1](jnp.ones((1, 3)))
    assert second.tolist() == [[0.1, 0.1, 0.1]]


def test_a_third_partys_rule_is_exact_too() -> None:
    def fn(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
        weird = (abs(x) < 2.0) & (x != g) | ~(g >= -1) | (x == 0)
        opposite = -g
        return xp.where(weird & xp.any(x > 0), xp.zeros_like(g), -opposite)

    rule = Rule(name="weird", fn=fn)
    for dtype in DTYPES.values():
        x, g = grid(dtype)
        right = spec.evaluate(rule, x, g)
        for mode in MODES.values():
            pull = mode(pullback(jax.nn.relu, rule))
            assert_bits(pull(jnp.asarray(x), jnp.asarray(g)), right)


def test_arithmetic_of_a_rule_is_jaxs() -> None:
    def fn(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
        return (2 * g + g / 2 - g) * 2 ** abs(x) + x * 0

    x, g = np.array([1.0, -2.0, 3.0]), np.array([1.0, 2.0, -1.0])
    rule = Rule(name="scaled", fn=fn, is_filter=False)
    right = spec.evaluate(rule, x, g)
    assert_bits(pullback(jax.nn.relu, rule)(jnp.asarray(x), jnp.asarray(g)), right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compare", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_are_ieees_when_compiled_too(compare: str, dtype: str) -> None:
    x, y = grid(DTYPES[dtype])
    ask = getattr(operator, compare)
    with np.errstate(invalid="ignore"):
        right = ask(x.astype(np.float64), y.astype(np.float64))
        numbers = [float(v) for v in y[0]]
        with_numbers = [ask(x[:, 0].astype(np.float64), number) for number in numbers]

    def compared(x: Any, y: Any) -> Any:
        return ask(Exact(x), Exact(y)), [ask(Exact(x[:, 0]), number) for number in numbers]

    for take in MODES.values():
        pairs, columns = take(compared)(jnp.asarray(x), jnp.asarray(y))
        np.testing.assert_array_equal(pairs, right)
        np.testing.assert_array_equal(columns, with_numbers)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 1)])
def test_empty_and_thin_tensors(shape: tuple[int, ...]) -> None:
    x = jnp.ones(shape, jnp.float32)
    assert pullback(jax.nn.relu, "redirected")(x, x).shape == shape


def test_a_rule_that_changes_the_dtype_is_refused() -> None:
    rule = Rule(name="wrong", fn=lambda x, g, *, bounds, xp: g.array.astype(jnp.float16))
    with pytest.raises(TypeError, match="a rule keeps shape and dtype"):
        jax.grad(relurules.apply(jax.nn.relu, rule))(1.0)


def test_the_forward_value_is_the_models_own() -> None:
    for dtype in DTYPES.values():
        x = jnp.asarray(grid(dtype)[0])
        for activation, _ in ACTIVATIONS.values():
            ruled = relurules.apply(activation, "guided")
            assert_bits(ruled(x), activation(x))
            assert_bits(jax.jit(ruled)(x), activation(x))


def test_weak_types_stay_weak() -> None:
    ruled = relurules.apply(jax.nn.relu, "identity")
    assert ruled(1.5).weak_type == jax.nn.relu(1.5).weak_type
    assert jax.grad(ruled)(-1.5).dtype == jax.grad(jax.nn.relu)(-1.5).dtype


def test_integers_have_no_gradient_and_pass() -> None:
    def model(x: Any) -> Any:
        return jax.nn.relu(x) + jax.nn.relu(jnp.asarray([-1, 2]))

    ruled = relurules.apply(model, "identity")
    assert_bits(jax.vjp(ruled, jnp.asarray([-1.0, 1.0]))[1](jnp.ones(2))[0], np.ones(2))
    assert len(ruled.report.sites) == 1
