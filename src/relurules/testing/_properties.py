"""Laws that hold for every input, searched for an exception.

The specification answers for one input at a time, and a law needs no answer: that a rule only
selects, that samples do not meet, that guided is standard after deconv. Where a backend breaks
one, the law names what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relurules._rule import Bounds, Rule
from relurules.testing._bits import Array, assert_same, is_nan, is_zero, matches, negated
from relurules.testing._case import CompilingCase
from relurules.testing._check import Setting
from relurules.testing._draws import Draw, search
from relurules.testing._probe import DECONV, PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A property, and the rules that obey it."""

    holds: Callable[[Draw], None]
    obey: Callable[[Rule], bool]


def law(at: Setting) -> int:
    """No draw breaks it."""
    rules = tuple(filter(at.part.obey, at.rules))
    return search(at.part.holds, at.case, rules, at.profile) if rules else 0


def is_the_specification(d: Draw) -> None:
    """The backend gives the specification's bits."""
    _same(d, d(), d.specified(), "the specification", ulps=0 if d.rule.is_filter else 1)


def selects(d: Draw) -> None:
    """Each element of the result is the bits of g or +0.0."""
    out = d()
    kept = np.where(matches(out, np.zeros_like(out)), np.zeros_like(d.g), d.g)
    _same(d, out, kept, "g or +0.0")


def keeps_shape_and_dtype(d: Draw) -> None:
    """Shape and dtype are those of g."""
    out = d()
    if (out.shape, out.dtype) != (d.g.shape, d.g.dtype):
        raise AssertionError(f"{d!r}: got {out.dtype} of shape {out.shape}")


def reads_only(d: Draw) -> None:
    """The arrays that go in are not changed."""
    before = d.x.tobytes(), d.g.tobytes()
    d()
    if (d.x.tobytes(), d.g.tobytes()) != before:
        raise AssertionError(f"x or g was changed in place: {d!r}")


def is_idempotent(d: Draw) -> None:
    """What passed once passes again."""
    once = d()
    _same(d, d(g=once), once, "what passed the first time")


def scales(d: Draw) -> None:
    """A power of two passes through, where scaling loses nothing."""
    factor = d.g.dtype.type(2.0 ** (d.seed % 7 - 3))
    with np.errstate(all="ignore"):
        lossless = matches(d.g * factor / factor, d.g)
        g = np.where(lossless, d.g, np.zeros_like(d.g))
        scaled, out = g * factor, d(g=g)
        _same(d, d(g=scaled), out * factor, "the scaled result")


def permutes_samples(d: Draw) -> None:
    """Permuting samples permutes the result."""
    order = d.order(len(d.x))
    _same(d, d(d.x[order], d.g[order]), d()[order], "the permuted result")


def permutes_features(d: Draw) -> None:
    """Permuting features permutes the result."""
    order = d.order(d.x.shape[1])
    _same(d, d(d.x[:, order], d.g[:, order]), d()[:, order], "the permuted result")


def separates_samples(d: Draw) -> None:
    """A sample has the same result alone, and among copies of itself, as among others."""
    out = d()
    for i in range(len(d.x)):
        copies = np.full(len(d.x), i)
        _same(d, d(d.x[copies], d.g[copies]), out[copies], f"sample {i} of the batch")
        if not isinstance(d.case, CompilingCase):  # a batch of one would be a program of its own
            one = slice(i, i + 1)
            _same(d, d(d.x[one], d.g[one]), out[one], f"sample {i} alone")


def ignores_layout(d: Draw) -> None:
    """Memory layout does not matter."""
    _same(d, d(np.asfortranarray(d.x), d.g), d(), "the result in C order")
    _same(d, d(d.x[::-1, ::-1], d.g[::-1, ::-1]), d()[::-1, ::-1], "the reversed result")


def takes_any_batch_axis(d: Draw) -> None:
    """The batch axis may be any, counted from either end."""
    axis, out = (1 + d.seed) % d.x.ndim, d()  # searches begin with seed 0
    x, g = (np.ascontiguousarray(np.moveaxis(a, 0, axis)) for a in (d.x, d.g))
    for named in (axis, axis - d.x.ndim):
        moved = np.moveaxis(d(x, g, batch_axis=named), axis, 0)
        _same(d, moved, out, f"the result with batch_axis=0, not {named}")


def takes_one_sample(d: Draw) -> None:
    """`batch_axis=None` is one sample."""
    flat = d(d.x.reshape(1, -1), d.g.reshape(1, -1)).reshape(d.x.shape)
    _same(d, d(batch_axis=None), flat, "the result of one row")


def guided_is_both(d: Draw) -> None:
    """Guided is standard after deconv, and deconv after standard."""
    standard, deconv = d.under(PLAIN), d.under(DECONV)
    _same(d, d(), standard(g=deconv()), "standard after deconv")
    _same(d, d(), deconv(g=standard()), "deconv after standard")


