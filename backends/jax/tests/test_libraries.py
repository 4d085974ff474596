"""The models of JAX's libraries, as their users hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import by_hand

import relurules

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)))
X32 = X.astype(jnp.float32)
SIGNS = jnp.arange(-2, 4, dtype=jnp.float32)
KEY = jax.random.key(0)

Relu = Callable[[Any], Any]


class Block(nn.Module):
    relu: Relu = nn.relu

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(6, param_dtype=jnp.float64)(x)
        x = nn.BatchNorm(use_running_average=not train, param_dtype=jnp.float64)(x)
        return self.relu(x)


class Net(nn.Module):
    relu: Relu = nn.relu
    lift: str = ""

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        block = nn.remat(Block, static_argnums=(2,)) if self.lift == "remat" else Block
        x = block(self.relu, name="first")(x, train)
        x = block(self.relu, name="second")(-x, train)
        return (x * jnp.arange(-2.0, 4.0)).sum()


class Layer(nn.Module):
    relu: Relu = nn.relu

    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return self.relu(nn.Dense(6, param_dtype=jnp.float64)(x)), None


class Scanned(nn.Module):
    relu: Relu = nn.relu

    @nn.compact
    def __call__(self, x: Any) -> Any:
        options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "length": 3}
        return (nn.scan(Layer, **options)(self.relu)(x, None)[0] * jnp.arange(-2.0, 4.0)).sum()


def both(model: Any, hand: Any, *args: Any) -> tuple[Any, Any]:
    """Return a linen model's plain and hand-written guided gradient, which must differ."""
    plain = jax.grad(lambda x: model.apply(*args, x))(X)
    right = jax.grad(lambda x: hand.apply(*args, x))(X)
    assert not np.allclose(plain, right)
    return plain, right


