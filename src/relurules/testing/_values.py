"""What rules are tried on: the values at which they go wrong, and the samples that hide it.

Random normals meet none of the cases that tell two rules apart: no exact zero, no NaN, no
subnormal, and hardly ever a dead sample. So special values are listed, paired in full, and
put beside neighbours that make their sample live or dead; half of every draw's rows are dead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from relurules._rule import Bounds, Rule, kind_of
from relurules.testing._bits import Array, bits, sign_bit
from relurules.testing._extra import dtype_of

Pair: TypeAlias = tuple[Array, Array]

RELU: Bounds = (0.0, math.inf)
RELU6: Bounds = (0.0, 6.0)
BOUNDS: tuple[Bounds, ...] = (RELU, RELU6, (-1.0, 1.0), (-0.1, 0.3))
"""The last one has bounds that no dtype holds exactly."""

SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 1000, 4097)
"""Around the widths of vector registers, where a scalar tail may follow another code path."""

_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
_EDGES = (0.1, 0.3, 1.0, 6.0)
_PLAIN = (7.0, 100.0)
_NEIGHBOURS = ((-100.0, 0.0), (-100.0, 1.0), (0.2, 1.0), (100.0, 1.0))


def bounds_for(rule: Rule, /) -> tuple[Bounds, ...]:
    """Return the bounds of `BOUNDS` whose sites take the rule."""
    return tuple(bounds for bounds in BOUNDS if rule.takes(kind_of(bounds)))


@functools.cache
def specials(dtype: str, /) -> Array:
    """Return the special values of both signs: zeros, subnormals, edges, infinities, NaNs."""
    normal = 1 << _MANTISSA[dtype]
    infinity = _pattern(math.inf, dtype)
    quiet = infinity | normal >> 1
    patterns = [0, 1, 2, normal >> 1, normal - 1, normal, normal + 1, infinity - 1, infinity]
    patterns += [infinity + 1, quiet, quiet + 5]
    patterns += [_pattern(value, dtype) for value in _PLAIN]
    patterns += [_pattern(edge, dtype) + step for edge in _EDGES for step in (-1, 0, 1)]
    found = signed(np.array(sorted(set(patterns)), _unsigned(dtype)), dtype)
    found.flags.writeable = False  # it is shared
    return found


def signed(patterns: Array, dtype: str, /) -> Array:
    """Return the values of these bit patterns, positive and then negative."""
    sign = np.array(sign_bit(dtype_of(dtype)), patterns.dtype)
    result: Array = np.concatenate([patterns, patterns | sign]).view(dtype_of(dtype))
    return result


def grid(dtype: str, /) -> Pair:
    """Return every pair of special values as samples, beside each kind of neighbours.

    Neighbours without a gradient, that die below the bounds, that live within them, and that
    are above: what is right for a pair may depend on them, and must not where it should not.
    """
    values = specials(dtype)
    x, g = np.repeat(values, len(values))[:, None], np.tile(values, len(values))[:, None]
    one = np.ones_like(g)
    beside = [(one * one.dtype.type(at), one * one.dtype.type(of)) for at, of in _NEIGHBOURS]
    rows = [(np.hstack([x, a, a]), np.hstack([g, -b, b])) for a, b in beside]
    xs, gs = zip(*rows, strict=True)
    return np.vstack(xs), np.vstack(gs)


def sweep(dtype: str, /) -> Pair:
    """Return every 16-bit x with each special g, and every 16-bit g with each special x."""
    values = specials(dtype)[None, :]
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype_of(dtype))[:, None]
    one, other = (a.reshape(-1, 1) for a in np.broadcast_arrays(every, values))
    return np.vstack([one, other]), np.vstack([other, one])


def mixed(dtype: str, bounds: Bounds, seed: int, /, *, shape: tuple[int, ...] = (6, 3, 4)) -> Pair:
    """Return ties, normals and specials at random, every second row of x dead."""
    random = np.random.default_rng(seed)
    ties, normals = random.integers(-2, 9, (2, *shape)), random.normal(0, 3, (2, *shape))
    plain = np.where(random.random((2, *shape)) < 0.5, ties, normals).astype(dtype_of(dtype))
    special = random.choice(specials(dtype), (2, *shape))
    x, g = np.where(random.random((2, *shape)) < 0.1, special, plain)
    return deadened(x, bounds, rows=slice(seed % 2, None, 2)), g


def deadened(x: Array, bounds: Bounds, /, *, rows: slice = slice(None)) -> Array:
    """Return x with the elements of these rows moved outside the bounds, below and above."""
    lo, hi = bounds
    above = hi + 1 if math.isfinite(hi) else lo - 2
    outside = np.where(np.arange(x.size).reshape(x.shape) % 2, lo - 1, above)
    out = x.copy()
    out[rows] = outside.astype(x.dtype)[rows]
    return out


def layouts(pair: Pair, /) -> Iterator[tuple[str, Array, Array]]:
    """Yield a pair of rank 4 in several memory layouts, its values the same or permuted."""
    x, g = pair
    yield "Fortran order", np.asfortranarray(x), np.asfortranarray(g)
    yield "mixed orders", np.asfortranarray(x), g
    yield "channels last", _channels_last(x), _channels_last(g)
    yield "every second element", _spread(x), _spread(g)
    yield "transposed", x.swapaxes(1, 3), g.swapaxes(1, 3)
    yield "reversed", x[:, ::-1], g[:, ::-1]
    yield "expanded gradient", x, _expanded(g[:, :1, :1, :1], x.shape)


def _expanded(a: Array, shape: tuple[int, ...]) -> Array:
    """Return what `np.broadcast_to` does, but writable, as some frameworks want their input."""
    return np.lib.stride_tricks.as_strided(a, shape, np.broadcast_to(a, shape).strides)


def _channels_last(a: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(a, 1, -1)).swapaxes(1, 3).swapaxes(2, 3)


def _spread(a: Array) -> Array:
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def _pattern(value: float, dtype: str) -> int:
    return int(bits(np.array(value, dtype_of(dtype))))


def _unsigned(dtype: str) -> str:
    return f"u{dtype_of(dtype).itemsize}"
