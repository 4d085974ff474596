"""Gradients by hand, for tests: an autograd function that the package under test never sees.

Every construct below comes with a *reference*: the same computation, in which each activation
is `Reference`, a function written from the papers with `where`. It shares no code with the
backend, and swaps no module, so a mistake cannot cancel itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

Bounds = tuple[float, float]
RELU: Bounds = (0.0, math.inf)
RELU6: Bounds = (0.0, 6.0)


def gated(rule: str, x: Tensor, g: Tensor, bounds: Bounds) -> Tensor:
    """Return what `rule` lets pass, as its paper says."""
    lo, hi = bounds
    zero = torch.zeros_like(g)
    inside = (x > lo) & (x < hi)
    table = {
        "standard": lambda: torch.where(inside, g, zero),
        "deconv": lambda: torch.where(g > 0, g, zero),
        "guided": lambda: torch.where(inside & (g > 0), g, zero),
        "identity": lambda: g,
        "leaky": lambda: torch.where(x < lo, g * 0.1, g),
        "redirected": lambda: redirected(x, g, bounds),
    }
    return table[rule]()


def redirected(x: Tensor, g: Tensor, bounds: Bounds) -> Tensor:
    """Redirect each sample of which nothing passes, one by one."""
    rows = []
    for x_row, g_row in zip(x, g, strict=True):
        below, above = x_row < bounds[0], x_row > bounds[1]
        row = torch.where(below | above, torch.zeros_like(g_row), g_row)
        if not bool((row != 0).any()):
            blocked = (below & (g_row > 0)) | (above & (g_row < 0))
            row = torch.where(blocked, torch.zeros_like(g_row), g_row)
        rows.append(row)
    return torch.stack(rows) if rows else g


class _Reference(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rule: str, bounds: Bounds) -> Tensor:
        ctx.save_for_backward(x)
        ctx.rule, ctx.bounds = rule, bounds
        return x.clip(*bounds)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return gated(ctx.rule, *ctx.saved_tensors, grads[0], ctx.bounds), None, None


def act(x: Tensor, rule: str, bounds: Bounds = RELU) -> Tensor:
    """Run the activation `clip(x, lo, hi)` with `rule` behind it."""
    out: Tensor = _Reference.apply(x, rule, bounds)
    return out


def gradients(output: Tensor, inputs: list[Tensor], seed: int = 5) -> list[Tensor]:
    """Return the gradients of a fixed random projection of `output`."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    score = (output * weights.to(output.dtype)).sum()
    return list(torch.autograd.grad(score, inputs))


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same bits, any NaN equal to any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    a, b = a.detach().contiguous(), b.detach().contiguous()
    return bool(((a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())).all())
