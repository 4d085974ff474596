"""What the rules must give, computed slowly from their definitions, and what to try them on.

A reference that shares code with what it checks shares its mistakes. So every rule is stated
here a second time, one element after the other in Python floats, shaped as its source states
it, and nothing of the package is imported. Python floats hold every value of every dtype
exactly, and what a rule lets pass is copied as an integer, so comparisons are bit for bit.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16, finfo

Array = npt.NDArray[Any]
Bounds = tuple[float, float]
Pairs = list[tuple[float, float]]
Candidate = Callable[["Case", Bounds], Array]

DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
RELU: Bounds = (0.0, math.inf)
RELU6: Bounds = (0.0, 6.0)
BOUNDS: tuple[Bounds, ...] = (RELU, RELU6, (-1.0, 1.0), (-0.1, 0.3))
LAST_STEP = 16

# --- The rules ---------------------------------------------------------------------------

Result = float | None
KEEP = None
"""What an oracle returns for an element that passes: its bits of g are copied."""

ORACLES: dict[str, Callable[..., list[Result]]] = {}


def replicates(name: str, *, sample: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Register the oracle of a rule, of one element or of all pairs (x, g) of a sample."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        def each(pairs: Pairs, lo: float, hi: float, **options: Any) -> list[Result]:
            return [fn(x, g, lo, hi, **options) for x, g in pairs]

        ORACLES[name] = fn if sample else each
        return fn

    return register


def closed(x: float, lo: float, hi: float) -> bool:
    """Whether the activation is flat at x; a bound that is infinite is none."""
    return (x <= lo and lo != -math.inf) or (x >= hi and hi != math.inf)


@replicates("standard")
def standard(x: float, g: float, lo: float, hi: float, **_: Any) -> Result:
    """The derivative of clip(x, lo, hi) on the open interval."""
    if closed(x, lo, hi):
        return 0.0
    return KEEP


@replicates("deconv")
def deconv(x: float, g: float, lo: float, hi: float, **_: Any) -> Result:
    """Zeiler & Fergus: the rectifier is applied to what comes from above."""
    if g <= 0:
        return 0.0
    return KEEP


@replicates("guided")
def guided(x: float, g: float, lo: float, hi: float, **_: Any) -> Result:
    """Springenberg et al.: both masks, that of the forward and that of the backward pass."""
    if closed(x, lo, hi) or g <= 0:
        return 0.0
    return KEEP


@replicates("redirected", sample=True)
def redirected(
    pairs: Pairs, lo: float, hi: float, *, step: int = 0, last_step: int = LAST_STEP
) -> list[Result]:
    """Lucid: a sample through which nothing passes takes what descent can use."""
    gated: list[Result] = [0.0 if x < lo or x > hi else KEEP for x, _ in pairs]
    live = False
    for (_, g), out in zip(pairs, gated, strict=True):
        if out is KEEP and g != 0:
            live = True
    if live or step > last_step:
        return gated
    result: list[Result] = []
    for x, g in pairs:
        pushed_down = x < lo and g > 0
        pushed_up = x > hi and g < 0
        result.append(0.0 if pushed_down or pushed_up else KEEP)
    return result


@replicates("redirected_relu6", sample=True)
def redirected_relu6(pairs: Pairs, lo: float, hi: float, **options: Any) -> list[Result]:
    """Lucid's second rule; sites that are no relu6 keep their standard gradient."""
    if (lo, hi) == RELU6:
        return redirected(pairs, lo, hi, **options)
    return [standard(x, g, lo, hi) for x, g in pairs]


@replicates("leaky")
def leaky(x: float, g: float, lo: float, hi: float, *, slope: float = 0.1, **_: Any) -> Result:
    """Lucent: below lo a fixed part of the gradient leaks through."""
    if x < lo:
        return g * slope
    return KEEP


@replicates("identity")
def identity(x: float, g: float, lo: float, hi: float, **_: Any) -> Result:
    """Straight-through."""
    return KEEP


def run(
    name: str,
    x: Array,
    g: Array,
    *,
    bounds: Bounds = RELU,
    batch_axis: int | None = 0,
    step: int = 0,
    slope: float | None = None,
) -> Array:
    """Return what rule `name` must give."""
    dtype = x.dtype
    lo, hi = rounded(bounds[0], dtype), rounded(bounds[1], dtype)
    options: dict[str, Any] = {"step": step} if name.startswith("redirected") else {}
    if name == "leaky":
        options["slope"] = rounded(0.1 if slope is None else slope, dtype)
    passed, out = bits(g), np.zeros(g.shape, bits(g).dtype)
    for sample in samples(x.shape, batch_axis):
        pairs = [(float(x[index]), float(g[index])) for index in sample]
        results = ORACLES[name](pairs, lo, hi, **options)
        for index, value in zip(sample, results, strict=True):
            out[index] = passed[index] if value is KEEP else bits(exact(value, dtype))
    return out.view(dtype)


