"""Comparing results as bits, and saying where and how they differ.

A tolerance would hide what the kit is for: a lost NaN, a flipped zero, a flushed subnormal. So
values are compared as integers, and a failure names the first pair of inputs that shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def bits(array: Array, /) -> Array:
    """Return the bit patterns as unsigned integers, sharing the array's memory."""
    return array.view(f"u{array.dtype.itemsize}")


def sign_bit(dtype: np.dtype[Any], /) -> int:
    """Return the bit pattern of -0.0."""
    return 1 << (8 * dtype.itemsize - 1)


def magnitude(array: Array, /) -> Array:
    """Return the bit patterns without their sign."""
    mask = np.array(sign_bit(array.dtype) - 1, f"u{array.dtype.itemsize}")
    result: Array = bits(array) & mask
    return result


def is_nan(array: Array, /) -> Array:
    """Return where the array is NaN, without a floating-point comparison."""
    result: Array = magnitude(array) > bits(np.array(np.inf, array.dtype))
    return result


def is_zero(array: Array, /) -> Array:
    """Return where the array is 0.0 or -0.0, without a floating-point comparison."""
    result: Array = magnitude(array) == 0
    return result


def negated(array: Array, /) -> Array:
    """Return -array by its sign bit, so that NaN and zeros flip too."""
    mask = np.array(sign_bit(array.dtype), f"u{array.dtype.itemsize}")
    result: Array = (bits(array) ^ mask).view(array.dtype)
    return result


def order(array: Array, /) -> Array:
    """Return integers ordered as the values are, equal for both zeros; not for NaN."""
    size = magnitude(array).astype(np.int64)
    return np.where(bits(array) >> (8 * array.dtype.itemsize - 1), -size, size)


def matches(actual: Array, expected: Array, /, *, ulps: int = 0) -> Array:
    """Return where both have the same bits, or are both NaN, or lie within `ulps`."""
    nan = is_nan(actual), is_nan(expected)
    equal: Array = (bits(actual) == bits(expected)) | (nan[0] & nan[1])
    if ulps:
        near = np.abs(order(actual) - order(expected)) <= ulps
        equal |= near & ~nan[0] & ~nan[1]
    return equal


def assert_same(
    actual: Any, expected: Array, /, *, x: Array, g: Array, what: str, ulps: int = 0
) -> int:
    """Assert that two results agree in dtype, shape and bits, and return how many pairs did.

    Args:
        actual: What a backend gave.
        expected: What is right.
        x: The activation's input, for the message.
        g: The incoming gradient, for the message.
        what: Which rule, dtype, mode and options this is, for the message.
        ulps: How far apart finite values may be.

    Raises:
        AssertionError: They differ.
    """
    if kind(actual) != kind(expected):
        raise AssertionError(f"{what}: expected {kind(expected)}, got {kind(actual)}")
    wrong = ~matches(actual, expected, ulps=ulps)
    if wrong.any():
        raise AssertionError(f"{what}: {_first(wrong, x, g, expected, actual)}")
    return int(expected.size)


def kind(value: Any, /) -> str:
    """Return dtype and shape as text; of anything but an array, its type."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def _first(wrong: Array, x: Array, g: Array, expected: Array, actual: Array) -> str:
    index = tuple(int(axis[0]) for axis in np.nonzero(wrong))
    values = {"x": x, "g": g, "expected": expected, "got": actual}
    shown = ", ".join(f"{name} {shown_bits(array[index])}" for name, array in values.items())
    return f"{np.count_nonzero(wrong)} of {wrong.size} differ; the first, at index {index}: {shown}"


def shown_bits(value: Any, /) -> str:
    """Return a value with its bit pattern, as in `1.0 (0x3c00)`.

    >>> shown_bits(np.float16(-0.0))
    '-0.0 (0x8000)'
    """
    pattern = int(bits(np.asarray(value)))
    return f"{float(value)!r} (0x{pattern:0{2 * value.dtype.itemsize}x})"
