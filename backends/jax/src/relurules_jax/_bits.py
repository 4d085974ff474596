"""Arrays whose comparisons are IEEE's, subnormals included.

XLA on the CPU takes subnormals for zero in floating comparisons, by design
(https://github.com/jax-ml/jax/issues/16200), while selecting keeps their bits. So a rule is run
on a thin wrapper that compares the integer bits instead, which costs the same after fusion.
Every rule written with operators, `where`, `any` and `zeros_like` is exact this way, a
third party's too, eagerly and compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array: TypeAlias = Any

_INTEGERS = {16: np.int16, 32: np.int32, 64: np.int64}


def ordered(x: Array) -> tuple[Array, Array]:
    """Return integers in the order of the floats x (-0.0 and 0.0 alike), and where x is NaN."""
    integer, infinity = _format(x.dtype)
    bits = lax.bitcast_convert_type(x, integer)
    lowest = jnp.asarray(np.iinfo(integer).min, integer)
    key = lax.select(bits < 0, lowest - bits, bits)
    return key, abs(key) > infinity


def _format(dtype: Any) -> tuple[Any, Any]:
    integer = _INTEGERS[jnp.finfo(dtype).bits]
    return integer, np.asarray(np.inf, dtype).view(integer)[()]


class Exact:
    """A floating array with IEEE comparisons; arithmetic is JAX's own."""

    __slots__ = ("array",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """The array's rank."""
        return len(self.array.shape)

    @property
    def dtype(self) -> Any:
        """The array's dtype."""
        return self.array.dtype

    def _compare(self, other: Any, compare: Callable[[Any, Any], Any]) -> Array:
        left, left_nan = ordered(self.array)
        right, right_nan = ordered(self._like(other))
        unordered = left_nan | right_nan
        if compare is operator.ne:
            return unordered | compare(left, right)
        return ~unordered & compare(left, right)

    def _like(self, other: Any) -> Array:
        return jnp.asarray(plain(other), self.array.dtype)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, operator.ne)

    def __lt__(self, other: Any) -> Array:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> Array:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> Array:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> Array:
        return self._compare(other, operator.ge)

    def __neg__(self) -> Exact:
        return Exact(lax.neg(self.array))

    def __abs__(self) -> Exact:
        return Exact(lax.abs(self.array))

    def __jax_array__(self) -> Array:
        return self.array

    def __getitem__(self, index: Any) -> Exact:
        return Exact(self.array[index])


def _binary(compute: Callable[[Any, Any], Any], *, swap: bool) -> Callable[[Exact, Any], Exact]:
    def method(self: Exact, other: Any) -> Exact:
        pair = (plain(other), self.array) if swap else (self.array, plain(other))
        return Exact(compute(*pair))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _compute = getattr(operator, _name)
    setattr(Exact, f"__{_name}__", _binary(_compute, swap=False))
    setattr(Exact, f"__r{_name}__", _binary(_compute, swap=True))


def plain(value: Any) -> Any:
    """Return the JAX array inside an `Exact`, and anything else as it is."""
    return value.array if isinstance(value, Exact) else value


def _exact(array: Array) -> Any:
    return Exact(array) if jnp.issubdtype(array.dtype, jnp.floating) else array


@dataclass(frozen=True, slots=True)
class Namespace:
    """The array namespace that rules are run on.

    Attributes:
        reduce_axes: Mesh axes over which the elements of one sample are spread.
    """

    reduce_axes: tuple[str, ...] = ()

    def where(self, condition: Any, this: Any, that: Any) -> Any:
        """Select; the bits of what is selected are kept."""
        return _exact(jnp.where(plain(condition), plain(this), plain(that)))

    def zeros_like(self, array: Any) -> Any:
        """Return +0.0 of the array's shape and dtype."""
        return _exact(lax.full_like(plain(array), 0))

    def any(self, array: Any, axis: Any = None, keepdims: bool = False) -> Array:  # noqa: A003
        """Return whether some element is nonzero, on any device of `reduce_axes`."""
        truth = array != 0 if isinstance(array, Exact) else array
        found = jnp.any(truth, axis=axis, keepdims=keepdims)
        if not self.reduce_axes:
            return found
        return lax.psum(found.astype(jnp.int32), self.reduce_axes) > 0


def on_floats(dtype: Any) -> bool:
    """Return whether rules are defined for this dtype."""
    return jax.dtypes.issubdtype(dtype, jnp.floating) and jnp.dtype(dtype).name in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
    )