def samples(shape: tuple[int, ...], batch_axis: int | None) -> list[list[tuple[int, ...]]]:
    """Return the indices of each sample's elements."""
    groups: dict[int, list[tuple[int, ...]]] = {}
    for index in np.ndindex(shape):
        groups.setdefault(0 if batch_axis is None else index[batch_axis], []).append(index)
    return list(groups.values())


def kind(bounds: Bounds) -> str:
    """Return the kind of site with these bounds."""
    return {RELU: "relu", RELU6: "relu6"}.get(bounds, "hardtanh")


# --- Bits --------------------------------------------------------------------------------


def bits(array: Array) -> Array:
    """Return the array's bit patterns as unsigned integers, sharing its memory."""
    return array.view(f"u{array.dtype.itemsize}")


def smallest_normal(dtype: np.dtype[Any]) -> float:
    return float(finfo(dtype).smallest_normal)


def exact(value: float, dtype: np.dtype[Any]) -> Array:
    """Return a Python float in `dtype`, rounded once."""
    with np.errstate(all="ignore"):
        return np.array(value).astype(dtype)


def rounded(value: float, dtype: np.dtype[Any]) -> float:
    """Return the value of `dtype` that is next to `value`."""
    return float(exact(value, dtype))


def negated(array: Array) -> Array:
    """Return -array by flipping the sign bit, of NaN too."""
    return (bits(array) ^ sign_bit(array.dtype)).view(array.dtype)


def sign_bit(dtype: np.dtype[Any]) -> Any:
    """Return the bit pattern of -0.0."""
    return bits(np.array(-0.0, dtype))[()]


def magnitude(array: Array) -> Array:
    """Return the bits of |array|; they are ordered as its values are, NaN last."""
    return bits(array) & ~sign_bit(array.dtype)


def order(array: Array) -> Array:
    """Return integers that are ordered as the values are, 0 for both zeros; not for NaN."""
    size = magnitude(array).astype(np.int64)
    return np.where(bits(array) & sign_bit(array.dtype), -size, size)


def is_nan(array: Array) -> Any:
    """Return where the array is NaN, by its bits."""
    return magnitude(array) > bits(np.array(np.inf, array.dtype))


def outside(x: Array, bounds: Bounds) -> Any:
    """Return where x < lo or x > hi, by its bits."""
    lo, hi = (order(exact(bound, x.dtype)) for bound in bounds)
    return ((order(x) < lo) | (order(x) > hi)) & ~is_nan(x)


def matches(actual: Array, expected: Array, *, ulps: int = 0) -> Any:
    """Return where both have the same bits, or both NaN, or at most `ulps` between them."""
    both_nan = is_nan(actual) & is_nan(expected)
    equal = (bits(actual) == bits(expected)) | both_nan
    if ulps:
        either_nan = is_nan(actual) | is_nan(expected)
        equal |= ~either_nan & (abs(order(actual) - order(expected)) <= ulps)
    return equal


def same(actual: Array, expected: Array, *, ulps: int = 0) -> bool:
    """Return whether shape, dtype and every element match."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return bool(np.all(matches(actual, expected, ulps=ulps)))


def blocks(name: str, x: Array, g: Array, bounds: Bounds) -> Any:
    """Return what a filter rule blocks, from the order of the bits; each element a sample."""
    lo, hi = (order(exact(bound, x.dtype)) for bound in bounds)
    at, sign = order(x), order(g)
    x_ok, g_ok = ~is_nan(x), ~is_nan(g)
    low, high = bool(np.isfinite(bounds[0])), bool(np.isfinite(bounds[1]))
    gate, negative = ((at <= lo) & low | (at >= hi) & high) & x_ok, (sign <= 0) & g_ok
    further_out = ((at < lo) & (sign > 0) | (at > hi) & (sign < 0)) & x_ok & g_ok
    table = {
        "standard": gate,
        "deconv": negative,
        "guided": gate | negative,
        "identity": np.zeros_like(gate),
        "redirected": further_out,
    }
    return table[name]


# --- What to try -------------------------------------------------------------------------


class Case(NamedTuple):
    """One input of a rule."""

    x: Array
    g: Array
    batch_axis: int | None = 0
    step: int = 0


@functools.cache
def specials(dtype: np.dtype[Any]) -> Array:
    """Return the values at which rules go wrong, of both signs; NaN quiet and signalling."""
    edges = [smallest_normal(dtype), 0.1, 0.3, 1.0, 6.0]
    plain = [0.0, 7.0, 100.0, float(finfo(dtype).max), math.inf]
    quiet, infinity = _pattern(math.nan, dtype), _pattern(math.inf, dtype)
    patterns = [_pattern(value, dtype) for value in plain]
    patterns += [_pattern(edge, dtype) + step for edge in edges for step in (-1, 0, 1)]
    patterns += [1, infinity + 1, quiet, quiet + 5]
    positive = np.array(patterns, f"u{dtype.itemsize}")
    return np.concatenate([positive, positive | sign_bit(dtype)]).view(dtype)


def _pattern(value: float, dtype: np.dtype[Any]) -> int:
    return int(magnitude(exact(value, dtype)))


def pairs(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return every pair of special values as two columns, each pair a sample of its own."""
    values = specials(dtype)
    x, g = np.repeat(values, len(values)), np.tile(values, len(values))
    return x[:, None], g[:, None]