def close(actual: Any, right: Any) -> None:
    """Compare as float32 computes it: flax keeps its statistics in that whatever is asked."""
    np.testing.assert_allclose(actual, right, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("lift", ["", "remat"])
def test_linen(lift: str, row: Any) -> None:
    model, hand = Net(lift=lift), Net(by_hand("guided"), lift=lift)
    variables = model.init(KEY, X)
    _, right = both(model, hand, variables)
    with relurules.apply(model, "guided") as ruled:
        close(jax.grad(lambda x: ruled.apply(variables, x))(X), right)
        close(jax.jit(jax.grad(lambda x: ruled(variables, x)))(X), right)
    with relurules.apply(model.apply, "guided") as run:
        close(jax.grad(run, argnums=1)(variables, X), right)
    with relurules.apply(lambda x: model.apply(variables, x), "guided") as run:
        close(jax.grad(jax.jit(run))(X), right)
    row(f"flax.linen {lift or 'model'}, its apply, a closure over it", "right")


def test_linen_names_its_sites() -> None:
    model = Net()
    variables = model.init(KEY, X)
    applied = relurules.apply(model, "guided")
    jax.grad(lambda x: applied(variables, x))(X)
    assert [r.name for r in applied.report.sites] == ["Net/first/relu", "Net/second/relu"]


def test_linen_bound(row: Any) -> None:
    model, hand = Net(), Net(by_hand("guided"))
    variables = model.init(KEY, X)
    with relurules.apply(model.bind(variables), "guided") as ruled:
        close(jax.grad(ruled)(X), both(model, hand, variables)[1])
    row("flax.linen bound module", "right")


@pytest.mark.parametrize("lift", ["", "remat"])
def test_linen_batch_statistics(lift: str, row: Any) -> None:
    model, hand = Net(lift=lift), Net(by_hand("guided"), lift=lift)
    variables = model.init(KEY, X)

    def loss(run: Any) -> Any:
        return lambda x: run(variables, x, True, mutable=["batch_stats"])

    with relurules.apply(model, "guided") as ruled:
        got, state = jax.jit(jax.grad(loss(ruled.apply), has_aux=True))(X)
    right, wanted = jax.grad(loss(hand.apply), has_aux=True)(X)
    close(got, right)
    jax.tree.map(close, state, wanted)
    assert not np.allclose(state["batch_stats"]["first"]["BatchNorm_0"]["mean"], 0)
    row(f"flax.linen mutable batch_stats {lift}", "right, statistics updated")


def test_linen_scan(row: Any) -> None:
    model, hand = Scanned(), Scanned(by_hand("guided"))
    variables = model.init(KEY, X)
    _, right = both(model, hand, variables)
    with relurules.apply(model, "guided") as ruled:
        close(jax.grad(lambda x: ruled(variables, x))(X), right)
        close(jax.jit(jax.grad(lambda x: ruled(variables, x)))(X), right)
    row("flax.linen nn.scan", "right")


class NnxNet(nnx.Module):
    def __init__(self, relu: Relu = nnx.relu) -> None:
        rngs = nnx.Rngs(0)
        self.linear = nnx.Linear(6, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)
        self.relu = relu

    def __call__(self, x: Any) -> Any:
        return (self.relu(self.norm(self.linear(x))) * SIGNS).sum()


def test_nnx_eval(row: Any) -> None:
    model, hand = NnxNet(), NnxNet(by_hand("guided"))
    model.eval()
    hand.eval()
    right = jax.grad(hand)(X32)
    assert not np.allclose(jax.grad(model)(X32), right)
    with relurules.apply(model, "guided") as ruled:
        close(jax.grad(ruled)(X32), right)
        close(jax.jit(jax.grad(ruled))(X32), right)
    with relurules.apply(nnx.jit(lambda m, x: m(x)), "guided") as ruled:
        close(nnx.grad(ruled, argnums=1)(model, X32), right)
    row("flax.nnx eval: module, nnx.jit function", "right")


def test_nnx_train(row: Any) -> None:
    model, hand = NnxNet(), NnxNet(by_hand("guided"))

    def loss(model: Any, x: Any) -> Any:
        return model(x)

    with relurules.apply(loss, "guided") as ruled:
        for wrap in (lambda f: f, nnx.jit):
            got = wrap(nnx.grad(ruled))(model, X32)
            right = nnx.grad(loss)(hand, X32)
            jax.tree.map(close, jax.tree.leaves(got), jax.tree.leaves(right))
            close(
                wrap(nnx.grad(ruled, argnums=1))(model, X32), nnx.grad(loss, argnums=1)(hand, X32)
            )
    close(model.norm.mean[...], hand.norm.mean[...])
    close(model.norm.var[...], hand.norm.var[...])
    assert not np.allclose(model.norm.mean[...], 0)
    row("flax.nnx train: nnx.grad, nnx.jit(nnx.grad)", "right, statistics updated")


def test_nnx_train_by_calling_the_module(row: Any) -> None:
    model, plain = NnxNet(), NnxNet()
    with relurules.apply(model, "guided") as ruled:
        close(ruled(X32), plain(X32))
    close(model.norm.mean[...], plain.norm.mean[...])
    assert not np.allclose(model.norm.mean[...], 0)
    row("flax.nnx train: the module called eagerly", "right, statistics updated")


def test_nnx_split_and_merge(row: Any) -> None:
    model, hand = NnxNet(), NnxNet(by_hand("guided"))
    model.eval()
    hand.eval()
    definition, state = nnx.split(model)
    with relurules.apply(lambda s, x: nnx.merge(definition, s)(x), "guided") as ruled:
        close(jax.jit(jax.grad(ruled, argnums=1))(state, X32), jax.grad(hand)(X32))
    row("flax.nnx split and merge", "right")


def test_equinox(row: Any) -> None:
    def mlp(relu: Relu) -> Any:
        return eqx.nn.MLP(6, "scalar", 8, 2, activation=relu, key=KEY)

    model, hand = mlp(jax.nn.relu), mlp(by_hand("guided"))
    default = eqx.nn.MLP(6, "scalar", 8, 2, key=KEY)
    x = X * 3
    right = jax.vmap(jax.grad(hand))(x)
    assert not np.allclose(jax.vmap(jax.grad(model))(x), right)
    for one in (model, default):
        with relurules.apply(one, "guided") as ruled:
            close(jax.vmap(jax.grad(ruled))(x), right)
            close(jax.jit(jax.vmap(jax.grad(ruled)))(x), right)
    row("equinox module, MLP's default activation", "right")


def test_equinox_filters(row: Any) -> None:
    def mlp(relu: Relu) -> Any:
        return eqx.nn.MLP(6, "scalar", 8, 2, activation=relu, key=KEY)

    def loss(model: Any, x: Any) -> Any:
        return jax.vmap(eqx.filter_checkpoint(model))(x).sum()

    with relurules.apply(loss, "guided") as ruled:
        got = eqx.filter_jit(eqx.filter_grad(ruled))(mlp(jax.nn.relu), X * 3)
    right = eqx.filter_grad(loss)(mlp(by_hand("guided")), X * 3)
    leaves = [jax.tree.leaves(eqx.filter(g, eqx.is_array)) for g in (got, right)]
    jax.tree.map(close, *leaves)
    row("equinox filter_grad, filter_jit, filter_checkpoint", "right")


class Stateful(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    relu: Relu

    def __init__(self, relu: Relu) -> None:
        self.linear = eqx.nn.Linear(6, 6, key=KEY)
        self.norm = eqx.nn.BatchNorm(6, "batch", mode="ema", dtype=jnp.float64)
        self.relu = relu

    def __call__(self, x: Any, state: Any) -> Any:
        x, state = self.norm(self.linear(x), state)
        return (self.relu(x) * jnp.arange(-2.0, 4.0)).sum(), state


def test_equinox_state(row: Any) -> None:
    def gradient(relu: Relu, apply: Any) -> Any:
        model, state = eqx.nn.make_with_state(Stateful)(relu)
        batched = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))

        def total(x: Any, state: Any) -> Any:
            scores, state = batched(x, state)
            return scores.sum(), state

        got, after = eqx.filter_jit(jax.grad(apply(total), has_aux=True))(X, state)
        return got, jax.tree.leaves(after)

    got, after = gradient(jax.nn.relu, lambda f: relurules.apply(f, "guided").model)
    right, wanted = gradient(by_hand("guided"), lambda f: f)
    close(got, right)
    jax.tree.map(close, after, wanted)
    row("equinox BatchNorm with state", "right, statistics updated")


