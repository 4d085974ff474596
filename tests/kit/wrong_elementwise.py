"""Ways to get the other elementwise rules wrong: deconv, guided, leaky and identity."""

from __future__ import annotations

import numpy as np
from wrong_rules import closed_gate, filters, open_gate, tiny, wrong

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
