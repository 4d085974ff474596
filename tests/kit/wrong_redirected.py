"""Redirected, wrong in one thing: liveness, the gate, what a dead sample takes, what follows.

It is the only rule that looks at whole samples, so most ways of being wrong are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wrong_rules import closed_gate, filters, open_gate, select, tiny, wrong


def redirects(
    rule: str = "redirected", **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a change to the parts of redirected: a function of a dict of them."""

    def register(change: Callable[..., Any]) -> Callable[..., Any]:
        def fn(x: Any, g: Any, *, bounds: Any, xp: Any, batch_axis: Any) -> Any:
            lo, hi = bounds
            axis = None if batch_axis is None else batch_axis % x.ndim
            over = tuple(a for a in range(x.ndim) if a != axis)
            gate = closed_gate(x, lo, hi)
            p = {"x": x, "g": g, "lo": lo, "hi": hi, "gate": gate, "over": over}
            p["passed"] = select(gate, g)
            p["live"] = lambda: np.any(p["passed"] != 0, axis=p["over"], keepdims=True)
            p["away"] = ((x < lo) & (g > 0)) | ((x > hi) & (g < 0))
            changed = change(dict(p))
            p.update(changed)
            live = p["live"]() if callable(p["live"]) else p["live"]
            return select((live & p["gate"]) | p["away"], g)

        fn.__name__ = change.__name__
        return wrong(rule, **options)(fn)

    return register


@redirects()
def redirected_over_the_whole_batch(p):
    return {"over": tuple(range(p["x"].ndim))}


@redirects()
def redirected_by_norm(p):
    square = np.sum(p["passed"] * p["passed"], axis=p["over"], keepdims=True)
    return {"live": np.sqrt(square) > 0}


@redirects()
def redirected_by_sum(p):
    with np.errstate(all="ignore"):
        return {"live": np.sum(p["passed"], axis=p["over"], keepdims=True) != 0}


@redirects()
def redirected_nan_is_dead(p):
    passed = p["passed"]
    return {"live": np.any((passed > 0) | (passed < 0), axis=p["over"], keepdims=True)}


@redirects()
def redirected_positive_is_live(p):
    return {"live": np.any(p["passed"] > 0, axis=p["over"], keepdims=True)}


@redirects()
def redirected_subnormal_is_dead(p):
    passed = np.where(tiny(p["passed"]), 0, p["passed"])
    return {"live": np.any(passed != 0, axis=p["over"], keepdims=True)}


@redirects()
def redirected_live_by_x(p):
    return {"live": np.any(~p["gate"], axis=p["over"], keepdims=True)}


@redirects()
def redirected_live_by_any_g(p):
    return {"live": np.any(p["g"] != 0, axis=p["over"], keepdims=True)}


@redirects()
def redirected_ties_block(p):
    gate = open_gate(p["x"], p["lo"], p["hi"])
    return {"gate": gate, "passed": select(gate, p["g"])}


@redirects()
def redirected_never(p):
    return {"live": np.array(True)}


@redirects()
def redirected_always(p):
    return {"live": np.array(False)}


@redirects()
def redirected_everything(p):
    return {"away": np.array(False)}


@redirects()
def redirected_the_wrong_way(p):
    x, g = p["x"], p["g"]
    return {"away": ((x < p["lo"]) & (g < 0)) | ((x > p["hi"]) & (g > 0))}


@redirects()
def redirected_blocks_zero(p):
    x, g = p["x"], p["g"]
    return {"away": ((x < p["lo"]) & (g >= 0)) | ((x > p["hi"]) & (g < 0))}


@redirects()
def redirected_forgets_above(p):
    return {"away": (p["x"] < p["lo"]) & (p["g"] > 0)}


@redirects(check="mixed_draws")
def redirected_over_axis_0(p):
    return {"over": tuple(range(1, p["x"].ndim))}


@redirects(check="mixed_draws")
def redirected_by_channel(p):
    return {"over": p["over"][1:]}


@redirects("redirected_relu6")
def redirected_relu6_forgets_above(p):
    return {"away": (p["x"] < p["lo"]) & (p["g"] > 0)}


@redirects("redirected_relu6")
def redirected_relu6_above_the_wrong_way(p):
    x, g = p["x"], p["g"]
    return {"away": ((x < p["lo"]) & (g > 0)) | ((x > p["hi"]) & (g > 0))}


@redirects("redirected_relu6")
def redirected_relu6_gate_forgets_hi(p):
    gate = p["x"] < p["lo"]
    return {"gate": gate, "passed": select(gate, p["g"])}


@redirects("redirected_relu6", check="lucid_golden")
def redirected_relu6_by_norm_of_g(p):
    return {"live": np.any(np.abs(p["passed"]) > 0.5, axis=p["over"], keepdims=True)}


@filters("redirected", check="mixed_draws", after=True)
def redirected_ends_in_standard(x, g, lo, hi):
    return open_gate(x, lo, hi)


@filters("redirected", check="lucid_golden", after=True)
def redirected_ends_in_identity(x, g, lo, hi):
    return np.zeros(x.shape, bool)
