"""What a rule cannot reach is an error that names it and the way out, never a plain gradient."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import X, net
from jax.extend import core

import relurules
import relurules_jax
from relurules import (
    NoActivationError,
    UncoveredActivationError,
    UncoveredActivationWarning,
    UnsupportedModelError,
)

ZERO_GATES = {
    "maximum": lambda x: jnp.maximum(x, 0.0),
    "maximum reversed": lambda x: jnp.maximum(0, x),
    "lax.max": lambda x: jax.lax.max(x, 0.0),
    "clip": lambda x: jnp.clip(x, 0.0, 6.0),
    "clip method": lambda x: x.clip(0),
    "lax.clamp": lambda x: jax.lax.clamp(0.0, x, 6.0),
    "where": lambda x: jnp.where(x > 0, x, 0.0),
}


@pytest.mark.parametrize("written", ZERO_GATES)
@pytest.mark.parametrize("inside", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_hand_written_relu_alone_is_an_error(written: str, inside: Any, row: Any) -> None:
    gate = ZERO_GATES[written]
    with (
        pytest.raises(NoActivationError, match="match='structural'"),
        relurules.apply(inside(lambda x: gate(x).sum()), "identity") as ruled,
    ):
        jax.grad(ruled)(X)
    row(f"hand-written {written} alone", "refused by name")


@pytest.mark.parametrize("written", ZERO_GATES)
def test_a_hand_written_relu_beside_a_site_is_warned_about_once(written: str) -> None:
    gate = ZERO_GATES[written]
    applied = relurules.apply(lambda x: (gate(x) + jax.nn.relu(x)).sum(), "identity")
    with pytest.warns(UncoveredActivationWarning, match="kept their own gradient"):
        jax.grad(applied)(X)
    jax.grad(applied)(X)
    assert len(applied.report.where("gate")) == 1


def test_the_bound_of_a_variance_is_no_activation() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("LayerNorm_0"):
            scale = jnp.sqrt(jnp.maximum(0.0, x.var()))
        return (jax.nn.relu(x) * scale).sum()

    with relurules.apply(model, "identity") as ruled:
        jax.grad(ruled)(X)


def test_a_model_without_activations(row: Any) -> None:
    def model(x: Any) -> Any:
        return (jax.nn.silu(x) + jnp.tanh(x) + jax.nn.sigmoid(x)).sum()

    for function in (model, jax.jit(model)):
        with (
            pytest.raises(NoActivationError, match="silu.*tanh.*sigmoid"),
            relurules.apply(function, "guided") as ruled,
        ):
            jax.grad(ruled)(X)
    row("no activation at all", "refused: NoActivationError")


def test_gates_made_of_relu6_are_no_sites() -> None:
    def model(x: Any) -> Any:
        return (jax.nn.hard_silu(x) + jax.nn.hard_sigmoid(x)).sum()

    for function in (model, jax.jit(model)):
        plain = jax.grad(function)(X)
        applied = relurules.apply(function, "identity", missing="ignore")
        np.testing.assert_array_equal(jax.grad(applied)(X), plain)
        assert {row.kind for row in applied.report.others} == {"hard_silu", "hard_sigmoid"}
        assert not applied.report.sites


def test_a_deserialised_export(row: Any) -> None:
    pytest.importorskip("flatbuffers", reason="jax.export needs it to serialise")
    blob = jax.export.export(jax.jit(net))(X).serialize(vjp_order=1)
    exported = jax.export.deserialize(blob)
    for function in (exported.call, exported.call, jax.jit(exported.call)):
        with (
            pytest.raises(UncoveredActivationError, match="exported"),
            relurules.apply(function, "guided") as ruled,
        ):
            jax.grad(ruled)(X)
    with pytest.raises(UncoveredActivationError, match="Exported"):
        relurules.apply(exported, "guided", backend="jax")
    row("a deserialised export", "refused by name")


def test_an_export_beside_a_site() -> None:
    exported = jax.export.export(jax.jit(net))(X)
    model = jax.jit(lambda x: exported.call(x) + net(x))
    with (
        pytest.raises(UncoveredActivationError, match="exported"),
        relurules.apply(model, "guided") as ruled,
    ):
        jax.grad(ruled)(X)


def test_an_ahead_of_time_executable(row: Any) -> None:
    lowered = jax.jit(net).lower(X)
    for stage in (lowered, lowered.compile()):
        with pytest.raises(UncoveredActivationError, match="ahead of time"):
            relurules.apply(stage, "guided", backend="jax")
    row("an ahead-of-time executable", "refused by name")


def test_a_jaxpr_traced_outside_the_rule(row: Any) -> None:
    closed = jax.make_jaxpr(net)(X)
    inner = jax.make_jaxpr(jax.jit(lambda x: jax.nn.hard_tanh(x).sum()))(X)
    for one in (closed, inner):
        for wrap in (lambda f: f, jax.jit):
            run = wrap(core.jaxpr_as_fun(one))
            with (
                pytest.raises(UncoveredActivationError, match="traced to a jaxpr outside"),
                relurules.apply(lambda x, run=run: run(x)[0], "guided") as ruled,
            ):
                jax.grad(ruled)(X)
    row("jaxpr_as_fun of a jaxpr traced outside", "refused by name")


def test_what_is_no_model() -> None:
    with pytest.raises(UnsupportedModelError):
        relurules.apply(3, "guided", backend="jax")(X)


def test_never_called(row: Any) -> None:
    with pytest.raises(NoActivationError, match="never called"), relurules.apply(net, "guided"):
        jax.grad(net)(X)
    row("the model called in place of what apply gives", "refused: NoActivationError")


def test_warn_and_ignore() -> None:
    def model(x: Any) -> Any:
        return jnp.sin(x).sum()

    applied = relurules.apply(model, "guided", missing="warn")
    with pytest.warns(UncoveredActivationWarning, match="No activation"):
        jax.grad(applied)(X)
    with relurules.apply(model, "guided", missing="ignore") as ruled:
        np.testing.assert_array_equal(jax.grad(ruled)(X), jnp.cos(X))


def test_the_report() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("head"):
            y = jax.nn.relu(jax.nn.silu(x))
        return jax.nn.relu6(y).sum() + jax.nn.hard_tanh(y).sum()

    rows = []
    for function in (model, jax.jit(model), jax.checkpoint(model)):
        applied = relurules.apply(function, {"relu6": "guided", "head*": "deconv"})
        jax.grad(applied)(X)
        found = {(r.status, r.name, r.kind, r.detail, r.shape) for r in applied.report.rows}
        rows.append(found)
        json.dumps(applied.report.to_dict())
        assert "head/relu" in str(applied.report)
    left = "no key of the rule mapping fits"
    wanted = {
        ("other", "head", "silu", "has no rule", ""),
        ("replaced", "head/relu", "relu", "deconv", "float64[2,3]"),
        ("replaced", "model/relu6", "relu6", "guided", "float64[2,3]"),
        ("excluded", "model/hard_tanh", "hardtanh", left, "float64[2,3]"),
    }
    assert wanted <= rows[0]
    assert rows[0] == rows[1] == rows[2]


def test_two_relus_of_one_function_have_two_names() -> None:
    def model(x: Any) -> Any:
        return (jax.nn.relu(x) + jax.nn.relu(-x)).sum()

    applied = relurules.apply(model, "identity")
    jax.grad(applied)(X)
    first, second = applied.report.sites
    assert second.name == f"{first.name}_1"
    with relurules.apply(model, "identity", exclude=second.name) as ruled:
        np.testing.assert_array_equal(jax.grad(ruled)(X), jnp.where(X < 0, 0.0, 1.0))


def test_an_excluded_site_keeps_its_own_gradient_under_jit() -> None:
    def model(x: Any) -> Any:
        return (jax.nn.relu(x) + jax.nn.relu6(x)).sum()

    for wrap in (lambda f: f, jax.jit):
        with relurules.apply(wrap(model), "identity", exclude="*relu6") as ruled:
            got = jax.grad(ruled)(X)
        np.testing.assert_array_equal(got, 1.0 + ((X > 0) & (X < 6)))


def test_an_activation_declared_by_its_author() -> None:
    clipped = relurules_jax.activation(lambda x: jnp.clip(x, -2.0, 2.0), bounds=(-2.0, 2.0))
    with relurules.apply(lambda x: clipped(x).sum(), "identity") as ruled:
        np.testing.assert_array_equal(jax.grad(ruled)(X), jnp.ones(X.shape))
        np.testing.assert_array_equal(ruled(X), clipped(X).sum())
    both = lambda x: (clipped(x) + jax.nn.relu(x)).sum()  # noqa: E731
    with relurules.apply(both, {"relu": "identity"}) as ruled:
        own = jax.grad(lambda x: clipped(x).sum())(X)
        np.testing.assert_array_equal(jax.grad(ruled)(X), 1.0 + own)