def haiku_net(relu: Relu) -> Any:
    def run(x: Any, train: bool) -> Any:
        x = hk.Linear(6)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, train)
        return (relu(x) * jnp.arange(-2.0, 4.0)).sum()

    return run


def test_haiku(row: Any) -> None:
    model = hk.transform_with_state(haiku_net(jax.nn.relu))
    hand = hk.transform_with_state(haiku_net(by_hand("guided")))
    params, state = model.init(KEY, X, True)
    right, wanted = jax.grad(hand.apply, argnums=3, has_aux=True)(params, state, None, X, True)
    with relurules.apply(model, "guided") as ruled:
        for run in (ruled, ruled.apply, jax.jit(ruled.apply, static_argnums=4)):
            got, after = jax.grad(run, argnums=3, has_aux=True)(params, state, None, X, True)
            close(got, right)
            jax.tree.map(close, after, wanted)
    row("haiku transform_with_state", "right, state updated")


def test_haiku_inside_a_transform(row: Any) -> None:
    def run(x: Any) -> Any:
        ruled = relurules.apply(lambda x: (jax.nn.relu(hk.Linear(6)(x)) * X[0]).sum(), "guided")
        return ruled(x)

    def reference(x: Any) -> Any:
        return (by_hand("guided")(hk.Linear(6)(x)) * X[0]).sum()

    model, hand = (hk.without_apply_rng(hk.transform(f)) for f in (run, reference))
    params = model.init(KEY, X)
    close(jax.grad(model.apply, argnums=1)(params, X), jax.grad(hand.apply, argnums=1)(params, X))
    row("haiku: apply inside transform", "right")


@pytest.mark.filterwarnings("ignore")
def test_keras(row: Any) -> None:
    import keras

    def net(activation: Any) -> Any:
        keras.utils.set_random_seed(0)
        layers = [
            keras.Input((6,)),
            keras.layers.Dense(6, activation=activation, name="hidden"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(max_value=6) if activation == "relu" else keras.layers.ReLU(),
            keras.layers.Dense(1, name="score"),
        ]
        return keras.Sequential(layers)

    model, x = net("relu"), X.astype(jnp.float32)
    trainable = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    plain = jax.grad(lambda x: model(x).sum())(x)
    applied = relurules.apply(model, "guided")
    got = jax.grad(lambda x: applied(x).sum())(x)
    assert not np.allclose(got, plain)
    assert [(r.name, r.kind) for r in applied.report.sites] == [
        ("sequential/hidden/relu", "relu"),
        ("sequential/re_lu/relu6", "relu6"),
    ]
    stateless = relurules.apply(model, "guided").model.stateless_call
    again = jax.jit(jax.grad(lambda x: stateless(trainable, others, x)[0].sum()))(x)
    np.testing.assert_allclose(again, got, rtol=1e-5, atol=1e-7)
    weights = [jnp.asarray(w) for w in model.get_weights()]

    def reference(x: Any) -> Any:
        relu, relu6 = by_hand("guided"), lambda x: jnp.minimum(by_hand("guided")(x), 6.0)
        hidden = relu(x @ weights[0] + weights[1])
        scale = weights[2] / jnp.sqrt(weights[5] + 1e-3)
        return (relu6((hidden - weights[4]) * scale + weights[3]) @ weights[6] + weights[7]).sum()

    np.testing.assert_allclose(got, jax.grad(reference)(x), rtol=1e-4, atol=1e-6)
    row("Keras 3 on JAX: plain call, stateless_call under jit", "right")
    with pytest.raises(relurules.NoActivationError):
        jax.grad(lambda x: relurules.apply(keras.layers.Dense(1), "guided")(x).sum())(x)
