"""The built-in rules, in one table.

A filter rule is stated by what it *blocks*; everything else passes, NaN included, and what is
blocked becomes +0.0. Written that way NaN needs no thought (every comparison with it is
False, so it passes), and nothing is multiplied, so inf stays inf and -0.0 stays -0.0.

Boundaries follow each source, and exact zeros are common in real networks: `standard` and
`guided` block x == lo and x == hi, as frameworks do; `redirected` lets them pass, as Lucid
does, also after its schedule has ended. An infinite bound is no bound: behind a relu, x = inf
passes, as it does in every framework's own gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from relurules._rule import Bounds, Rule, RuleFn


def filter_fn(blocks: Callable[..., Any], /) -> RuleFn:
    """Make the function of a filter rule from the predicate that says what it blocks.

    Args:
        blocks: `blocks(x, g, *, bounds, xp, ...)`, a boolean array.

    Returns:
        A rule function that gives +0.0 where `blocks` is true and the bits of g elsewhere.

    Example:
        >>> import numpy as np
        >>> fn = filter_fn(lambda x, g, *, bounds, xp: g > 1)
        >>> fn(np.zeros(2), np.array([1.0, 2.0]), bounds=(0, np.inf), xp=np).tolist()
        [1.0, 0.0]
    """

    def fn(x: Any, g: Any, *, bounds: Bounds, xp: Any, **options: Any) -> Any:
        blocked = blocks(x, g, bounds=bounds, xp=xp, **options)
        return xp.where(blocked, xp.zeros_like(g), g)

    return fn


def _open_gate(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    lo, hi = bounds
    if hi == math.inf:  # no upper bound at all: x = inf passes, as in every framework's relu
        return x <= lo
    return x >= hi if lo == -math.inf else (x <= lo) | (x >= hi)


def _closed_gate(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    lo, hi = bounds
    return (x < lo) | (x > hi)


def _not_positive(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    return g <= 0


def _guided(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    return _open_gate(x, g, bounds=bounds, xp=xp) | (g <= 0)


def _redirected(x: Any, g: Any, *, bounds: Bounds, xp: Any, batch_axis: int | None) -> Any:
    lo, hi = bounds
    below, above = x < lo, x > hi
    passed = xp.where(below | above, xp.zeros_like(g), g)
    live = xp.any(passed != 0, axis=_feature_axes(x, batch_axis), keepdims=True)
    away = (below & (g > 0)) | (above & (g < 0))
    return (live & (below | above)) | away


def _feature_axes(x: Any, batch_axis: int | None) -> tuple[int, ...]:
    rank = len(x.shape)
    batch = None if batch_axis is None else batch_axis % rank
    return tuple(axis for axis in range(rank) if axis != batch)


def _identity(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    return g


def leaky(*, slope: float = 0.1) -> Rule:
    """Make the leaky rule: g is scaled by `slope` where x < lo, and passes elsewhere.

    Args:
        slope: The factor below lo, a finite float.

    Returns:
        A general rule (it computes, so backends agree within 1 ulp).

    Example:
        >>> import relurules
        >>> relurules.leaky(slope=0.5).name
        'leaky'
    """

    def fn(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
        return xp.where(x < bounds[0], g * slope, g)

    return Rule(
        name="leaky",
        fn=fn,
        is_filter=False,
        summary=f"scales g by {slope:g} where x < lo",
        source="Lucent (torch-lucent), redirected ReLU",
    )


_LUCID = "Lucid, redirected_relu_grad.py (Olah, Mordvintsev & Schubert 2017)"

_AFTER_REDIRECTED = Rule(
    name="closed_gate",
    fn=filter_fn(_closed_gate),
    gradient_of="loss",
    summary="blocks x < lo and x > hi",
    source=_LUCID,
)

STANDARD = Rule(
    name="standard",
    fn=filter_fn(_open_gate),
    summary="blocks x <= lo and x >= hi",
    source="Simonyan, Vedaldi & Zisserman 2013, arXiv:1312.6034",
    aliases=("saliency", "vanilla", "plain"),
)

BUILTIN: tuple[Rule, ...] = (
    STANDARD,
    Rule(
        name="deconv",
        fn=filter_fn(_not_positive),
        gradient_of="score",
        summary="blocks g <= 0",
        source="Zeiler & Fergus 2014, arXiv:1311.2901",
        aliases=("deconvnet", "deconvolution"),
    ),
    Rule(
        name="guided",
        fn=filter_fn(_guided),
        gradient_of="score",
        summary="blocks x <= lo, x >= hi and g <= 0",
        source="Springenberg et al. 2014, arXiv:1412.6806",
        aliases=("guided_backprop", "guided_backpropagation"),
    ),
    Rule(
        name="redirected",
        fn=filter_fn(_redirected),
        gradient_of="loss",
        scope="sample",
        after=_AFTER_REDIRECTED,
        summary="x < lo and x > hi; in a dead sample only where descent would push further out",
        source=_LUCID,
        aliases=("redirected_relu",),
    ),
    Rule(
        name="redirected_relu6",
        fn=filter_fn(_redirected),
        gradient_of="loss",
        scope="sample",
        kinds=frozenset({"relu6"}),
        after=_AFTER_REDIRECTED,
        summary="redirected, on relu6 sites only",
        source=_LUCID,
    ),
    leaky(),
    Rule(
        name="identity",
        fn=_identity,
        summary="blocks nothing (straight-through)",
        source="Bengio, Leonard & Courville 2013, arXiv:1308.3432",
        aliases=("open_relu", "straight_through"),
    ),
)
