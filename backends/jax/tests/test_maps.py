"""Maps in JAX: the gradient one takes by hand, and no class explained but the one asked for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relurules

IMAGES = np.random.default_rng(0).normal(size=(4, 6, 5, 2)).astype(np.float32)
KERNEL = np.random.default_rng(1).normal(size=(3, 3, 2, 4)).astype(np.float32)
HEAD = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)


def net(x: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=layout)
    return jax.nn.relu(y).mean((1, 2)) @ HEAD


def expected_map(score: Any, x: Any, rule: str = "guided") -> Any:
    def total(x: Any) -> Any:
        return score(relurules.apply(net, rule, gradient_of="score")(x)).sum()

    return jax.grad(total)(jnp.asarray(x))


TARGETS = {
    "index": (2, lambda y: y[:, 2]),
    "list": ([0, 1, 2, 0], lambda y: y[jnp.arange(4), jnp.array([0, 1, 2, 0])]),
    "array": (jnp.array([2, 1, 0, 2]), lambda y: y[jnp.arange(4), jnp.array([2, 1, 0, 2])]),
    "callable": (lambda y: y[:, 1] - y[:, 0], lambda y: y[:, 1] - y[:, 0]),
    "largest": (None, lambda y: y.max(axis=1)),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray])
def test_target(name: str, as_array: Any) -> None:
    target, score = TARGETS[name]
    found = relurules.attribute(net, as_array(IMAGES), target)
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, expected_map(score, IMAGES))


@pytest.mark.parametrize("rule", ["standard", "deconv", "redirected"])
def test_rule(rule: str) -> None:
    found = relurules.attribute(net, IMAGES, 1, rule)
    np.testing.assert_array_equal(found, expected_map(lambda y: y[:, 1], IMAGES, rule))


def test_rule_none_is_the_models_own_gradient() -> None:
    smooth = lambda x: jax.nn.gelu(x).mean((1, 2)) @ HEAD[:2]  # noqa: E731
    found = relurules.attribute(smooth, IMAGES, 1, None)
    expected = jax.grad(lambda x: smooth(x)[:, 1].sum())(jnp.asarray(IMAGES))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", [3, -4, [0, 1, 2, 3]])
def test_target_out_of_range_is_not_clipped(target: Any) -> None:
    """JAX's own indexing takes the last class instead."""
    assert net(IMAGES)[0, 3] == net(IMAGES)[0, 2]
    for smooth in (0, 4):
        with pytest.raises(IndexError, match="out of range"):
            relurules.attribute(net, IMAGES, target, smooth=smooth)
    with pytest.raises(IndexError, match="out of range"):
        relurules.occlusion(net, IMAGES, target, window=(3, 3, None))


@pytest.mark.parametrize("smooth", [0, 6])
def test_batched_is_one_by_one(smooth: int) -> None:
    together = relurules.attribute(net, IMAGES, 1, smooth=smooth)
    single = [relurules.attribute(net, IMAGES[i : i + 1], 1, smooth=smooth) for i in range(4)]
    parts = relurules.attribute(net, IMAGES, 1, smooth=smooth, batch_size=3)
    np.testing.assert_allclose(together, jnp.concatenate(single), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(together, parts, rtol=1e-5, atol=1e-8)


def test_smooth_without_noise_is_the_plain_map() -> None:
    plain = relurules.attribute(net, IMAGES, 1)
    smooth = relurules.attribute(net, IMAGES, 1, smooth=5, sigma=0)
    np.testing.assert_allclose(smooth, plain, rtol=1e-6, atol=1e-9)
    squared = relurules.attribute(net, IMAGES, 1, smooth=5, sigma=0, average="squared")
    np.testing.assert_allclose(squared, plain**2, rtol=1e-5, atol=1e-9)


def test_smooth_compiles_a_jitted_model_for_two_sizes_at_most() -> None:
    sizes: set[int] = set()

    @jax.jit
    def compiled(x: Any) -> Any:
        sizes.add(x.shape[0])
        return net(x)

    relurules.attribute(compiled, IMAGES[:1], 1, smooth=37, batch_size=5)
    assert sizes == {5, 4}
    plain = relurules.attribute(net, IMAGES[:1], 1, smooth=37, batch_size=5)
    found = relurules.attribute(compiled, IMAGES[:1], 1, smooth=37, batch_size=5)
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-8)


def test_one_sample_without_a_batch_axis() -> None:
    def single(x: Any) -> Any:
        return net(x[None])[0]

    found = relurules.attribute(single, IMAGES[0], 1, "redirected", batched=False)
    whole = relurules.attribute(net, IMAGES[:1], 1, "redirected")
    np.testing.assert_allclose(found, whole[0], rtol=1e-6)
    covered = relurules.occlusion(single, IMAGES[0], 1, window=(3, 3, None), batched=False)
    batch = relurules.occlusion(net, IMAGES[:1], 1, window=(3, 3, None))
    np.testing.assert_allclose(covered, batch[0], rtol=1e-5, atol=1e-7)


def test_occlusion_by_hand() -> None:
    found = relurules.occlusion(net, IMAGES, 2, window=(3, 5, None), stride=3)
    for row in (0, 3):
        covered = IMAGES.copy()
        covered[:, row : row + 3] = 0
        fall = (net(IMAGES) - net(covered))[:, 2]
        expected = np.broadcast_to(fall[:, None, None, None], (4, 3, 5, 2))
        np.testing.assert_allclose(found[:, row : row + 3], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtype_is_kept(dtype: str) -> None:
    x = jnp.asarray(IMAGES, dtype)
    model = lambda x: jax.nn.relu(x).mean((1, 2))  # noqa: E731
    for smooth in (0, 4):
        found = relurules.attribute(model, x, 0, smooth=smooth, batch_size=2)
        assert found.dtype == dtype
    assert relurules.occlusion(model, x, 0, window=(3, 3, None)).dtype == dtype


def test_integers_have_no_gradient() -> None:
    with pytest.raises(TypeError, match="floating point; got int32"):
        relurules.attribute(net, jnp.ones((1, 6, 5, 2), "int32"), 0)


def test_model_that_works_in_place_does_not_reach_the_users_array() -> None:
    def in_place(x: Any) -> Any:
        x -= 0.5
        x /= 0.25
        return net(x)

    pure = lambda x: net((x - 0.5) / 0.25)  # noqa: E731
    x = IMAGES.copy()
    for target in (None, 1):
        found = relurules.attribute(in_place, x, target)
        np.testing.assert_array_equal(x, IMAGES)
        np.testing.assert_allclose(found, relurules.attribute(pure, x, target), rtol=1e-6)
    window = (3, 5, None)
    found = relurules.occlusion(in_place, x, 1, window=window, stride=3)
    np.testing.assert_array_equal(x, IMAGES)
    expected = relurules.occlusion(pure, x, 1, window=window, stride=3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_one_score_for_several_samples_is_refused() -> None:
    for options in ({}, {"smooth": 8}):
        with pytest.raises(ValueError, match=r"scores of shape \(\) for .* samples"):
            relurules.attribute(net, IMAGES, lambda y: y[0, 1], **options)
