"""Several devices: a sample may be spread over them, which only the user can know."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_bits
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import relurules
import relurules_jax
from relurules import spec

MESH = Mesh(np.array(jax.devices()), ("d",))
ROWS, COLUMNS = PartitionSpec("d"), PartitionSpec(None, "d")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 8))
X[::2] = -abs(X[::2])
G = RANDOM.normal(size=(8, 8))


def pullback(ruled: Any) -> Any:
    return lambda x, g: jax.vjp(ruled, x)[1](g)[0]


def by_shards(spec: Any, **options: Any) -> Any:
    relu = jax.shard_map(jax.nn.relu, mesh=MESH, in_specs=spec, out_specs=spec, **options)
    return lambda x: (relu(x) * G).sum()


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("rule", ["deconv", "guided"])
def test_shard_map(rule: str, check_vma: bool, row: Any) -> None:
    right = spec.evaluate(relurules.rule(rule), X, G)
    for sharding in (ROWS, COLUMNS):
        with relurules.apply(by_shards(sharding, check_vma=check_vma), rule) as ruled:
            assert_bits(jax.grad(ruled)(jnp.asarray(X)), right)
            assert_bits(jax.jit(jax.grad(ruled))(jnp.asarray(X)), right)
    row(f"shard_map, check_vma={check_vma}, {rule}", "right")


def test_shard_map_around_a_ruled_function(row: Any) -> None:
    with relurules.apply(jax.nn.relu, "guided") as ruled:
        mapped = jax.shard_map(pullback(ruled), mesh=MESH, in_specs=(ROWS, ROWS), out_specs=ROWS)
        assert_bits(mapped(jnp.asarray(X), jnp.asarray(G)), spec.guided(X, G))
    row("shard_map(grad(ruled))", "right")


@pytest.mark.parametrize(
    "sharding", [ROWS, COLUMNS, PartitionSpec()], ids=["rows", "columns", "no"]
)
@pytest.mark.parametrize("rule", ["guided", "redirected"])
def test_jit_of_sharded_arrays(rule: str, sharding: Any, row: Any) -> None:
    x = jax.device_put(X, NamedSharding(MESH, sharding))
    with relurules.apply(lambda x: (jax.nn.relu(x) * G).sum(), rule) as ruled:
        got = jax.jit(jax.grad(ruled))(x)
    assert_bits(got, spec.evaluate(relurules.rule(rule), X, G))
    row(f"jit of {sharding} arrays, {rule}", "right")


@pytest.mark.parametrize(
    ("sharding", "reduce_axes"), [(ROWS, ()), (COLUMNS, ("d",))], ids=["batch", "features"]
)
def test_whole_samples_in_shard_map(sharding: Any, reduce_axes: Any, row: Any) -> None:
    model = by_shards(sharding)
    with relurules_jax.apply(model, "redirected", reduce_axes=reduce_axes) as ruled:
        assert_bits(jax.grad(ruled)(jnp.asarray(X)), spec.redirected(X, G))
        assert_bits(jax.jit(jax.grad(ruled))(jnp.asarray(X)), spec.redirected(X, G))
    row(f"redirected in shard_map, reduce_axes={reduce_axes}", "right")


def test_features_taken_for_samples_would_be_wrong() -> None:
    """What reduce_axes is for: without the sum over devices the numbers differ."""
    with relurules_jax.apply(by_shards(COLUMNS), "redirected", reduce_axes=()) as ruled:
        assert not np.array_equal(jax.grad(ruled)(jnp.asarray(X)), spec.redirected(X, G))


def test_whole_samples_without_reduce_axes_are_refused(row: Any) -> None:
    with (
        pytest.raises(ValueError, match="reduce_axes"),
        relurules.apply(by_shards(COLUMNS), "redirected") as ruled,
    ):
        jax.grad(ruled)(jnp.asarray(X))
    row("redirected in shard_map without reduce_axes", "refused by name")


@pytest.mark.filterwarnings("ignore:.*pmap:DeprecationWarning")
def test_pmap(row: Any) -> None:
    x, g = X.reshape(4, 2, 8), G.reshape(4, 2, 8)

    for rule, options in (("guided", {}), ("redirected", {"reduce_axes": ()})):
        with relurules_jax.apply(jax.nn.relu, rule, **options) as ruled:
            right = spec.evaluate(relurules.rule(rule), X, G).reshape(4, 2, 8)
            assert_bits(jax.pmap(pullback(ruled))(x, g), right)
    with (
        pytest.raises(ValueError, match="reduce_axes"),
        relurules.apply(jax.nn.relu, "redirected") as ruled,
    ):
        jax.pmap(pullback(ruled), axis_name="i")(x, g)
    row("pmap, guided and redirected", "right; redirected without reduce_axes refused")


def test_pmap_of_sharded_features(row: Any) -> None:
    x, g = (np.stack(np.split(a, 4, axis=1)) for a in (X, G))

    with relurules_jax.apply(jax.nn.relu, "redirected", reduce_axes=["i"]) as ruled:
        got = jax.pmap(pullback(ruled), axis_name="i")(x, g)
    assert_bits(np.concatenate(list(got), axis=1), spec.redirected(X, G))
    row("pmap of sharded features, reduce_axes", "right")


def test_mapping_over_samples(row: Any) -> None:
    x, g = jnp.asarray(X)[:, None], jnp.asarray(G)[:, None]
    for take in (jax.vmap, lambda f: jax.vmap(jax.jit(f)), lambda f: jax.jit(jax.vmap(f))):
        with (
            pytest.raises(ValueError, match="batch_axis=None"),
            relurules.apply(jax.nn.relu, "redirected") as ruled,
        ):
            take(pullback(ruled))(x, g)
        with relurules.apply(jax.nn.relu, "redirected", batch_axis=None) as ruled:
            assert_bits(take(pullback(ruled))(x, g)[:, 0], spec.redirected(X, G))
    row("redirected in vmap", "right with batch_axis=None, else refused by name")


def test_the_rank_of_a_mapped_example() -> None:
    with (
        pytest.raises(ValueError, match="batch_axis=None"),
        relurules.apply(lambda x: jax.nn.relu(x).sum(), "redirected") as ruled,
    ):
        jax.vmap(jax.grad(ruled))(jnp.asarray(X))


def test_jacrev_maps_gradients_and_not_samples(row: Any) -> None:
    with relurules.apply(lambda x: (jax.nn.relu(x) * G).sum(0), "redirected") as ruled:
        got = jax.jacrev(ruled)(jnp.asarray(X))
    right = [spec.redirected(X, np.where(np.arange(8) == i, G, 0.0)) for i in range(8)]
    np.testing.assert_array_equal(got, np.stack(right))
    row("jacrev of a batched function, redirected", "right")
