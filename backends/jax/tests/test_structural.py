"""`match="structural"` takes hand-written ReLUs, and nothing else does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_bits, patterns
from jax import lax
from jax.extend import core

import relurules
from relurules import spec

X = jnp.asarray([[-1.0, 2.0, 7.0], [0.5, -3.0, 9.0]])

RELUS = {
    "jnp.maximum(x, 0)": lambda x: jnp.maximum(x, 0),
    "jnp.maximum(0, x)": lambda x: jnp.maximum(0.0, x),
    "lax.max": lambda x: lax.max(x, 0.0),
    "jnp.where(x > 0, x, 0)": lambda x: jnp.where(x > 0, x, 0),
    "jnp.where(x <= 0, 0, x)": lambda x: jnp.where(x <= 0, 0.0, x),
    "lax.select": lambda x: lax.select(x > 0, x, jnp.zeros_like(x)),
    "x.clip(0)": lambda x: x.clip(0),
}
RELU6S = {
    "jnp.clip": lambda x: jnp.clip(x, 0, 6),
    "lax.clamp": lambda x: lax.clamp(0.0, x, 6.0),
    "minimum(maximum)": lambda x: jnp.minimum(jnp.maximum(x, 0), 6.0),
}
INSIDE = {
    "jit": jax.jit(lambda x: jnp.maximum(x, 0)),
    "scan": lambda x: lax.scan(lambda c, _: (jnp.maximum(c, 0), None), x, None, length=2)[0],
    "while_loop": lambda x: lax.fori_loop(0, 2, lambda i, c: jnp.maximum(c, 0), x),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda x: jnp.maximum(x, 0), lambda x: x, x),
    "checkpoint": jax.checkpoint(lambda x: jnp.maximum(x, 0)),
    "vmap": jax.vmap(lambda x: jnp.maximum(x, 0)),
}


@pytest.mark.parametrize("written", [*RELUS, *RELU6S, *INSIDE])
def test_what_is_taken(written: str, row: Any) -> None:
    activation = (RELUS | RELU6S | INSIDE)[written]
    kind = "relu6" if written in RELU6S else "relu"
    applied = relurules.apply(lambda x: activation(x).sum(), "identity", match="structural")
    for take in (jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f))):
        np.testing.assert_array_equal(take(applied.model)(X), jnp.ones(X.shape))
    assert {(r.status, r.kind) for r in applied.report.rows} == {("replaced", kind)}
    row(f"structural: {written}", "right")


@pytest.mark.parametrize("written", [*RELUS, *RELU6S])
def test_the_bits_and_the_forward_value(written: str) -> None:
    activation = (RELUS | RELU6S)[written]
    bounds = (0.0, 6.0) if written in RELU6S else (0.0, np.inf)
    values = patterns(np.dtype(np.float64))
    x, g = np.meshgrid(values, values)
    with relurules.apply(activation, "guided", match="structural") as ruled:
        y, pull = jax.vjp(ruled, jnp.asarray(x))
        assert_bits(y, activation(jnp.asarray(x)))
        assert_bits(pull(jnp.asarray(g))[0], spec.guided(x, g, bounds=bounds))


def test_named_activations_and_jaxprs_are_taken_too() -> None:
    closed = jax.make_jaxpr(lambda x: jax.nn.relu(x) + jax.nn.relu6(x))(X)

    def model(x: Any) -> Any:
        return (core.jaxpr_as_fun(closed)(x)[0] + jax.nn.relu(x) + jax.nn.hard_tanh(x)).sum()

    with relurules.apply(model, "identity", match="structural") as ruled:
        np.testing.assert_array_equal(jax.grad(ruled)(X), jnp.full(X.shape, 4.0))


def test_bounds_that_are_computed_are_left_alone() -> None:
    def model(x: Any) -> Any:
        return (jnp.maximum(x, x.mean()) + jnp.minimum(x, 0.5) + jnp.maximum(x, 0)).sum()

    applied = relurules.apply(model, "identity", match="structural")
    jax.grad(applied)(X)
    assert len(applied.report.sites) == 1


def test_integers_and_masks_are_left_alone() -> None:
    def model(x: Any, keep: Any) -> Any:
        index = jnp.maximum(jnp.asarray([-1, 1]), 0)
        return jnp.where(keep, x, 0.0).sum() + x[index].sum() + jnp.maximum(x, 0).sum()

    applied = relurules.apply(model, "identity", match="structural", missing="ignore")
    got = jax.grad(applied)(X, X > 1)
    right = jax.grad(lambda x: jnp.where(X > 1, x, 0.0).sum() + x[jnp.asarray([0, 1])].sum())(X)
    np.testing.assert_array_equal(got, right + 1)
    assert len(applied.report.sites) == 1


def test_arguments_that_are_no_arrays() -> None:
    def model(tree: Any, how: str, *, key: Any) -> Any:
        assert how == "fast"
        return (jnp.maximum(tree["x"] + 0 * jax.random.normal(key), 0) * tree["n"]).sum(), {"n": 1}

    with relurules.apply(model, "identity", match="structural") as ruled:
        key = jax.random.key(0)
        value = jax.grad(lambda x: ruled({"x": x, "n": 3}, "fast", key=key)[0])(X)
    np.testing.assert_array_equal(value, jnp.full(X.shape, 3.0))


def test_never_by_default() -> None:
    with (
        pytest.raises(relurules.NoActivationError, match="structural"),
        relurules.apply(lambda x: jnp.maximum(x, 0).sum(), "identity") as ruled,
    ):
        jax.grad(ruled)(X)