def beside(dtype: np.dtype[Any], neighbour: float) -> tuple[Array, Array]:
    """Return every pair of special values with neighbours at x = `neighbour`, g = -1 and 1."""
    x, g = pairs(dtype)
    fill = np.ones_like(x)
    neighbours = fill * dtype.type(neighbour)
    return np.hstack([x, neighbours, neighbours]), np.hstack([g, -fill, fill])


def drawn(dtype: np.dtype[Any], bounds: Bounds, seed: int) -> tuple[Array, Array]:
    """Return a random (6, 3, 4) input of ties, normals and specials, half of its rows dead."""
    random = np.random.default_rng(seed)
    shape, values = (6, 3, 4), specials(dtype)
    ties, normals = random.integers(-2, 9, (2, *shape)), random.normal(0, 3, (2, *shape))
    mixed = np.where(random.random((2, *shape)) < 0.5, ties, normals).astype(dtype)
    x, g = np.where(random.random((2, *shape)) < 0.1, random.choice(values, (2, *shape)), mixed)
    return dead(x, bounds, rows=random.permutation(6)[:3]), g


def dead(x: Array, bounds: Bounds, rows: Any = slice(None)) -> Array:
    """Return x with those of the given rows' elements that the gate passes moved outside."""
    lo, hi = bounds
    below, above = lo - 1, hi + 1 if math.isfinite(hi) else lo - 2
    moved = np.where(np.arange(x.size).reshape(x.shape) % 2, below, above).astype(x.dtype)
    out = x.copy()
    out[rows] = np.where(outside(x, bounds), x, moved)[rows]
    return out


def inputs(dtype: np.dtype[Any], bounds: Bounds) -> Iterator[Case]:
    """Yield what every rule is tried on: all special pairs, and draws over axes and steps."""
    yield Case(*pairs(dtype))
    yield Case(*beside(dtype, -100.0))
    yield Case(*beside(dtype, 100.0))
    grid = itertools.product((0, 1, -1, None), (0, LAST_STEP, LAST_STEP + 1), range(2))
    for seed, (batch_axis, step, _) in enumerate(grid):
        x, g = drawn(dtype, bounds, seed)
        if batch_axis:
            x, g = np.moveaxis(x, 0, batch_axis), np.moveaxis(g, 0, batch_axis)
        yield Case(x, g, batch_axis, step)


def every_pattern(dtype: np.dtype[Any]) -> Array:
    """Return every value of a 16-bit dtype."""
    return np.arange(2**16, dtype=np.uint16).view(dtype)


def sweeps(dtype: np.dtype[Any]) -> list[tuple[Array, Array]]:
    """Return every x with the special g, and every g with the special x, of a 16-bit dtype."""
    every, special = every_pattern(dtype)[:, None], specials(dtype)[None, :]
    every, special = (np.ascontiguousarray(a) for a in np.broadcast_arrays(every, special))
    return [(every, special), (special, every)]


@functools.cache
def expected(name: str, dtype: str, bounds: Bounds) -> tuple[tuple[Case, Array], ...]:
    """Return the inputs of a rule, each with what the rule must give."""
    cases = inputs(DTYPES[dtype], bounds)
    return tuple((case, run(name, bounds=bounds, **case._asdict())) for case in cases)


def first_difference(candidate: Candidate, name: str, dtype: str, bounds: Bounds) -> str:
    """Return the first input on which `candidate` differs from rule `name`, or nothing."""
    ulps = 1 if (name, dtype) == ("leaky", "bfloat16") else 0
    for case, right in expected(name, dtype, bounds):
        actual = candidate(case, bounds)
        if not same(actual, right, ulps=ulps):
            return _described(case, actual, right, ulps)
    return ""


def _described(case: Case, actual: Array, right: Array, ulps: int) -> str:
    if actual.shape != right.shape or actual.dtype != right.dtype:
        return f"{actual.dtype}{actual.shape} instead of {right.dtype}{right.shape}"
    where = tuple(int(i[0]) for i in np.nonzero(~matches(actual, right, ulps=ulps)))
    return (
        f"at x = {case.x[where]!r}, g = {case.g[where]!r}, index {where} of {case.x.shape}, "
        f"batch_axis {case.batch_axis}, step {case.step}: {actual[where]!r} "
        f"instead of {right[where]!r}"
    )