def guided_is_the_smaller(d: Draw) -> None:
    """|guided| is the smaller of |standard| and |deconv|."""
    standard, deconv = (np.abs(value(d.under(rule)())) for rule in (PLAIN, DECONV))
    right = np.fmin(standard, deconv)
    if not np.array_equal(np.abs(value(d())), right, equal_nan=True):
        raise AssertionError(f"|guided| is not min(|standard|, |deconv|): {d!r}")


def deconv_ignores_x(d: Draw) -> None:
    """Deconv does not look at x."""
    _same(d, d(x=np.zeros_like(d.x)), d(), "the result at x = 0")


def deconv_splits(d: Draw) -> None:
    """deconv(g) - deconv(-g) is g."""
    with np.errstate(invalid="ignore"):
        total = value(d()) - value(d(g=negated(d.g)))
    if not np.array_equal(total, value(d.g), equal_nan=True):
        raise AssertionError(f"deconv(g) - deconv(-g) is not g: {d!r}")


def live_samples_are_gated(d: Draw) -> None:
    """In a live sample redirected is its closed gate."""
    gated = np.where(_outside(d.x, d.bounds), np.zeros_like(d.g), d.g)
    for out, row, x, g in zip(d(), gated, d.x, d.g, strict=True):
        if not is_zero(row).all():
            assert_same(out, row, x=x, g=g, what=f"a live sample of {d!r}")


def never_pushes_out(d: Draw) -> None:
    """Descent never pushes a blocked unit further out."""
    out, x = value(d()), value(d.x)
    lo, hi = _rounded(d.x, d.bounds)
    if np.any((x < lo) & (out > 0)) or np.any((x > hi) & (out < 0)):
        raise AssertionError(f"descent pushes a unit further out: {d!r}")


def mirrors_at_3(d: Draw) -> None:
    """redirected_relu6(6 - x, -g) is -redirected_relu6(x, g), on halves, where 6 - x is exact."""
    halves = (d.order(d.x.size + 28)[: d.x.size] % 29 - 8).reshape(d.x.shape) / 2
    x = halves.astype(d.x.dtype)
    mirrored = value(d((6 - halves).astype(x.dtype), negated(d.g)))
    if not np.array_equal(mirrored, -value(d(x)), equal_nan=True):
        raise AssertionError(f"not symmetric about 3 at x = {x.tolist()}: {d!r}")


def negates_for_the_other_sign(d: Draw) -> None:
    """For whoever differentiates the other sign the result is -rule(x, -g)."""
    other = "loss" if d.rule.gradient_of == "score" else "score"
    right = negated(d(g=negated(d.g)))
    _same(d, d(gradient_of=other), right, f"-rule(x, -g), of a {other}")


def value(array: Array, /) -> Array:
    """Return the values as float64, where -0.0 equals 0.0 and NaN is quiet."""
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64)
    return np.where(is_nan(array), np.nan, wide)


def _same(d: Draw, actual: Array, right: Array, what: str, *, ulps: int = 0) -> None:
    g = np.broadcast_to(d.g, right.shape) if d.g.shape == right.shape else right
    x = d.x if d.x.shape == right.shape else right
    assert_same(actual, np.ascontiguousarray(right), x=x, g=g, what=f"{what}: {d!r}", ulps=ulps)


def _outside(x: Array, bounds: Bounds) -> Array:
    lo, hi = _rounded(x, bounds)
    result: Array = ((value(x) < lo) | (value(x) > hi)) & ~is_nan(x)
    return result


def _rounded(x: Array, bounds: Bounds) -> Array:
    return value(np.array(bounds, x.dtype))


def _any(rule: Rule) -> bool:
    return True


def _filters(rule: Rule) -> bool:
    return rule.is_filter


def _samples(rule: Rule) -> bool:
    return rule.scope == "sample"


def _signed(rule: Rule) -> bool:
    return rule.gradient_of is not None


def _is(name: str) -> Callable[[Rule], bool]:
    return lambda rule: rule.name == name


_OBEY: tuple[tuple[Callable[[Draw], None], Callable[[Rule], bool]], ...] = (
    (is_the_specification, _any),
    (keeps_shape_and_dtype, _any),
    (reads_only, _any),
    (selects, _filters),
    (is_idempotent, _filters),
    (scales, _filters),
    (permutes_samples, _any),
    (permutes_features, _any),
    (separates_samples, _any),
    (ignores_layout, _any),
    (takes_any_batch_axis, _samples),
    (takes_one_sample, _samples),
    (guided_is_both, _is("guided")),
    (guided_is_the_smaller, _is("guided")),
    (deconv_ignores_x, _is("deconv")),
    (deconv_splits, _is("deconv")),
    (live_samples_are_gated, _samples),
    (never_pushes_out, _samples),
    (mirrors_at_3, _is("redirected_relu6")),
    (negates_for_the_other_sign, _signed),
)

LAWS: tuple[tuple[str, Law], ...] = tuple(
    (holds.__name__, Law(holds=holds, obey=obey)) for holds, obey in _OBEY
)
