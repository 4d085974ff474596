"""Ways to get `standard` wrong: its gate, what becomes of g, and the array it comes in."""

from __future__ import annotations

import numpy as np
from wrong_rules import closed_gate, filters, open_gate, select, tiny, wrong


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
