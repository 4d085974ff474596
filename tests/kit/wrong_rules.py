"""Rules that are wrong in one thing, each with the check that must notice.

A suite is worth what it catches. These are the mistakes that people make when they write these
rules down, and some that compilers make for them. Each stands in for the right function of one
rule, inside a backend that is right in everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relurules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRule:
    name: str
    rule: str
    fn: Callable[..., Any]
    check: str
    after: bool = False

    def __call__(self, rule: Rule) -> Rule:
        """Return the rule, with the wrong function if it is the one meant."""
        if rule.name != self.rule:
            return rule
        if self.after:
            assert rule.after is not None
            return replace(rule, after=replace(rule.after, fn=self.fn))
        return replace(rule, fn=self.fn)


WRONG: dict[str, WrongRule] = {}


def wrong(
    rule: str, *, check: str = "special_grid", after: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        name = fn.__name__
        assert name not in WRONG
        WRONG[name] = WrongRule(name=name, rule=rule, fn=fn, check=check, after=after)
        return fn

    return register


def filters(rule: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of `(x, g, lo, hi)` that says what is blocked."""

    def register(blocks: Callable[..., Any]) -> Callable[..., Any]:
        def fn(x: Any, g: Any, *, bounds: Any, xp: Any, **_: Any) -> Any:
            return select(blocks(x, g, *bounds), g)

        fn.__name__ = blocks.__name__
        return wrong(rule, **options)(fn)

    return register


def select(blocked: Any, g: Any) -> Any:
    return np.where(blocked, np.zeros_like(g), g)


def open_gate(x: Any, lo: Any, hi: Any) -> Any:
    return (x <= lo) | (x >= hi)


def closed_gate(x: Any, lo: Any, hi: Any) -> Any:
    return (x < lo) | (x > hi)


def tiny(a: Any) -> Any:
    return np.abs(a) < np.finfo(a.dtype).smallest_normal


# --- standard ------------------------------------------------------------------------------


@filters("standard")
def standard_lo_passes(x, g, lo, hi):
    return (x < lo) | (x >= hi)


@filters("standard")
def standard_hi_passes(x, g, lo, hi):
    return (x <= lo) | (x > hi)


@filters("standard")
def standard_ignores_hi(x, g, lo, hi):
    return x <= lo


@filters("standard")
def standard_ignores_lo(x, g, lo, hi):
    return x >= hi


@filters("standard")
def standard_needs_both_sides(x, g, lo, hi):
    return (x <= lo) & (x >= hi)


@filters("standard")
def standard_blocks_nan(x, g, lo, hi):
    return ~((x > lo) & (x < hi))


@filters("standard")
def standard_of_a_relu(x, g, lo, hi):
    return x <= 0


@filters("standard")
def standard_of_a_relu6(x, g, lo, hi):
    return (x <= lo) | (x >= np.minimum(hi, 6))


@filters("standard")
def standard_flushes_x(x, g, lo, hi):
    return open_gate(np.where(tiny(x), 0, x), lo, hi)


@filters("standard")
def standard_of_absolute_x(x, g, lo, hi):
    return open_gate(np.abs(x), lo, hi)


@filters("standard")
def standard_looks_at_g(x, g, lo, hi):
    return open_gate(g, lo, hi)


@filters("standard")
def standard_with_unrounded_bounds(x, g, lo, hi):
    exact = {np.dtype(t).type(v): v for t in ("f2", "f4") for v in (-0.1, 0.3)}
    lo, hi = (exact.get(bound, float(bound)) for bound in (lo, hi))
    return open_gate(x.astype(np.float64), lo, hi)


@wrong("standard")
def standard_multiplies(x, g, *, bounds, xp):
    return g * ~open_gate(x, *bounds)


@wrong("standard")
def standard_blocks_with_minus_zero(x, g, *, bounds, xp):
    return np.where(open_gate(x, *bounds), -np.zeros_like(g), g)


@wrong("standard")
def standard_halves_at_ties(x, g, *, bounds, xp):
    half = np.where((x == bounds[0]) | (x == bounds[1]), g / 2, g)
    return select(closed_gate(x, *bounds), half)


@wrong("standard")
def standard_flips_g(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), -g)


@wrong("standard")
def standard_of_absolute_g(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), np.abs(g))


@wrong("standard")
def standard_adds_zero(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), g + g.dtype.type(0))


@wrong("standard")
def standard_flushes_g(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds) | tiny(g), g)


@wrong("standard")
def standard_tidies_g(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), np.nan_to_num(g, nan=0.0))


@wrong("standard")
def standard_rounds_g(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), g.astype(np.float16).astype(g.dtype))


@wrong("standard")
def standard_passes_x(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), x)


@wrong("standard")
def standard_widens(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), g).astype(np.float64)


@wrong("standard")
def standard_narrows(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), g).astype(np.float16)


@wrong("standard")
def standard_flattens(x, g, *, bounds, xp):
    return select(open_gate(x, *bounds), g).reshape(-1)


@filters("standard")
def standard_blocks_by_position(x, g, lo, hi):
    return open_gate(x, lo, hi) | (np.arange(x.shape[-1]) == 1)


@filters("standard")
def standard_blocks_the_first_sample(x, g, lo, hi):
    first = (np.arange(len(x)) == 0).reshape(-1, *[1] * (x.ndim - 1))
    return open_gate(x, lo, hi) | first


