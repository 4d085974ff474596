"""The step: traced it compiles once, and it is never baked into a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relurules
from relurules import Applied, spec

X = jnp.asarray([[-1.0, -2.0], [3.0, -0.5]])
G = jnp.asarray([[-1.0, 1.0], [1.0, -1.0]])
LAST = 2


def model(x: Any) -> Any:
    return (jax.nn.relu(x) * G).sum()


def expected(step: int) -> Any:
    return spec.redirected(X, G, step=step, last_step=LAST)


def applied(function: Callable[[Any], Any] = model, **options: Any) -> Applied:
    return relurules.apply(function, "redirected", schedule=relurules.until(LAST), **options)


@pytest.mark.parametrize("function", [model, jax.jit(model), jax.checkpoint(model)])
def test_a_traced_step_compiles_once(function: Any, row: Any) -> None:
    ruled, traces = applied(function), []

    @jax.jit
    def gradient(x: Any, step: Any) -> Any:
        traces.append(1)
        return jax.grad(ruled.at(step))(x)

    for step in range(5):
        np.testing.assert_array_equal(gradient(X, step), expected(step))
    assert len(traces) == 1
    row(f"at(traced step) of {type(function).__name__}", "right, one compilation")


def test_a_traced_step_in_a_scan(row: Any) -> None:
    ruled = applied()

    def body(x: Any, step: Any) -> Any:
        return x, jax.grad(ruled.at(step))(x)

    got = jax.jit(lambda x: jax.lax.scan(body, x, jnp.arange(5))[1])(X)
    np.testing.assert_array_equal(got, np.stack([expected(step) for step in range(5)]))
    row("at(traced step) in a scan", "right")


def test_a_step_mapped_over() -> None:
    ruled = applied()
    got = jax.vmap(lambda step: jax.grad(ruled.at(step))(X))(jnp.arange(5))
    np.testing.assert_array_equal(got, np.stack([expected(step) for step in range(5)]))


@pytest.mark.parametrize(
    "take",
    [lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f))],
    ids=["jit(grad)", "grad(jit)"],
)
def test_a_counter_is_never_baked_in(take: Any, row: Any) -> None:
    ruled = applied()
    with pytest.raises(RuntimeError, match=r"bake it in.*at\(step\)"):
        take(ruled.model)(X)
    row("a counted step read inside jit", "refused: says at(step)")


def test_a_counter_outside_jit() -> None:
    with applied() as ruled:
        handle = applied()
        for step in range(5):
            np.testing.assert_array_equal(jax.grad(handle)(X), expected(step))
            handle.advance()
        jax.grad(ruled)(X)


def test_an_int_around_a_function_that_is_jitted_already(row: Any) -> None:
    ruled, traces = applied(), []

    def counted(x: Any) -> Any:
        traces.append(1)
        return ruled.model(x)

    gradient = jax.jit(jax.grad(counted))
    for step in (0, 3, 1, 10**6, 2):
        with ruled.at(step):
            np.testing.assert_array_equal(gradient(X), expected(step))
    assert len(traces) == 2  # while the rule is active, and after
    row("at(int) around a function jitted already", "right, two compilations")


def test_a_concrete_array_is_a_step() -> None:
    np.testing.assert_array_equal(jax.grad(applied().at(jnp.asarray(3)))(X), expected(3))


def test_the_rule_after_the_schedule() -> None:
    rule = relurules.rule("deconv").then(relurules.rule("identity"))
    ruled = relurules.apply(model, rule, schedule=relurules.until(0))
    np.testing.assert_array_equal(jax.grad(ruled.at(0))(X), spec.deconv(X, G))
    np.testing.assert_array_equal(jax.grad(ruled.at(1))(X), G)
    traced = jax.jit(lambda x, step: jax.grad(ruled.at(step))(x))
    np.testing.assert_array_equal(traced(X, 0), spec.deconv(X, G))
    np.testing.assert_array_equal(traced(X, 1), G)


def test_following_an_optimiser_is_refused(row: Any) -> None:
    with pytest.raises(TypeError, match=r"optax.*|at\(step\)"):
        applied().follow(object())
    row("follow(optimizer)", "refused: JAX's are functions")


def test_a_traced_step_with_structural_matching_is_refused() -> None:
    ruled = applied(match="structural")
    with pytest.raises(TypeError, match="an int"):
        jax.jit(lambda x, step: jax.grad(ruled.at(step))(x))(X, 0)
    np.testing.assert_array_equal(jax.grad(ruled.at(0))(X), expected(0))
