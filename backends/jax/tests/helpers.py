"""What JAX tests compare with: bits, and a rule written by hand as a custom_vjp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
ACTIVATIONS = {
    "relu": (jax.nn.relu, (0.0, math.inf)),
    "relu6": (jax.nn.relu6, (0.0, 6.0)),
    "hard_tanh": (jax.nn.hard_tanh, (-1.0, 1.0)),
}

X = jnp.asarray([[-1.0, 2.0, 3.0], [4.0, -5.0, 0.5]])
W = jnp.asarray([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0], [-0.7, 0.2, 1.0]])


def net(x: Any, relu: Callable[[Any], Any] = jax.nn.relu) -> Any:
    """Two layers and a score; `relu` is JAX's, or one that a reference puts there."""
    return jnp.sum(relu(relu(x @ W) @ W - 0.25) * jnp.asarray([1.0, -1.0, 2.0]))


HAND_WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "guided": lambda x, g: jnp.where((x <= 0) | (g <= 0), 0.0, g),
    "deconv": lambda x, g: jnp.where(g <= 0, 0.0, g),
}


def by_hand(rule: str) -> Callable[[Any], Any]:
    """Return relu with a rule behind it, as one writes it without this package."""

    @jax.custom_vjp
    def relu(x: Any) -> Any:
        return jnp.maximum(x, 0)

    def backward(x: Any, g: Any) -> Any:
        return (HAND_WRITTEN[rule](x, g).astype(g.dtype),)

    relu.defvjp(lambda x: (relu(x), x), backward)
    return relu


def plain_and(rule: str, x: Any = X) -> tuple[Any, Any]:
    """Return the plain gradient of `net` and that of a rule, which must differ."""
    plain = jax.grad(net)(x)
    ruled = jax.grad(lambda x: net(x, by_hand(rule)))(x)
    assert not np.array_equal(plain, ruled)
    return plain, ruled


def assert_bits(actual: Any, right: Any) -> None:
    """Assert equal bits, and NaN for NaN."""
    actual, right = np.asarray(actual), np.asarray(right)
    assert actual.dtype == right.dtype
    assert actual.shape == right.shape
    unsigned = np.dtype(f"uint{8 * right.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        equal = actual.view(unsigned) == right.view(unsigned)
        same = np.where(np.isnan(right), np.isnan(actual), equal)
    assert same.all(), (actual[~same][:4], right[~same][:4])


def patterns(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a dtype's interesting numbers: zeros, subnormals, bounds, infinities, NaN."""
    info = ml_dtypes.finfo(dtype)
    ordinary = [0.0, 0.5, 1.0, 3.0, 6.0, 7.0, math.inf, math.nan, info.tiny, info.max]
    top = 8 * dtype.itemsize - 1
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.array([float(v) for v in ordinary], dtype)
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    bits = [1, 2, int(info.tiny.view(unsigned)) - 1]
    bits += [int(np.array(b, dtype).view(unsigned)) + d for b in (1.0, 6.0) for d in (-1, 1)]
    all_bits = [*numbers.view(unsigned).tolist(), *bits]
    return np.array([b | sign for b in all_bits for sign in (0, 1 << top)], unsigned).view(dtype)


def grid(dtype: np.dtype[Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return every pair of a dtype's interesting numbers; dead samples are among the rows."""
    values = patterns(dtype)
    x, g = np.meshgrid(values, values, indexing="ij")
    return x, g


def draws(dtype: np.dtype[Any], seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return arrays of random bits in which half of the samples are dead."""
    random = np.random.default_rng(seed)
    size = (6, 3, 4)
    x, g = (random.integers(0, 256, (*size, dtype.itemsize), np.uint8) for _ in range(2))
    x, g = (a.view(dtype)[..., 0] for a in (x, g))
    with np.errstate(invalid="ignore"):
        x[::2] = -np.abs(x[::2])
    return x, g
