"""Native backward kernels: the same bits as the rules, in one or two passes over memory.

A rule written with `where` costs five to twelve times a plain ReLU's backward on the CPU,
`threshold_backward` about once, and it treats NaN, signed zeros and subnormals exactly as the
specification does: it gives +0.0 where `z <= threshold` and the bits of g elsewhere. So every
kernel is made of thresholds. `hardtanh_backward` is not used: whether it blocks a NaN depends
on the element's position (https://github.com/pytorch/pytorch/issues/195075).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

import relurules
from relurules.backend import STANDARD, Bounds, Rule, evaluate, kernel_for

Tensor: TypeAlias = torch.Tensor

EXACT = frozenset({0.0, 6.0, -math.inf, math.inf})
"""Bounds that need no rounding in any dtype."""

_DROPPED_BITS = {torch.float32: 29, torch.float16: 42, torch.bfloat16: 45}

threshold_backward = torch.ops.aten.threshold_backward.default._op  # without a Python frame
_traced_threshold = torch.ops.aten.threshold_backward.default  # as Dynamo knows it
Threshold: TypeAlias = Callable[..., Tensor]
_REDIRECTED = relurules.rule("redirected")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A way to compute a rule natively.

    Attributes:
        run: `run(g, z, *, bounds, batch_axis)` returns the gradient that passes.
        takes_output: Whether z may be the activation's output as well as its input. The open
            gate is the same for both: x <= lo exactly where clip(x, lo, hi) <= lo.
    """

    run: Callable[..., Tensor]
    takes_output: bool = False


def standard(
    g: Tensor,
    z: Tensor,
    *,
    bounds: Bounds,
    batch_axis: int | None = 0,
    threshold: Threshold = threshold_backward,
) -> Tensor:
    """Block z <= lo and z >= hi."""
    lo, hi = bounds
    if lo != -math.inf:
        g = threshold(g, z, lo)
    if hi != math.inf:
        g = threshold(g, -z, -hi)
    return g


def deconv(
    g: Tensor,
    z: Tensor,
    *,
    bounds: Bounds,
    batch_axis: int | None = 0,
    threshold: Threshold = threshold_backward,
) -> Tensor:
    """Block g <= 0."""
    return threshold(g, g, 0)


def guided(
    g: Tensor,
    z: Tensor,
    *,
    bounds: Bounds,
    batch_axis: int | None = 0,
    threshold: Threshold = threshold_backward,
) -> Tensor:
    """Block z <= lo, z >= hi and g <= 0."""
    lo, hi = bounds
    if lo == -math.inf:  # no pass whose result would be ours to change in place
        return threshold(threshold(g, -z, -hi), g, 0)
    passed = threshold(g, z, lo)
    if hi != math.inf:
        passed = threshold(passed, -z, -hi)
    return torch.threshold_(passed, 0, 0)


def identity(
    g: Tensor,
    z: Tensor,
    *,
    bounds: Bounds,
    batch_axis: int | None = 0,
    threshold: Threshold = threshold_backward,
) -> Tensor:
    """Block nothing."""
    return g


def redirected(g: Tensor, x: Tensor, *, bounds: Bounds, batch_axis: int | None = 0) -> Tensor:
    """Gate every sample natively, and run the rule itself on the dead ones only.

    Most samples of most layers are live, and for them the rule is its closed gate.
    """
    # neither a transform nor a compiler can look at the values
    traced = torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()
    if batch_axis != 0 or traced:
        return run_rule(_REDIRECTED, x, g, bounds=bounds, batch_axis=batch_axis)
    passed = closed_gate(g, x, bounds=bounds)
    dead = ~torch.any(passed.flatten(1) != 0, dim=1)
    if dead.any():
        rows = run_rule(_REDIRECTED, x[dead], g[dead], bounds=bounds, batch_axis=0)
        passed = passed.index_put((dead,), rows)
    return passed


def closed_gate(g: Tensor, x: Tensor, *, bounds: Bounds, batch_axis: int | None = 0) -> Tensor:
    """Block x < lo and x > hi: x <= the number before lo, -x <= the number before -hi."""
    lo, hi = bounds
    if lo != -math.inf:
        g = threshold_backward(g, x, _before(lo, x.dtype))
    if hi != math.inf:
        g = threshold_backward(g, -x, _before(-hi, x.dtype))
    return g


def builtin_kernels() -> dict[Rule, Kernel]:
    """Return the kernels of the built-in rules."""
    kernels = {
        relurules.rule("standard"): Kernel(standard, takes_output=True),
        relurules.rule("deconv"): Kernel(deconv, takes_output=True),
        relurules.rule("guided"): Kernel(guided, takes_output=True),
        relurules.rule("identity"): Kernel(identity, takes_output=True),
        _REDIRECTED: Kernel(redirected),
        relurules.rule("redirected_relu6"): Kernel(redirected),
    }
    return kernels | ({_REDIRECTED.after: Kernel(closed_gate)} if _REDIRECTED.after else {})


_BUILTIN = builtin_kernels()


def kernel_of(rule: Rule) -> Kernel | None:
    """Return the native kernel of a rule, built in or a plugin's, or None."""
    if (kernel := _BUILTIN.get(rule)) is not None:
        return kernel
    offered = kernel_for(rule, "torch")
    return None if offered is None else Kernel(offered)


def traceable_kernel_of(rule: Rule) -> Kernel | None:
    """Return the kernel of a rule in a form that Dynamo can trace, or None."""
    kernel = _BUILTIN.get(rule)
    if kernel is None or not kernel.takes_output:  # one that takes the input looks at its values
        return None
    return Kernel(functools.partial(kernel.run, threshold=_traced_threshold), takes_output=True)


def run_rule(rule: Rule, x: Tensor, g: Tensor, **options: Any) -> Tensor:
    """Run the rule's own function on Torch; `options` as `relurules.backend.evaluate`."""
    out: Any = evaluate(rule, x, g, xp=torch, standard=STANDARD, **options)
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"Rule {rule.name!r} returned {type(out).__name__}, which is no tensor.")
    if out.shape != g.shape or out.dtype != g.dtype:
        raise TypeError(
            f"Rule {rule.name!r} returned {tuple(out.shape)} {out.dtype} for a gradient of "
            f"{tuple(g.shape)} {g.dtype}; a rule keeps shape and dtype."
        )
    return out


def rounded(bounds: Bounds, dtype: torch.dtype) -> Bounds:
    """Return the bounds in the activation's own precision, as its forward uses them."""
    if EXACT.issuperset(bounds):
        return bounds
    round_one = _split if torch.compiler.is_compiling() else _round
    return (round_one(bounds[0], dtype), round_one(bounds[1], dtype))


@functools.cache
def _round(value: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(value, dtype=torch.float64).to(dtype).item())


def _split(value: float, dtype: torch.dtype) -> float:
    """Round by arithmetic alone, which Dynamo can fold (Veltkamp's splitting, 1968)."""
    if dtype not in _DROPPED_BITS or value in EXACT:
        return value
    scaled = value * (2.0 ** _DROPPED_BITS[dtype] + 1)
    return scaled - (scaled - value)


@functools.cache
def _before(value: float, dtype: torch.dtype) -> float:
    number = torch.tensor(value, dtype=dtype)
    return float(torch.nextafter(number, torch.tensor(-math.inf, dtype=dtype)).item())