@wrong("standard", check="law[reads_only]")
def standard_works_in_place(x, g, *, bounds, xp):
    g[open_gate(x, *bounds)] = 0
    return g


@wrong("standard", check="law[reads_only]")
def standard_clips_x_in_place(x, g, *, bounds, xp):
    out = select(open_gate(x, *bounds), g)
    x[...] = 0
    return out


@wrong("standard", check="every_16_bit_pattern")
def standard_is_wrong_at_one_pattern(x, g, *, bounds, xp):
    odd = x.view(f"u{x.itemsize}") == 0x2E01
    return np.where(odd, np.zeros_like(g), select(open_gate(x, *bounds), g))


@wrong("standard", check="sizes")
def standard_blocks_nan_in_the_vector_body(x, g, *, bounds, xp):
    blocked = open_gate(x, *bounds)
    body = (np.arange(x.size) < x.size // 8 * 8).reshape(x.shape)
    return select(blocked | (body & np.isnan(x) & (x.ndim == 1)), g)


@wrong("standard", check="memory_layouts")
def standard_runs_through_memory(x, g, *, bounds, xp):
    flat = select(open_gate(x.ravel(order="K"), *bounds), g.ravel(order="K"))
    return flat.reshape(g.shape)


@wrong("standard", check="empty_arrays")
def standard_needs_an_element(x, g, *, bounds, xp):
    x.max()
    return select(open_gate(x, *bounds), g)


# --- deconv --------------------------------------------------------------------------------


@filters("deconv")
def deconv_zero_passes(x, g, lo, hi):
    return g < 0


@filters("deconv")
def deconv_loses_nan(x, g, lo, hi):
    return ~(g > 0)


@filters("deconv")
def deconv_of_the_other_sign(x, g, lo, hi):
    return g >= 0


@filters("deconv")
def deconv_looks_at_x(x, g, lo, hi):
    return (g <= 0) | (x < lo)


@filters("deconv")
def deconv_is_standard(x, g, lo, hi):
    return open_gate(x, lo, hi)


@filters("deconv")
def deconv_flushes_g(x, g, lo, hi):
    return (g <= 0) | tiny(g)


@filters("deconv")
def deconv_has_a_tolerance(x, g, lo, hi):
    return g <= 1e-7


@filters("deconv")
def deconv_has_a_threshold(x, g, lo, hi):
    return g < 1


@filters("deconv")
def deconv_blocks_infinity(x, g, lo, hi):
    return (g <= 0) | np.isinf(g)


@wrong("deconv")
def deconv_multiplies(x, g, *, bounds, xp):
    return g * ~(g <= 0)


@wrong("deconv")
def deconv_averages(x, g, *, bounds, xp):
    return (g + np.abs(g)) / 2


# --- guided --------------------------------------------------------------------------------


@filters("guided")
def guided_is_standard(x, g, lo, hi):
    return open_gate(x, lo, hi)


@filters("guided")
def guided_is_deconv(x, g, lo, hi):
    return g <= 0


@filters("guided")
def guided_needs_both(x, g, lo, hi):
    return open_gate(x, lo, hi) & (g <= 0)


@filters("guided")
def guided_ties_pass(x, g, lo, hi):
    return closed_gate(x, lo, hi) | (g <= 0)


@filters("guided")
def guided_zero_passes(x, g, lo, hi):
    return open_gate(x, lo, hi) | (g < 0)


@filters("guided")
def guided_loses_nan_in_g(x, g, lo, hi):
    return open_gate(x, lo, hi) | ~(g > 0)


@filters("guided")
def guided_loses_nan_in_x(x, g, lo, hi):
    return ~((x > lo) & (x < hi)) | (g <= 0)


@filters("guided")
def guided_ignores_hi(x, g, lo, hi):
    return (x <= lo) | (g <= 0)


@wrong("guided")
def guided_multiplies(x, g, *, bounds, xp):
    return g * ~(open_gate(x, *bounds) | (g <= 0))


# --- leaky and identity --------------------------------------------------------------------


@wrong("leaky")
def leaky_at_lo(x, g, *, bounds, xp):
    return np.where(x <= bounds[0], g * 0.1, g)


@wrong("leaky")
def leaky_by_a_hundredth(x, g, *, bounds, xp):
    return np.where(x < bounds[0], g * 0.01, g)


@wrong("leaky")
def leaky_above_too(x, g, *, bounds, xp):
    return np.where(closed_gate(x, *bounds), g * 0.1, g)


@wrong("leaky")
def leaky_for_one_sign(x, g, *, bounds, xp):
    return np.where((x < bounds[0]) & (g < 0), g * 0.1, g)


@wrong("leaky")
def leaky_is_two_ulps_off(x, g, *, bounds, xp):
    out = np.where(x < bounds[0], g * 0.1, g)
    return np.nextafter(np.nextafter(out, g.dtype.type(1)), g.dtype.type(1))


@filters("identity")
def identity_is_standard(x, g, lo, hi):
    return open_gate(x, lo, hi)


@filters("identity")
def identity_loses_nan(x, g, lo, hi):
    return np.isnan(g)


@wrong("identity")
def identity_adds_zero(x, g, *, bounds, xp):
    return g + g.dtype.type(0)
