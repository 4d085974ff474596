"""Somebody's custom_vjp or custom_jvp around an activation: right, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import X

import relurules
from relurules import UncoveredActivationError

relu = jax.nn.relu


@jax.custom_vjp
def asks_in_forward(x: Any) -> Any:
    return relu(x)


asks_in_forward.defvjp(lambda x: jax.vjp(relu, x), lambda pull, g: pull(g))


@jax.custom_vjp
def asks_in_backward(x: Any) -> Any:
    return relu(x)


def _recompute(x: Any, g: Any) -> Any:
    return jax.vjp(relu, x)[1](g)


asks_in_backward.defvjp(lambda x: (relu(x), x), _recompute)


@jax.custom_jvp
def asks_in_jvp(x: Any) -> Any:
    return relu(x)


@asks_in_jvp.defjvp
def _asks(primals: Any, tangents: Any) -> Any:
    return jax.jvp(relu, primals, tangents)


@jax.custom_vjp
def straight_through(x: Any) -> Any:
    return relu(x)


straight_through.defvjp(lambda x: (relu(x), None), lambda _, g: (g * 3,))


@jax.custom_jvp
def own_tangent(x: Any) -> Any:
    return relu(x)


@own_tangent.defjvp
def _own(primals: Any, tangents: Any) -> Any:
    return own_tangent(*primals), tangents[0] * 3


@jax.custom_vjp
def hidden_maximum(x: Any) -> Any:
    return jnp.maximum(x, 0)


hidden_maximum.defvjp(lambda x: (jnp.maximum(x, 0), None), lambda _, g: (g * 3,))


def beside_a_relu(block: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (block(x) + relu(x)).sum()


@pytest.mark.parametrize("take", [jax.grad, lambda f: jax.jit(jax.grad(f))], ids=["grad", "jit"])
@pytest.mark.parametrize("block", [asks_in_forward, asks_in_jvp])
def test_a_block_that_asks_for_the_gradient_takes_the_rule(block: Any, take: Any, row: Any) -> None:
    for model in (beside_a_relu(block), jax.jit(beside_a_relu(block))):
        with relurules.apply(model, "identity") as ruled:
            np.testing.assert_array_equal(take(ruled)(X), jnp.full(X.shape, 2.0))
    row(f"custom gradient that {block.__name__}", "right")


@pytest.mark.parametrize("block", [asks_in_forward, asks_in_backward, asks_in_jvp])
def test_a_backward_that_runs_after_the_model_takes_the_rule_along(block: Any, row: Any) -> None:
    options = {"exclude": block.__name__}
    with relurules.apply(beside_a_relu(block), "identity", **options) as ruled:
        for take in (jax.grad(ruled), jax.grad(jax.jit(ruled)), jax.jit(jax.grad(ruled))):
            np.testing.assert_array_equal(take(X), jnp.full(X.shape, 2.0))
    row(f"the same, run later: {block.__name__}", "right, where excluded from the check by name")


@pytest.mark.parametrize("block", [asks_in_forward, asks_in_jvp])
def test_what_cannot_be_seen_while_recording_is_refused(block: Any, row: Any) -> None:
    with (
        pytest.raises(UncoveredActivationError, match=rf"{block.__name__}.*jit\(jax.grad"),
        relurules.apply(beside_a_relu(block), "identity") as ruled,
    ):
        jax.grad(jax.jit(ruled))(X)
    row(f"grad(jit) of a custom gradient that {block.__name__}", "refused by name")


@pytest.mark.parametrize("block", [asks_in_backward, straight_through, own_tangent])
@pytest.mark.parametrize("inside", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_block_with_its_own_gradient_is_refused(block: Any, inside: Any, row: Any) -> None:
    with (
        pytest.raises(UncoveredActivationError, match=f"{block.__name__}.*exclude it by this name"),
        relurules.apply(inside(beside_a_relu(block)), "identity") as ruled,
    ):
        jax.grad(ruled)(X)
    row(f"custom gradient of its own: {block.__name__}", "refused by name")


def test_a_block_that_was_excluded_keeps_its_gradient() -> None:
    model = beside_a_relu(straight_through)
    with relurules.apply(model, "identity", exclude="straight_through") as ruled:
        np.testing.assert_array_equal(jax.grad(ruled)(X), jnp.full(X.shape, 4.0))


def test_a_hand_written_maximum_in_a_custom_gradient_is_refused(row: Any) -> None:
    model = jax.jit(beside_a_relu(hidden_maximum))
    with (
        pytest.raises(UncoveredActivationError, match="hidden_maximum"),
        relurules.apply(model, "identity") as ruled,
    ):
        jax.grad(ruled)(X)
    row("a custom gradient with max(x, 0) inside, jitted", "refused by name")


def test_a_function_around_a_vmap_of_such_a_block() -> None:
    model = beside_a_relu(jax.vmap(asks_in_forward))
    with relurules.apply(model, "identity") as ruled:
        np.testing.assert_array_equal(jax.grad(ruled)(X), jnp.full(X.shape, 2.0))
