"""Entering and leaving a rule never gives a jitted function the wrong gradient."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import X, net, plain_and

import relurules


def test_a_model_jitted_before_inside_and_after(row: Any) -> None:
    plain, right = plain_and("guided")
    jitted = jax.jit(net)
    gradient = jax.jit(jax.grad(jitted))
    for _ in range(3):
        np.testing.assert_array_equal(jax.grad(jitted)(X), plain)
        np.testing.assert_allclose(gradient(X), plain, rtol=1e-13)
        with relurules.apply(jitted, "guided") as ruled:
            np.testing.assert_allclose(jax.grad(ruled)(X), right, rtol=1e-13)
            np.testing.assert_allclose(jax.jit(jax.grad(ruled))(X), right, rtol=1e-13)
            np.testing.assert_allclose(gradient(X), plain, rtol=1e-13)
    row("jitted before, called inside and after", "right")


def test_one_jitted_model_under_two_rules(row: Any) -> None:
    jitted = jax.jit(net)
    right = {rule: plain_and(rule)[1] for rule in ("guided", "deconv")}
    for rule in ("guided", "deconv", "guided"):
        with relurules.apply(jitted, rule) as ruled:
            np.testing.assert_allclose(jax.grad(ruled)(X), right[rule], rtol=1e-13)
    row("one jitted model under two rules in turn", "right")


def test_applying_anew_compiles_nothing_anew() -> None:
    traces: list[int] = []

    @jax.jit
    def model(x: Any) -> Any:
        traces.append(1)
        return net(x)

    for _ in range(3):
        applied = relurules.apply(model, "guided")
        with applied as ruled:
            jax.grad(ruled)(X)
        assert [row.kind for row in applied.report.sites] == ["relu", "relu"]
    assert len(traces) == 1


def test_two_threads_with_different_rules(row: Any) -> None:
    jitted = jax.jit(net)
    right = {rule: plain_and(rule)[1] for rule in ("guided", "deconv")}
    plain = jax.grad(jitted)(X)
    barrier = threading.Barrier(3, timeout=60)

    def work(rule: str | None) -> None:
        barrier.wait()
        for _ in range(20):
            if rule is None:
                np.testing.assert_array_equal(jax.grad(jitted)(X), plain)
                continue
            with relurules.apply(jitted, rule) as ruled:
                np.testing.assert_allclose(jax.grad(ruled)(X), right[rule], rtol=1e-13)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, ("guided", "deconv", None)))
    row("three threads, two rules and none", "right")


def test_a_ruled_function_in_another_thread_keeps_its_rule(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled, ThreadPoolExecutor(1) as pool:
        got = pool.submit(lambda: jax.grad(ruled)(X)).result()
        np.testing.assert_allclose(got, right, rtol=1e-13)
    row("the ruled callable in another thread", "right")


def test_pausing_reaches_a_function_that_is_jitted_already(row: Any) -> None:
    plain, right = plain_and("guided")
    applied = relurules.apply(net, "guided")
    gradient = jax.jit(jax.grad(applied))
    for _ in range(2):
        np.testing.assert_allclose(gradient(X), right, rtol=1e-13)
        with applied.paused():
            np.testing.assert_allclose(gradient(X), plain, rtol=1e-13)
    row("paused() around a function jitted already", "right")


def test_a_compiled_gradient_outlives_its_rule() -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled:
        gradient = jax.jit(jax.grad(ruled))
        gradient(X)
    np.testing.assert_allclose(gradient(X), right, rtol=1e-13)
    with pytest.raises(RuntimeError, match="was removed"):
        gradient(X[:1])  # a new shape, hence a new trace: never the plain gradient


def test_a_backward_pass_after_leaving() -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled:
        _, pull = jax.vjp(ruled, X)
    np.testing.assert_allclose(pull(jnp.ones(()))[0], right, rtol=1e-13)


def test_the_innermost_of_nested_rules_wins() -> None:
    right = {rule: plain_and(rule)[1] for rule in ("guided", "deconv")}
    outer = relurules.apply(net, "guided")
    inner = relurules.apply(outer.model, "deconv")
    np.testing.assert_allclose(jax.grad(inner)(X), right["deconv"], rtol=1e-13)
    np.testing.assert_allclose(jax.grad(outer)(X), right["guided"], rtol=1e-13)
    outer.remove()
    np.testing.assert_allclose(jax.grad(inner)(X), right["deconv"], rtol=1e-13)
    inner.remove()


def test_what_an_inner_rule_leaves_goes_to_the_outer() -> None:
    def model(x: Any) -> Any:
        return (jax.nn.relu6(x) + jax.nn.relu(x)).sum()

    x = jnp.asarray([-1.0, 1.0])
    outer = relurules.apply(model, "identity")
    with relurules.apply(outer.model, {"relu6": "standard"}) as inner:
        np.testing.assert_array_equal(jax.grad(inner)(x), [1.0, 2.0])
    outer.remove()


def test_an_exception_leaves_nothing_behind() -> None:
    plain, _ = plain_and("guided")

    def broken(x: Any) -> Any:
        net(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), relurules.apply(broken, "guided") as ruled:
        jax.grad(ruled)(X)
    np.testing.assert_array_equal(jax.grad(net)(X), plain)
