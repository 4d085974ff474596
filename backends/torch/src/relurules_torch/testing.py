"""Torch as the conformance kit sees it: tiny modules, and three ways to take a gradient."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone names it

from relurules.backend import Bounds
from relurules.testing import KnownFailure, Mode, Pull

Array = npt.NDArray[Any]
Function = Callable[[torch.Tensor], torch.Tensor]

_RELU: Bounds = (0.0, math.inf)
_RELU6: Bounds = (0.0, 6.0)
_MANY = 1_000_000
_SPELLINGS: dict[str, tuple[Bounds, Function]] = {
    "nn.ReLU(inplace=True)": (_RELU, nn.ReLU(inplace=True)),
    "F.relu": (_RELU, F.relu),
    "F.relu(inplace=True)": (_RELU, lambda x: F.relu(x, inplace=True)),
    "F.relu_": (_RELU, F.relu_),
    "torch.relu": (_RELU, torch.relu),
    "torch.relu_": (_RELU, torch.relu_),
    "Tensor.relu": (_RELU, lambda x: x.relu()),
    "Tensor.relu_": (_RELU, lambda x: x.relu_()),
    "aten.relu": (_RELU, torch.ops.aten.relu),
    "aten.relu.default": (_RELU, torch.ops.aten.relu.default),
    "nn.Threshold(0, 0)": (_RELU, nn.Threshold(0, 0)),
    "torch.threshold_": (_RELU, lambda x: torch.threshold_(x, 0.0, 0.0)),
    "nn.ReLU6(inplace=True)": (_RELU6, nn.ReLU6(inplace=True)),
    "F.relu6": (_RELU6, F.relu6),
    "F.relu6(inplace=True)": (_RELU6, lambda x: F.relu6(x, inplace=True)),
    "nn.Hardtanh(0, 6)": (_RELU6, nn.Hardtanh(0.0, 6.0)),
    "F.hardtanh": ((-1.0, 1.0), F.hardtanh),
    "F.hardtanh_": ((-2.0, 2.0), lambda x: F.hardtanh_(x, -2.0, 2.0)),
    "F.hardtanh(inplace=True)": ((-2.0, 2.0), lambda x: F.hardtanh(x, -2.0, 2.0, inplace=True)),
}


def case() -> TorchCase:
    """Return what the kit needs to test this backend."""
    return TorchCase()


class TorchCase:
    """The adapter of `relurules_torch`."""

    name = "torch"
    dtypes: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64")
    modes: tuple[Mode, ...] = ("eager", "compiled", "vjp", "vmap")
    versions: Mapping[str, str] = {"torch": torch.__version__}
    spellings: Mapping[str, Bounds] = {name: bounds for name, (bounds, _) in _SPELLINGS.items()}
    known_failures: tuple[KnownFailure, ...] = ()

    def model(self, *bounds: Bounds) -> nn.Module:
        """Return one activation module after the other."""
        return nn.Sequential(*(_activation(lo, hi) for lo, hi in bounds))

    def spelled(self, spelling: str, /) -> nn.Module:
        """Return a module whose forward writes its activation in this way."""
        return _Spelled(_SPELLINGS[spelling][1])

    def scalar(self, step: int, /) -> torch.Tensor:
        """Return the step as a tensor of rank 0."""
        return torch.tensor(step)

    def pullback(self, fn: Function, x: Array, /, *, mode: Mode) -> tuple[Array, Pull]:
        """Run `fn` and return its value and its pullback."""
        y, pull = _MODES[mode](fn, to_torch(x))
        return to_numpy(y), lambda g: to_numpy(pull(to_torch(g)))


class _Spelled(nn.Module):
    def __init__(self, activation: Function) -> None:
        super().__init__()
        self._activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the activation on a copy, since a leaf cannot be changed in place."""
        return self._activation(x.clone())


def _activation(lo: float, hi: float) -> nn.Module:
    if (lo, hi) == _RELU:
        return nn.ReLU()
    return nn.ReLU6() if (lo, hi) == _RELU6 else nn.Hardtanh(lo, hi)


def _eager(fn: Function, x: torch.Tensor, *, retain: bool = True) -> tuple[torch.Tensor, Function]:
    leaf = x.requires_grad_()
    y = fn(leaf)
    return y, lambda g: torch.autograd.grad(y, leaf, g, retain_graph=retain)[0]


def _compiled(fn: Function, x: torch.Tensor) -> tuple[torch.Tensor, Function]:
    compiled = torch.compile(fn, backend="aot_eager")
    # Past its limit Dynamo runs a function eagerly and says so in its log only.
    limits = torch._dynamo.config.patch(recompile_limit=_MANY, accumulated_recompile_limit=_MANY)
    with limits, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\b")  # of graph breaks
        return _eager(compiled, x, retain=False)  # compiled backwards give up their buffers


def _vjp(fn: Function, x: torch.Tensor) -> tuple[torch.Tensor, Function]:
    y, pull = torch.func.vjp(fn, x)
    return y, lambda g: pull(g)[0]


def _vmap(fn: Function, x: torch.Tensor) -> tuple[torch.Tensor, Function]:
    def one(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.vjp(fn, x)[1](g)[0]
        return result

    return torch.func.vmap(fn)(x), lambda g: torch.func.vmap(one)(x, g)


_MODES = {"eager": _eager, "compiled": _compiled, "vjp": _vjp, "vmap": _vmap}


def to_torch(a: Array) -> torch.Tensor:
    """Return the array as a tensor, of the same strides where Torch has them."""
    if any(stride < 0 for stride in a.strides) or not a.flags.writeable:
        a = a.copy()
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def to_numpy(t: torch.Tensor) -> Array:
    """Return the tensor as an array."""
    t = t.detach()
    if t.dtype == torch.bfloat16:
        import ml_dtypes  # noqa: PLC0415 - only the kit needs it

        result: Array = t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return result
    return np.asarray(t.numpy())
