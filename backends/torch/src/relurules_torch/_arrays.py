"""Tensors and their functional gradient, as `relurules.maps` asks for them.

The model gets a copy of what the user gave, since a first layer that works in place would
write into it, and Torch allows no such layer on a tensor that is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_WIDER = {torch.bfloat16: torch.float32}
"""What holds the numbers of a dtype that NumPy does not have."""


class TorchArrays:
    """The arrays of Torch."""

    def evaluate(self, fn: Callable[..., Any], inputs: tuple[Any, ...], /) -> Any:
        """Return `fn(*inputs)`, recorded for no gradient."""
        with torch.no_grad():
            return fn(*(_checked(x).detach().clone() for x in inputs))

    def gradient(self, fn: Callable[..., Any], inputs: tuple[Any, ...], /) -> tuple[Any, ...]:
        """Return the gradient of the scalar `fn(*inputs)` for each input."""
        with torch.inference_mode(False), torch.enable_grad():
            leaves = tuple(_leaf(x) for x in inputs)
            total = fn(*(leaf.clone() for leaf in leaves))
            if not total.requires_grad:
                raise ValueError(
                    "The output does not depend on the input through anything Torch can "
                    "differentiate; look for detach(), no_grad() or integers in the model."
                )
            found: tuple[Any, ...] = torch.autograd.grad(total, leaves, allow_unused=True)
        if None in found:
            raise ValueError(f"The output does not depend on input {found.index(None)}.")
        return found

    def to_numpy(self, array: Any, /) -> np.ndarray[Any, Any]:
        """Return the numbers, as float32 where NumPy lacks the dtype."""
        tensor = _checked(array).detach().cpu()
        values: np.ndarray[Any, Any] = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype)).numpy()
        return values

    def from_numpy(self, values: np.ndarray[Any, Any], /, *, like: Any) -> Tensor:
        """Return a tensor with the dtype of `like`, on its device."""
        return torch.from_numpy(np.ascontiguousarray(values)).to(like)


def _leaf(x: Any) -> Tensor:
    if not _checked(x).is_floating_point():
        raise TypeError(
            f"A gradient needs an input of floating point; got {x.dtype}. Explain the output of "
            "the first layer instead, such as an embedding, or hand over what has no gradient in "
            "call=."
        )
    return (x.clone() if x.is_inference() else x).detach().requires_grad_()


def _checked(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    raise TypeError(f"A Torch model takes tensors; got {type(x).__module__}.{type(x).__name__}.")
