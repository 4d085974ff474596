"""Every way in which JAX transforms a function, against the rule written by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import W, X, by_hand, net, plain_and
from jax import lax

import relurules

Relu = Callable[[Any], Any]
Model = Callable[[Any, Relu], Any]


def _scan(x: Any, relu: Relu) -> Any:
    return lax.scan(lambda c, w: (relu(c @ w), None), x, jnp.stack([W, W]))[0].sum()


def _fori(x: Any, relu: Relu) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: relu(c @ W), x).sum()


def _cond(x: Any, relu: Relu) -> Any:
    return lax.cond(x.sum() > 0, lambda x: relu(x @ W).sum(), lambda x: 3 * relu(x).sum(), x)


def _switch(x: Any, relu: Relu) -> Any:
    branches = [lambda x: relu(x).sum(), lambda x: relu(x @ W).sum()]
    return lax.switch(jnp.asarray(1), branches, x)


def _nothing(x: Any, relu: Relu) -> Any:
    policy = jax.checkpoint_policies.nothing_saveable
    return jax.checkpoint(lambda x: net(x, relu), policy=policy)(x)


def _custom_vjp(x: Any, relu: Relu) -> Any:
    @jax.custom_vjp
    def block(x: Any) -> Any:
        return relu(x @ W)

    block.defvjp(lambda x: jax.vjp(lambda x: relu(x @ W), x), lambda pull, g: pull(2 * g))
    return block(x).sum()


def _recomputing(x: Any, relu: Relu) -> Any:
    @jax.custom_vjp
    def block(x: Any) -> Any:
        return relu(x @ W)

    def forward(x: Any) -> Any:
        return jax.vjp(lambda x: relu(x @ W), x)[0], x

    block.defvjp(forward, lambda x, g: jax.vjp(lambda x: relu(x @ W), x)[1](g))
    return block(x).sum()


def _inner_grad(x: Any, relu: Relu) -> Any:
    signs = jnp.asarray([1.0, -1.0, 2.0])
    return (jax.grad(lambda x: (relu(x @ W) ** 2 * signs).sum())(x) * x).sum()


def _mapped(x: Any, relu: Relu) -> Any:
    return jax.vmap(lambda row: relu(row @ W).sum())(x).sum()


def _nested_jit(x: Any, relu: Relu) -> Any:
    return jax.jit(lambda x: jax.jit(relu)(x @ W))(x).sum()


def _while(x: Any, relu: Relu) -> Any:
    kept = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, relu(c[1])), (0, 1.0))[1]
    return relu(x @ W).sum() * kept


MODELS: dict[str, Model] = {
    "plain function": net,
    "jit inside": lambda x, relu: jax.jit(lambda x: net(x, relu))(x),
    "jit inside jit": _nested_jit,
    "scan": _scan,
    "fori_loop": _fori,
    "while_loop beside": _while,
    "cond": _cond,
    "switch": _switch,
    "checkpoint": lambda x, relu: jax.checkpoint(lambda x: net(x, relu))(x),
    "checkpoint with policy": _nothing,
    "custom_vjp with vjp in its forward": _custom_vjp,
    "custom_vjp with vjp in its backward": _recomputing,
    "a model with an inner grad": _inner_grad,
    "vmap inside": _mapped,
}

TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "grad": jax.grad,
    "jit(grad)": lambda f: jax.jit(jax.grad(f)),
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.ones(()))[0],
    "jacrev": jax.jacrev,
}

LATER: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "grad(jit)": lambda f: jax.grad(jax.jit(f)),
    "grad(checkpoint)": lambda f: jax.grad(jax.checkpoint(f)),
}


@pytest.mark.parametrize("model", MODELS)
def test_matrix(model: str, row: Any) -> None:
    run = MODELS[model]
    right = jax.grad(lambda x: run(x, by_hand("deconv")))(X)
    plain = jax.grad(lambda x: run(x, jax.nn.relu))(X)
    assert not np.allclose(right, plain)
    later = {} if "custom_vjp" in model else LATER  # refused: see test_custom_gradients
    for name, take in (TRANSFORMS | later).items():
        with relurules.apply(lambda x: run(x, jax.nn.relu), "deconv") as ruled:
            np.testing.assert_allclose(take(ruled)(X), right, rtol=1e-12, err_msg=name)
        row(f"{model}: {name}", "right")
    np.testing.assert_array_equal(jax.grad(lambda x: run(x, jax.nn.relu))(X), plain)


def test_values_and_jacobians(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled:
        value, got = jax.value_and_grad(ruled)(X)
        np.testing.assert_array_equal(value, net(X))
        np.testing.assert_allclose(got, right, rtol=1e-13)
        np.testing.assert_allclose(jax.jit(jax.jacrev(ruled))(X), right, rtol=1e-13)
    row("value_and_grad, jit(jacrev)", "right")


def test_apply_of_a_grad(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(jax.grad(net), "guided") as gradient:
        np.testing.assert_allclose(gradient(X), right, rtol=1e-13)
        np.testing.assert_allclose(jax.jit(gradient)(X), right, rtol=1e-13)
    row("apply(grad(f))", "right")


def test_vmap_of_a_gradient(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(lambda x: net(x[None]), "guided") as ruled:
        np.testing.assert_allclose(jax.vmap(jax.grad(ruled))(X), right, rtol=1e-13)
        np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(ruled)))(X), right, rtol=1e-13)
        np.testing.assert_allclose(jax.vmap(jax.jit(jax.grad(ruled)))(X), right, rtol=1e-13)
    row("vmap(grad), jit(vmap(grad)), vmap(jit(grad))", "right")


def test_second_derivatives_go_through_the_rule_twice(row: Any) -> None:
    """Reverse over reverse, as torch.autograd.Function with double backward has it."""

    def model(x: Any, relu: Relu) -> Any:
        return (relu(x @ W) ** 3).sum()

    def product(f: Callable[[Any], Any]) -> Any:
        return jax.grad(lambda x: (jax.grad(f)(x) * X).sum())(X)

    def reference(x: Any) -> Any:
        return model(x, by_hand("deconv"))

    with relurules.apply(lambda x: model(x, jax.nn.relu), "deconv") as ruled:
        twice = jax.jacrev(jax.jacrev(ruled))(X)
        np.testing.assert_allclose(twice, jax.jacrev(jax.jacrev(reference))(X), rtol=1e-13)
        np.testing.assert_allclose(product(ruled), product(reference), rtol=1e-12)
    row("jacrev(jacrev), Hessian-vector product by grad of grad", "right")


@pytest.mark.parametrize(
    "take",
    [
        jax.jacfwd,
        jax.hessian,
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: lambda x: jax.linearize(f, x)[1](x),
        lambda f: lambda x: jax.jvp(jax.jit(f), (x,), (x,)),
    ],
    ids=["jacfwd", "hessian", "jvp", "linearize", "jvp(jit)"],
)
def test_forward_mode_is_refused(take: Any, request: pytest.FixtureRequest, row: Any) -> None:
    with (
        relurules.apply(net, "guided") as ruled,
        pytest.raises(TypeError, match="forward.mode"),
    ):
        take(ruled)(X)
    row(request.node.callspec.id, "refused: forward mode")


def test_paused_has_forward_mode() -> None:
    applied = relurules.apply(net, "guided")
    with applied.paused():
        _, tangent = jax.jvp(applied.model, (X,), (X,))
    np.testing.assert_allclose(tangent, jax.jvp(net, (X,), (X,))[1])
    jax.grad(applied)(X)
    applied.remove()


def test_arguments_of_every_kind(row: Any) -> None:
    @functools.partial(jax.jit, static_argnames=("how", "times"))
    def model(tree: Any, *, how: str, times: int, key: Any, none: Any = None) -> Any:
        noise = jax.random.normal(key, X.shape) * 0.01
        assert none is None
        assert how == "sum"
        return sum(net(tree["x"] + noise) for _ in range(times)) + tree["more"][0].sum()

    tree, key = {"x": X, "more": (jnp.ones(2),)}, jax.random.key(0)
    options = {"how": "sum", "times": 2, "key": key}
    with relurules.apply(model, "guided") as ruled:
        got = jax.grad(lambda t: ruled(t, **options))(tree)
    right = jax.grad(lambda x: 2 * net(x, by_hand("guided")))(
        X + jax.random.normal(key, X.shape) * 0.01
    )
    np.testing.assert_allclose(got["x"], right, rtol=1e-13)
    np.testing.assert_array_equal(got["more"][0], jnp.ones(2))
    row("pytrees, kwargs, static and string arguments, None, PRNG keys", "right")


def test_static_arguments_of_the_ruled_function(row: Any) -> None:
    def model(x: Any, times: int) -> Any:
        return net(x) * times

    _, right = plain_and("guided")
    with relurules.apply(model, "guided") as ruled:
        by_name = jax.jit(ruled, static_argnames="times")
        by_number = jax.jit(ruled, static_argnums=1)
        for jitted in (by_name, by_number):
            np.testing.assert_allclose(
                jax.grad(lambda x, j=jitted: j(x, 2))(X), 2 * right, rtol=1e-13
            )
    row("static_argnames and static_argnums of the ruled function", "right")


def test_donation(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled:
        step = jax.jit(lambda x: x - jax.grad(ruled)(x), donate_argnums=0)
        np.testing.assert_allclose(step(X + 0), X - right, rtol=1e-13)
    row("donated buffers", "right")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(dtype: str, row: Any) -> None:
    x = X.astype(dtype)

    def model(x: Any, relu: Relu) -> Any:
        return relu(relu(x) * 2 - 1).sum()

    right = jax.grad(lambda x: model(x, by_hand("deconv")))(x)
    with relurules.apply(lambda x: model(x, jax.nn.relu), "deconv") as ruled:
        got = jax.grad(ruled)(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(got, float), np.asarray(right, float))
    row(dtype, "right")


def test_callbacks_and_debug_prints(capsys: pytest.CaptureFixture[str], row: Any) -> None:
    seen: list[Any] = []

    def model(x: Any) -> Any:
        jax.debug.print("value {}", x.sum())
        jax.debug.callback(seen.append, x.sum())
        return net(x)

    with relurules.apply(model, "guided") as ruled:
        jax.block_until_ready(jax.jit(jax.grad(ruled))(X))
        jax.effects_barrier()
    assert len(seen) == 1
    assert capsys.readouterr().out.count("value") == 1
    row("debug.print and debug.callback run once", "right")


def test_jaxs_own_checks(row: Any) -> None:
    _, right = plain_and("guided")
    with jax.checking_leaks(), relurules.apply(net, "guided") as ruled:
        np.testing.assert_allclose(jax.jit(jax.grad(ruled))(X), right, rtol=1e-13)
        np.testing.assert_allclose(jax.grad(jax.jit(ruled))(X), right, rtol=1e-13)
    with jax.enable_checks(True), relurules.apply(net, "guided") as ruled:
        np.testing.assert_allclose(jax.jit(jax.grad(ruled))(X), right, rtol=1e-13)
    row("checking_leaks, enable_checks", "right")


def test_exporting_an_applied_function(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled:
        exported = jax.export.export(jax.jit(jax.grad(ruled)))(X)
    np.testing.assert_allclose(exported.call(X), right, rtol=1e-13)
    row("exporting the gradient of an applied function", "right")


def test_compiling_an_applied_function_ahead_of_time(row: Any) -> None:
    _, right = plain_and("guided")
    with relurules.apply(net, "guided") as ruled:
        compiled = jax.jit(jax.grad(ruled)).lower(X).compile()
    np.testing.assert_allclose(compiled(X), right, rtol=1e-13)
    row("ahead-of-time compilation of an applied function", "right")
