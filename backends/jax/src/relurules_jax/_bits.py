"""Arrays whose comparisons are IEEE's, subnormals included.

XLA on the CPU takes subnormals for zero in floating comparisons, by design
(https://github.com/jax-ml/jax/issues/16200), while selecting keeps their bits. So a rule is run
on a thin wrapper that compares the integer bits instead, which costs the same after fusion.
Every rule written with operators, `where`, `any` and `zeros_like` is exact this way, a
third party's too, eagerly and compiled.
"""

from __future__ import annotations

import functools
import math
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

# Down to this factor a subnormal product has an exponent field below _SMALL in its operand.
_TINY, _SMALL = 2.0**-20, 22

Range: TypeAlias = tuple[int, int]


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


def within(x: Array, ranges: list[Range]) -> Array:
    """Return where the bits of x, as an unsigned integer, are in one of these closed ranges."""
    unsigned = np.dtype(f"uint{jnp.finfo(x.dtype).bits}").type
    bits = lax.bitcast_convert_type(x, unsigned)
    found = [
        lax.sub(bits, unsigned(low)) <= unsigned(high - low) for low, high in ranges if low <= high
    ]
    return functools.reduce(operator.or_, found, lax.full_like(bits, False, dtype=bool))


def ranges_of(compare: str, number: float, dtype: Any) -> list[Range]:
    """Return the bits of the floats that compare so with a number, which is not NaN.

    Positive floats are ordered like their bits and negative ones against them, so there are at
    most two ranges, and each costs one subtraction and one comparison.
    """
    integer, infinity = _format(dtype)
    sign, top = 1 << (8 * np.dtype(integer).itemsize - 1), int(infinity)
    size = int(np.abs(np.asarray(number, dtype)).view(integer))
    strict = 1 if compare in ("lt", "gt") else 0
    outward = (compare in ("gt", "ge")) == (number >= 0)
    half = sign if (number < 0 or (size == 0 and compare in ("lt", "le"))) else 0
    if size == 0:
        zeros = [] if strict else [(sign - half, sign - half)]
        return [(half + strict, half + top), *zeros]
    if outward:
        return [(half + size + strict, half + top)]
    return [(half, half + size - strict), (sign - half, sign - half + top)]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def scaled(x: Array, factor: float) -> Array:
    """Return x * factor, within 1 ulp, subnormal operands and results included.

    XLA on the CPU takes a subnormal operand for zero here too, and returns zero for a subnormal
    product. So where the product is that small it is counted in subnormal steps, which are
    integers: x is brought into the normal range by its exponent bits, and no multiplication
    meets a subnormal.
    """
    product = x * factor
    if not _TINY <= abs(factor) <= 1 or x.dtype == jnp.float16:  # float16 runs as float32
        return product
    integer, _ = _format(x.dtype)
    mantissa = jnp.finfo(x.dtype).nmant
    shift = (mantissa - jnp.finfo(x.dtype).minexp) << mantissa  # times the steps in 1.0
    normal, top = integer(1 << mantissa), np.iinfo(integer).max
    bits = lax.bitcast_convert_type(x, integer)
    size = bits & integer(top)
    larger = lax.bitcast_convert_type(size + integer(shift), x.dtype)
    counted = lax.select(size < normal, size.astype(x.dtype), larger) * abs(factor)
    count = lax.round(counted, lax.RoundingMethod.TO_NEAREST_EVEN)
    is_small = (size < integer(_SMALL << mantissa)) & (count <= x.dtype.type(1 << mantissa))
    sign = (bits if factor > 0 else ~bits) & integer(~top)
    small = lax.bitcast_convert_type(count.astype(integer) | sign, x.dtype)
    return lax.select(is_small, small, product)


@scaled.defjvp
def _scaled_tangent(factor: float, primals: Any, tangents: Any) -> Any:
    return scaled(primals[0], factor), tangents[0] * factor


class Exact:
    """A floating array with IEEE comparisons and scaling; other arithmetic is JAX's own."""

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

    def _compare(self, other: Any, name: str) -> Array:
        is_number = isinstance(other, int | float) and not math.isnan(other)
        if is_number and name not in ("eq", "ne"):  # LLVM turns a test of two bit patterns for
            ranges = ranges_of(name, float(other), self.array.dtype)  # equality into a float's
            return within(self.array, ranges)
        left, left_nan = ordered(self.array)
        right, right_nan = ordered(jnp.asarray(plain(other), self.array.dtype))
        unordered, truth = left_nan | right_nan, getattr(operator, name)(left, right)
        return unordered | truth if name == "ne" else ~unordered & truth

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "eq")

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "ne")

    def __lt__(self, other: Any) -> Array:
        return self._compare(other, "lt")

    def __le__(self, other: Any) -> Array:
        return self._compare(other, "le")

    def __gt__(self, other: Any) -> Array:
        return self._compare(other, "gt")

    def __ge__(self, other: Any) -> Array:
        return self._compare(other, "ge")

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


def _multiply(left: Any, right: Any) -> Any:
    for array, number in ((left, right), (right, left)):
        if isinstance(number, int | float) and not isinstance(number, bool):
            return scaled(array, number)
    return left * right


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _compute = _multiply if _name == "mul" else getattr(operator, _name)
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
        condition, this, that = plain(condition), plain(this), plain(that)
        if _alike(condition, this, that):
            return _exact(lax.select(condition, this, that))
        return _exact(jnp.where(condition, this, that))

    def zeros_like(self, array: Any) -> Any:
        """Return +0.0 of the array's shape and dtype."""
        return _exact(lax.full_like(plain(array), 0))

    def any(self, array: Any, axis: Any = None, keepdims: bool = False) -> Array:
        """Return whether some element is nonzero, on any device of `reduce_axes`."""
        truth = array != 0 if isinstance(array, Exact) else array
        found = jnp.any(truth, axis=axis, keepdims=keepdims)
        if not self.reduce_axes:
            return found
        return lax.psum(found.astype(jnp.int32), self.reduce_axes) > 0


def _alike(condition: Any, this: Any, that: Any) -> bool:
    shapes = {getattr(one, "shape", None) for one in (condition, this, that)}
    dtypes = {getattr(one, "dtype", None) for one in (this, that)}
    return len(shapes) == len(dtypes) == 1 and condition.dtype == bool


def on_floats(dtype: Any) -> bool:
    """Return whether rules are defined for this dtype."""
    return jax.dtypes.issubdtype(dtype, jnp.floating) and jnp.dtype(dtype).name in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
    )
