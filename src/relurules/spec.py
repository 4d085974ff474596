"""The rules as plain NumPy functions: what every backend must equal, bit for bit.

This is the one place that says which number is right, so it validates what frameworks let
through in silence (mixed dtypes, broadcasting, integers) and it never uses a framework. The
functions are the built-in rules run on NumPy; `evaluate` runs any `Rule` the same way.

>>> import numpy as np
>>> x, g = np.array([-1.0, 1.0, 2.0, -3.0]), np.array([1.0, -1.0, 2.0, 3.0])
>>> standard(x, g).tolist(), deconv(x, g).tolist(), guided(x, g).tolist()
([0.0, -1.0, 2.0, 0.0], [1.0, 0.0, 2.0, 3.0], [0.0, 0.0, 2.0, 0.0])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from relurules import _library, _rule
from relurules._rule import Bounds, GradientOf, Rule
from relurules._schedule import Schedule, until
from relurules.errors import InvalidRuleError

__all__ = [
    "DTYPES",
    "deconv",
    "evaluate",
    "guided",
    "identity",
    "leaky",
    "redirected",
    "redirected_relu6",
    "standard",
]

DTYPES = ("float16", "bfloat16", "float32", "float64")
"""The dtypes a rule is defined for; bfloat16 is the one of the package ml_dtypes."""

RELU: Bounds = (0.0, math.inf)
RELU6: Bounds = (0.0, 6.0)

Array = npt.NDArray[Any]

_RULES = {rule.name: rule for rule in _library.BUILTIN}


def evaluate(
    rule: Rule,
    x: npt.ArrayLike,
    g: npt.ArrayLike,
    *,
    bounds: Bounds = RELU,
    batch_axis: int | None = 0,
    gradient_of: GradientOf | None = None,
    schedule: Schedule | None = None,
    step: int = 0,
) -> Array:
    """Return the gradient that any rule lets pass, computed by NumPy.

    Args:
        rule: The rule; `standard` is taken instead where `rule.kinds` leaves such bounds out.
        x: The activation's input, of any shape and one of `DTYPES`.
        g: The incoming gradient, of the shape and dtype of x.
        bounds: `(lo, hi)` of the activation `clip(x, lo, hi)`; rounded to x's dtype first, as
            the forward does.
        batch_axis: The axis that separates samples; None makes the tensor one sample. Only
            rules that look at whole samples read it.
        gradient_of: `"score"` or `"loss"`, what is differentiated; None is the rule's own
            convention. Where it is the other one the result is `-rule(x, -g)`.
        schedule: When the rule is active; None is always.
        step: The optimisation step, counting from 0.

    Returns:
        A new array of the shape and dtype of g.

    Raises:
        TypeError: A dtype outside `DTYPES`, or two different ones.
        ValueError: Two shapes, bounds that are not `lo < hi`, an unknown `gradient_of`, or no
            features beside the batch axis.
        InvalidRuleError: The rule does not keep shape and dtype.

    Example:
        >>> evaluate(_library.leaky(slope=0.5), [-1.0, 1.0], [4.0, 4.0]).tolist()
        [2.0, 4.0]
    """
    x, g = _read_only(x), _read_only(g)
    _check(x, g)
    if gradient_of not in (None, "score", "loss"):
        raise ValueError(f"gradient_of must be 'score', 'loss' or None; got {gradient_of!r}.")
    if not rule.takes(_rule.kind_of(bounds)):
        rule = _library.STANDARD
    with np.errstate(all="ignore"):
        out = _rule.evaluate(
            rule,
            x,
            g,
            bounds=_rounded(bounds, x.dtype),
            xp=np,
            batch_axis=batch_axis,
            gradient_of=gradient_of,
            active=bool(schedule.active(step)) if schedule else True,
            standard=_library.STANDARD,
        )
        return _owned(out, g, rule)


def standard(x: npt.ArrayLike, g: npt.ArrayLike, *, bounds: Bounds = RELU) -> Array:
    """Block x <= lo and x >= hi: the gradient of the activation itself.

    An infinite bound is no bound, so x = inf passes a relu.

    Source: Simonyan, Vedaldi & Zisserman 2013, arXiv:1312.6034. Arguments as `evaluate`.

    Example:
        >>> standard([-1.0, 0.0, 7.0], [1.0, 1.0, 1.0]).tolist()
        [0.0, 0.0, 1.0]
    """
    return evaluate(_RULES["standard"], x, g, bounds=bounds)


def deconv(x: npt.ArrayLike, g: npt.ArrayLike, *, bounds: Bounds = RELU) -> Array:
    """Block g <= 0, whatever x is. g is the gradient of a score.

    Source: Zeiler & Fergus 2014, arXiv:1311.2901. Arguments as `evaluate`.

    Example:
        >>> deconv([-1.0, 1.0], [2.0, -2.0]).tolist()
        [2.0, 0.0]
    """
    return evaluate(_RULES["deconv"], x, g, bounds=bounds)


def guided(x: npt.ArrayLike, g: npt.ArrayLike, *, bounds: Bounds = RELU) -> Array:
    """Block x <= lo, x >= hi and g <= 0. g is the gradient of a score.

    Source: Springenberg et al. 2014, arXiv:1412.6806. Arguments as `evaluate`.

    Example:
        >>> guided([-1.0, 3.0, 7.0], [1.0, 1.0, 1.0], bounds=(0, 6)).tolist()
        [0.0, 1.0, 0.0]
    """
    return evaluate(_RULES["guided"], x, g, bounds=bounds)


def redirected(
    x: npt.ArrayLike,
    g: npt.ArrayLike,
    step: int = 0,
    last_step: int = 16,
    batch_axis: int | None = 0,
    *,
    bounds: Bounds = RELU,
) -> Array:
    """Let a dead sample take the gradient that would wake it. g is the gradient of a loss.

    A sample is live where some element that the gate (x < lo or x > hi blocks) passes is
    nonzero; NaN and subnormals count. In a live sample, and past `last_step`, the gate
    decides alone. In a dead one only (x < lo and g > 0) or (x > hi and g < 0) is blocked:
    what descent would push further out.

    Source: Lucid, `redirected_relu_grad.py`, but for two cases: liveness is exact where Lucid
    tests `norm > 0` (which under- and overflows, and is False on NaN), and subnormals are
    compared as IEEE numbers where TensorFlow flushes them.

    Args:
        x: The activation's input, rank 2 or more unless `batch_axis` is None.
        g: The gradient of a loss that is minimised.
        step: The optimisation step, counting from 0.
        last_step: The last step at which dead samples are redirected.
        batch_axis: The axis that separates samples, or None for one sample.
        bounds: `(lo, hi)` of the activation.

    Returns:
        A new array of the shape and dtype of g.

    Raises:
        TypeError: As `evaluate`.
        ValueError: As `evaluate`.

    Example:
        >>> x, g = [[-1.0, -2.0], [3.0, -2.0]], [[-1.0, 1.0], [1.0, -1.0]]
        >>> redirected(x, g).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
        >>> redirected(x, g, step=17).tolist()
        [[0.0, 0.0], [1.0, 0.0]]
    """
    return evaluate(
        _RULES["redirected"],
        x,
        g,
        bounds=bounds,
        batch_axis=batch_axis,
        schedule=until(last_step),
        step=step,
    )


def redirected_relu6(
    x: npt.ArrayLike,
    g: npt.ArrayLike,
    step: int = 0,
    last_step: int = 16,
    batch_axis: int | None = 0,
    *,
    bounds: Bounds = RELU6,
) -> Array:
    """Do what `redirected` does where the bounds are a relu6's, (0, 6); else `standard`.

    Source: Lucid, `redirected_relu_grad.py`. Arguments and errors as `redirected`.

    Example:
        >>> redirected_relu6([[7.0, -1.0]], [[1.0, -1.0]]).tolist()
        [[1.0, -1.0]]
        >>> redirected_relu6([[7.0, -1.0]], [[1.0, -1.0]], bounds=(0, math.inf)).tolist()
        [[1.0, 0.0]]
    """
    return evaluate(
        _RULES["redirected_relu6"],
        x,
        g,
        bounds=bounds,
        batch_axis=batch_axis,
        schedule=until(last_step),
        step=step,
    )


def leaky(
    x: npt.ArrayLike, g: npt.ArrayLike, *, slope: float = 0.1, bounds: Bounds = RELU
) -> Array:
    """Scale g by `slope` where x < lo; a general rule, to be met within 1 ulp.

    Source: Lucent's redirected ReLU. Other arguments as `evaluate`.

    Example:
        >>> leaky([-1.0, 1.0], [1.0, 1.0]).tolist()
        [0.1, 1.0]
    """
    return evaluate(_library.leaky(slope=slope), x, g, bounds=bounds)


def identity(x: npt.ArrayLike, g: npt.ArrayLike, *, bounds: Bounds = RELU) -> Array:
    """Block nothing: the straight-through estimator. Arguments as `evaluate`.

    Source: Bengio, Leonard & Courville 2013, arXiv:1308.3432.

    Example:
        >>> identity([-1.0, 1.0], [1.0, -1.0]).tolist()
        [1.0, -1.0]
    """
    return evaluate(_RULES["identity"], x, g, bounds=bounds)


def _read_only(values: npt.ArrayLike) -> Array:
    array = np.asarray(values).view()
    array.flags.writeable = False  # a rule is pure; one that is not shall fail
    return array


def _owned(out: Any, g: Array, rule: Rule) -> Array:
    found = np.asarray(out)
    # NumPy makes float32 of bfloat16 wherever a rule computes, so that one is rounded back.
    widened = (found.dtype.name, g.dtype.name) == ("float32", "bfloat16")
    if found.shape != g.shape or not (found.dtype.name == g.dtype.name or widened):
        raise InvalidRuleError(
            f"Rule {rule.name!r} returned {found.dtype} of shape {found.shape} for a gradient "
            f"of {g.dtype} and shape {g.shape}; a rule keeps both."
        )
    return np.array(found, dtype=g.dtype)


def _check(x: Array, g: Array) -> None:
    for name, array in (("x", x), ("g", g)):
        if array.dtype.name not in DTYPES:
            raise TypeError(
                f"{name} has dtype {array.dtype}; a rule is defined for {', '.join(DTYPES)}. "
                "Convert it first."
            )
    if x.dtype != g.dtype:
        raise TypeError(
            f"x has dtype {x.dtype} and g has {g.dtype}; they must be the same, as a gradient "
            "has the dtype of its value."
        )
    if x.shape != g.shape:
        raise ValueError(
            f"x has shape {x.shape} and g has {g.shape}; they must be the same (nothing is "
            "broadcast)."
        )


def _rounded(bounds: Bounds, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    lo, hi = bounds
    if not lo < hi:
        raise ValueError(f"bounds must be (lo, hi) with lo < hi; got {bounds!r}.")
    return np.asarray(lo, dtype)[()], np.asarray(hi, dtype)[()]
