"""Arrays and their functional gradient, as `relurules.maps` asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class JaxArrays:
    """The arrays of JAX. NumPy's are taken too, as JAX takes them."""

    def evaluate(self, fn: Callable[..., Any], inputs: tuple[Any, ...], /) -> Any:
        """Return `fn(*inputs)`, on copies: a model may work in place on a NumPy array."""
        return fn(*(jnp.array(x) for x in inputs))

    def gradient(self, fn: Callable[..., Any], inputs: tuple[Any, ...], /) -> tuple[jax.Array, ...]:
        """Return the gradient of the scalar `fn(*inputs)` for each input."""
        positions = tuple(range(len(inputs)))
        leaves = tuple(_checked(x) for x in inputs)
        return jax.grad(fn, argnums=positions)(*leaves)  # type: ignore[no-any-return]

    def to_numpy(self, array: Any, /) -> np.ndarray[Any, Any]:
        """Return the numbers, as float32 where NumPy lacks the dtype."""
        values = np.asarray(array)
        return values.astype(np.float32) if values.dtype == jnp.bfloat16 else values

    def from_numpy(self, values: np.ndarray[Any, Any], /, *, like: Any) -> jax.Array:
        """Return an array with the dtype of `like`, on its device."""
        like = jnp.asarray(like)
        return jax.device_put(jnp.asarray(values, like.dtype), like.sharding)


def _checked(x: Any) -> jax.Array:
    array = jnp.asarray(x)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"A gradient needs an input of floating point; got {array.dtype}. Explain the output "
            "of the first layer instead, such as an embedding, or hand over what has no gradient "
            "in call=."
        )
    return array
