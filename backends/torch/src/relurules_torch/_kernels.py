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

threshold_backward = torch.ops.aten.threshold_backward.default._op  # without a Python frame


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


def standard(g: Tensor, z: Tensor, *, bounds: Bounds, batch_axis: int | None = 0) -> Tensor:
    """Block z <= lo and z >= hi."""
    lo, hi = bounds
    if lo != -math.inf:
        g = threshold_backward(g, z, lo)
    if hi != math.inf:
        g = threshold_backward(g, -z, -hi)
    return g


def deconv(g: Tensor, z: Tensor, *, bounds: Bounds, batch_axis: int | None = 0) -> Tensor:
    """Block g <= 0."""
    return threshold_backward(g, g, 0)


def guided(g: Tensor, z: Tensor, *, bounds: Bounds, batch_axis: int | None = 0) -> Tensor:
    """Block z <= lo, z >= hi and g <= 0."""
    lo, hi = bounds
    if lo == -math.inf:  # no pass whose result would be ours to change in place
        return deconv(standard(g, z, bounds=bounds), z, bounds=bounds)
    passed = threshold_backward(g, z, lo)
    if hi != math.inf:
        passed = threshold_backward(passed, -z, -hi)
    return torch.threshold_(passed, 0, 0)


def redirected(g: Tensor, x: Tensor, *, bounds: Bounds, batch_axis: int | None = 0) -> Tensor:
    """Gate every sample natively, and run the rule itself on the dead ones only.

    Most samples of most layers are live, and for them the rule is its closed gate.
    """
    rule = relurules.rule("redirected")
    if batch_axis != 0 or torch._C._are_functorch_transforms_active():
        return run_rule(rule, x, g, bounds=bounds, batch_axis=batch_axis)
    passed = closed_gate(g, x, bounds=bounds)
    dead = ~torch.any(passed.flatten(1) != 0, dim=1)
    if dead.any():
        rows = run_rule(rule, x[dead], g[dead], bounds=bounds, batch_axis=0)
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
    found = relurules.rule("redirected")
    kernels = {
        relurules.rule("standard"): Kernel(standard, takes_output=True),
        relurules.rule("deconv"): Kernel(deconv, takes_output=True),
        relurules.rule("guided"): Kernel(guided, takes_output=True),
        found: Kernel(redirected),
        relurules.rule("redirected_relu6"): Kernel(redirected),
    }
    return kernels | ({found.after: Kernel(closed_gate)} if found.after else {})


_BUILTIN = builtin_kernels()


def kernel_of(rule: Rule) -> Kernel | None:
    """Return the native kernel of a rule, built in or a plugin's, or None."""
    if (kernel := _BUILTIN.get(rule)) is not None:
        return kernel
    offered = kernel_for(rule, "torch")
    return None if offered is None else Kernel(offered)


def run_rule(rule: Rule, x: Tensor, g: Tensor, **options: Any) -> Tensor:
    """Run the rule's own function on Torch; `options` as `relurules.backend.evaluate`."""
    out: Tensor = evaluate(rule, x, g, xp=torch, standard=STANDARD, **options)
    if out.shape != g.shape or out.dtype != g.dtype:
        raise TypeError(
            f"Rule {rule.name!r} returned {tuple(out.shape)} {out.dtype} for a gradient of "
            f"{tuple(g.shape)} {g.dtype}; a rule keeps shape and dtype."
        )
    return out


def rounded(bounds: Bounds, dtype: torch.dtype) -> Bounds:
    """Return the bounds in the activation's own precision, as its forward uses them."""
    return (_round(bounds[0], dtype), _round(bounds[1], dtype))


@functools.cache
def _round(value: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(value, dtype=torch.float64).to(dtype).item())


@functools.cache
def _before(value: float, dtype: torch.dtype) -> float:
    number = torch.tensor(value, dtype=dtype)
    return float(torch.nextafter(number, torch.tensor(-math.inf, dtype=dtype)).item())
