"""Every spelling of a smooth activation, and the three variants of guided on it by hand.

The reference takes f's own derivative from autograd and selects with `where`, as the formulas
of docs/rules.md say; it shares no code with the backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VARIANTS = ("incoming", "outgoing", "gate")
Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Spelling:
    """One way to write f: as a model's author would, and out of place for the reference."""

    kind: str
    write: Activation
    f: Activation


def _statement(function: Callable[[Tensor], object]) -> Activation:
    def write(h: Tensor) -> Tensor:
        function(h)
        return h

    return write


def _slope(h: Tensor) -> Tensor:
    return F.prelu(h, h.new_full((1,), 0.3))


aten = torch.ops.aten
SPELLINGS: dict[str, Spelling] = {
    "F.gelu": Spelling("gelu", F.gelu, F.gelu),
    "nn.GELU(tanh)": Spelling("gelu", nn.GELU("tanh"), lambda h: F.gelu(h, approximate="tanh")),
    "aten.gelu_": Spelling("gelu", aten.gelu_, F.gelu),
    "nn.SiLU": Spelling("silu", nn.SiLU(), F.silu),
    "F.silu(inplace)": Spelling("silu", lambda h: F.silu(h, inplace=True), F.silu),
    "statement F.silu(h, True)": Spelling("silu", _statement(lambda h: F.silu(h, True)), F.silu),
    "torch._C._nn.silu": Spelling("silu", torch._C._nn.silu, F.silu),
    "F.elu": Spelling("elu", F.elu, F.elu),
    "F.elu(alpha, inplace)": Spelling(
        "elu", lambda h: F.elu(h, 0.7, True), lambda h: F.elu(h, 0.7)
    ),
    "statement F.elu_": Spelling("elu", _statement(F.elu_), F.elu),
    "aten.elu(alpha, scale, 1)": Spelling(
        "elu", lambda h: aten.elu(h, 2.0, 1.5, 1.0), lambda h: F.elu(h, 2.0) * 1.5
    ),
    "nn.CELU(inplace)": Spelling("celu", nn.CELU(inplace=True), F.celu),
    "F.celu_": Spelling("celu", F.celu_, F.celu),
    "torch.selu": Spelling("selu", torch.selu, F.selu),
    "torch.selu_": Spelling("selu", torch.selu_, F.selu),
    "nn.LeakyReLU": Spelling("leaky_relu", nn.LeakyReLU(), F.leaky_relu),
    "F.leaky_relu_": Spelling("leaky_relu", F.leaky_relu_, F.leaky_relu),
    "F.leaky_relu(slope, inplace)": Spelling(
        "leaky_relu", lambda h: F.leaky_relu(h, 0.3, True), lambda h: F.leaky_relu(h, 0.3)
    ),
    "F.leaky_relu(input=)": Spelling(
        "leaky_relu", lambda h: F.leaky_relu(input=h, inplace=True), F.leaky_relu
    ),
    "nn.RReLU in evaluation": Spelling("rrelu", nn.RReLU().eval(), nn.RReLU().eval()),
    "F.rrelu(inplace)": Spelling("rrelu", lambda h: F.rrelu(h, inplace=True), F.rrelu),
    "F.prelu": Spelling("prelu", _slope, _slope),
    "F.softplus": Spelling("softplus", F.softplus, F.softplus),
    "nn.Mish": Spelling("mish", nn.Mish(), F.mish),
    "F.mish(inplace)": Spelling("mish", lambda h: F.mish(h, inplace=True), F.mish),
    "nn.Hardswish": Spelling("hardswish", nn.Hardswish(), F.hardswish),
    "F.hardswish(inplace)": Spelling("hardswish", lambda h: F.hardswish(h, True), F.hardswish),
    "nn.Hardsigmoid": Spelling("hardsigmoid", nn.Hardsigmoid(), F.hardsigmoid),
    "F.hardsigmoid(inplace)": Spelling(
        "hardsigmoid", lambda h: F.hardsigmoid(h, True), F.hardsigmoid
    ),
}


class Net(nn.Module):
    """Two layers with an activation between them."""

    def __init__(self, write: Activation) -> None:
        super().__init__()
        self.first, self.last, self.write = nn.Linear(6, 8), nn.Linear(8, 5), write

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.write(self.first(x) * 2))


def by_formula(variant: str, f: Activation, x: Tensor, g: Tensor) -> Tensor:
    """Return what a variant lets pass, as docs/rules.md says."""
    x, zero = x.detach().requires_grad_(), torch.zeros_like(g)

    def derivative(g: Tensor) -> Tensor:
        return torch.autograd.grad(f(x), x, g)[0]

    def positive(g: Tensor) -> Tensor:
        return torch.where(g <= 0, zero, g)

    table = {
        "incoming": lambda: derivative(positive(g)),
        "outgoing": lambda: positive(derivative(g)),
        "gate": lambda: torch.where((x <= 0) | (g <= 0), zero, g),
        "plain": lambda: derivative(g),
    }
    return table[variant]().detach()


def by_hand(net: Net, f: Activation, x: Tensor, variant: str, sign: int = 1) -> list[Tensor]:
    """Return the gradients of x and of the first layer's weight, layer by layer."""
    torch.manual_seed(3)
    h = (net.first(x) * 2).detach()
    y = f(h)
    g = weights(net.last(y)) @ net.last.weight
    passed = sign * by_formula(variant, _repeat(f), h, sign * g) * 2
    return [passed @ net.first.weight, passed.T @ x]


def _repeat(f: Activation) -> Activation:
    def repeated(x: Tensor) -> Tensor:
        torch.manual_seed(3)  # rrelu draws its slopes
        return f(x)

    return repeated


def weights(output: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)


def gradients(net: Net, x: Tensor, run: Any = None) -> list[Tensor]:
    torch.manual_seed(3)
    output = (net if run is None else run)(x)
    return list(torch.autograd.grad(output, [x, net.first.weight], weights(output)))


def close(found: list[Tensor], expected: list[Tensor]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in pairs)


def new_net(name: str = "F.gelu") -> Net:
    return Net(SPELLINGS[name].write).double()


def of(write: Activation) -> nn.Module:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return write(x)

    return One()
