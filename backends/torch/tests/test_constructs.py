"""Every way in which a ReLU is written in Torch: right to the last bit, or refused by name.

One case is one way of writing an activation between two linear layers. The reference writes
the same computation with the hand-made function of `reference.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import RELU, RELU6, Bounds, act, gradients, same
from torch import Tensor, nn, relu

import relurules

RULES = ("standard", "deconv", "guided", "redirected", "leaky", "identity")
Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """One way to write an activation.

    Attributes:
        write: Runs it as a model's author would; takes the modules it needs as attributes.
        bounds: What it clips to.
        modules: Modules it uses, by name.
        options: Further arguments of `apply`.
        reference: The computation by hand, where it is not one activation.
    """

    write: Callable[[Any, Tensor], Tensor]
    bounds: Bounds = RELU
    modules: dict[str, Callable[[], nn.Module]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    reference: Callable[[Activation, Tensor], Tensor] | None = None


class Net(nn.Module):
    """Two layers with the case's activation between them."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 5)
        for name, build in case.modules.items():
            setattr(self, name, build())
        self.case = case

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.case.write(self, self.first(x) * 4))


def _statement(function: Callable[[Tensor], object]) -> Callable[[Any, Tensor], Tensor]:
    def write(self: Any, h: Tensor) -> Tensor:
        function(h)
        return h

    return write


def _module_statement(self: Any, h: Tensor) -> Tensor:
    self.act(h)
    return h


def _slice(self: Any, h: Tensor) -> Tensor:
    h = h * 1
    F.relu_(h[:, :4])
    return h


def _chunk(self: Any, h: Tensor) -> Tensor:
    left, right = (h * 1).chunk(2, dim=1)
    return torch.cat([F.relu(left), right.relu()], dim=1)


def _changes_input(self: Any, h: Tensor) -> Tensor:
    h = h * 1
    y = F.relu(h)
    h.add_(1)
    return y


def _half(activate: Activation, h: Tensor) -> Tensor:
    return torch.cat([activate(h[:, :4]), h[:, 4:]], dim=1)


STRUCTURAL = {"match": "structural"}
RELU_MODULE = {"act": nn.ReLU}

CASES: dict[str, Case] = {
    "nn.ReLU": Case(lambda self, h: self.act(h), modules=RELU_MODULE),
    "nn.ReLU(inplace)": Case(
        lambda self, h: self.act(h), modules={"act": lambda: nn.ReLU(inplace=True)}
    ),
    "one ReLU reused": Case(
        lambda self, h: self.act(self.act(h) - 1),
        modules=RELU_MODULE,
        reference=lambda a, h: a(a(h) - 1),
    ),
    "one ReLU reused, in place": Case(
        lambda self, h: self.act(self.act(h) - 1),
        modules={"act": lambda: nn.ReLU(inplace=True)},
        reference=lambda a, h: a(a(h) - 1),
    ),
    "ReLU of ReLU": Case(
        lambda self, h: self.act(self.act(h)),
        modules=RELU_MODULE,
        reference=lambda a, h: a(a(h)),
    ),
    "F.relu": Case(lambda self, h: F.relu(h)),
    "F.relu(input=)": Case(lambda self, h: F.relu(input=h)),
    "F.relu(inplace)": Case(lambda self, h: F.relu(h, inplace=True)),
    "F.relu_": Case(lambda self, h: F.relu_(h)),
    "statement F.relu(h, True)": Case(_statement(lambda h: F.relu(h, True))),
    "statement nn.ReLU(True)(h)": Case(
        _module_statement, modules={"act": lambda: nn.ReLU(inplace=True)}
    ),
    "torch.relu": Case(lambda self, h: torch.relu(h)),
    "torch.relu_": Case(lambda self, h: torch.relu_(h)),
    "from torch import relu": Case(lambda self, h: relu(h)),
    "x.relu()": Case(lambda self, h: h.relu()),
    "x.relu_()": Case(lambda self, h: h.relu_()),
    "Tensor.relu": Case(lambda self, h: Tensor.relu(h)),
    "aten.relu": Case(lambda self, h: torch.ops.aten.relu(h)),
    "aten.relu.default": Case(lambda self, h: torch.ops.aten.relu.default(h)),
    "aten.relu_.default": Case(lambda self, h: torch.ops.aten.relu_.default(h)),
    "aten.relu(self=)": Case(lambda self, h: torch.ops.aten.relu.default(self=h)),
    "F.relu6": Case(lambda self, h: F.relu6(h), RELU6),
    "F.relu6(inplace)": Case(lambda self, h: F.relu6(h, inplace=True), RELU6),
    "nn.ReLU6": Case(lambda self, h: self.act(h), RELU6, {"act": nn.ReLU6}),
    "nn.ReLU6(inplace)": Case(
        lambda self, h: self.act(h), RELU6, {"act": lambda: nn.ReLU6(inplace=True)}
    ),
    "nn.Hardtanh": Case(lambda self, h: self.act(h), (-1.0, 1.0), {"act": nn.Hardtanh}),
    "nn.Hardtanh(0, 6)": Case(
        lambda self, h: self.act(h), RELU6, {"act": lambda: nn.Hardtanh(0.0, 6.0)}
    ),
    "F.hardtanh(-2, 0.3)": Case(lambda self, h: F.hardtanh(h, -2, 0.3), (-2.0, 0.3)),
    "F.hardtanh_": Case(lambda self, h: F.hardtanh_(h), (-1.0, 1.0)),
    "aten.hardtanh": Case(lambda self, h: torch.ops.aten.hardtanh(h, -1.0, 3.0), (-1.0, 3.0)),
    "F.threshold(0, 0)": Case(lambda self, h: F.threshold(h, 0, 0)),
    "F.threshold_(0, 0)": Case(lambda self, h: F.threshold_(h, 0.0, 0.0)),
    "torch.threshold": Case(lambda self, h: torch.threshold(h, 0.0, 0.0)),
    "nn.Threshold(0, 0)": Case(
        lambda self, h: self.act(h), modules={"act": lambda: nn.Threshold(0.0, 0.0)}
    ),
    "nn.Threshold(2, 2)": Case(
        lambda self, h: self.act(h),
        (2.0, float("inf")),
        {"act": lambda: nn.Threshold(2.0, 2.0)},
    ),
    "residual": Case(lambda self, h: F.relu(h) + h, reference=lambda a, h: a(h) + h),
    "parallel branches": Case(
        lambda self, h: self.act(h) * 2 + self.act(h - 1),
        modules=RELU_MODULE,
        reference=lambda a, h: a(h) * 2 + a(h - 1),
    ),
    "input has a second consumer": Case(
        lambda self, h: F.relu(h) * h.sigmoid(), reference=lambda a, h: a(h) * h.sigmoid()
    ),
    "ReLU then out-of-place add": Case(
        lambda self, h: F.relu(h) + 1, reference=lambda a, h: a(h) + 1
    ),
    "relu6, then in-place add": Case(
        lambda self, h: F.relu6(h).add_(1), RELU6, reference=lambda a, h: a(h) + 1
    ),
    "in-place relu6, then in-place add": Case(
        lambda self, h: F.relu6(h, inplace=True).add_(1), RELU6, reference=lambda a, h: a(h) + 1
    ),
    "clamp(0, 6), then in-place add": Case(
        lambda self, h: h.clamp(0, 6).add_(1),
        RELU6,
        options=STRUCTURAL,
        reference=lambda a, h: a(h) + 1,
    ),
    "in-place relu of a slice": Case(_slice, reference=_half),
    "relu of chunks": Case(_chunk),
    "in-place relu of an unsqueezed view": Case(lambda self, h: F.relu_(h.unsqueeze(0)).squeeze(0)),
    "clamp(min=0)": Case(lambda self, h: h.clamp(min=0), options=STRUCTURAL),
    "clamp_(0, 6)": Case(lambda self, h: h.clamp_(0, 6), RELU6, options=STRUCTURAL),
    "clamp(0, 6)": Case(lambda self, h: torch.clamp(h, 0, 6), RELU6, options=STRUCTURAL),
    "clip(0)": Case(lambda self, h: torch.clip(h, 0), options=STRUCTURAL),
    "clamp_min": Case(lambda self, h: torch.clamp_min(h, 0), options=STRUCTURAL),
    "clamp_max": Case(
        lambda self, h: torch.clamp_max(h, 1), (-float("inf"), 1.0), options=STRUCTURAL
    ),
    "maximum(x, 0)": Case(lambda self, h: torch.maximum(h, h.new_zeros(())), options=STRUCTURAL),
    "max(x, 0)": Case(lambda self, h: torch.max(h, torch.zeros(())), options=STRUCTURAL),
    "x.max(0)": Case(lambda self, h: h.max(torch.zeros(())), options=STRUCTURAL),
    "minimum(x, 6)": Case(
        lambda self, h: torch.minimum(h, h.new_full((), 1.0)),
        (-float("inf"), 1.0),
        options=STRUCTURAL,
    ),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CASES)
def test_construct(name: str, rule: str) -> None:
    case = CASES[name]
    net = Net(case).double()
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    inputs = [x, *net.parameters()]

    with relurules.apply(net, rule, **case.options) as ruled:
        output = ruled(x)
    found = gradients(output, inputs)

    assert same(output, net(x)), "the rule changed the forward"
    assert all(map(same, found, by_hand(net, x, inputs, rule)))
    assert all(map(torch.allclose, gradients(net(x), inputs), by_hand(net, x, inputs, "standard")))


def by_hand(net: Net, x: Tensor, inputs: list[Tensor], rule: str) -> list[Tensor]:
    write = net.case.reference or (lambda activate, h: activate(h))
    h = write(lambda t: act(t, rule, net.case.bounds), net.first(x) * 4)
    return gradients(net.last(h), inputs)


REFUSED_BY_TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "relu, then in-place add": lambda h: F.relu(h).add_(1),
    "in-place relu, then in-place add": lambda h: F.relu_(h * 1).add_(1),
    "in-place relu of a leaf": F.relu_,
    "in-place relu of one of several views": lambda h: F.relu_(h.unbind()[0]),
}


@pytest.mark.parametrize("rule", ["standard", "deconv", "guided", "identity"])
@pytest.mark.parametrize("name", REFUSED_BY_TORCH)
def test_what_torch_itself_refuses_stays_an_error(name: str, rule: str) -> None:
    """These cannot be differentiated without a rule either, so one gives no other gradient."""

    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return REFUSED_BY_TORCH[name](x)

    x = torch.randn(3, 4, requires_grad=True)
    for model in (One(), relurules.apply(One(), rule)):
        with pytest.raises(RuntimeError, match="in-?place") as caught:
            torch.autograd.grad(model(x).sum(), x)
        assert not isinstance(caught.value, relurules.RelurulesError)


@pytest.mark.parametrize("rule", RULES)
def test_an_input_that_changes_afterwards(rule: str) -> None:
    """A rule whose backward needs the input says so; the others never see the change."""
    net = Net(Case(_changes_input)).double()
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    with relurules.apply(net, rule) as ruled:
        output = ruled(x)
    if rule in ("redirected", "leaky"):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(output, [x])
    else:
        assert same(gradients(output, [x])[0], by_hand(net, x, [x], rule)[0])


@pytest.mark.parametrize("rule", RULES)
def test_blocks_of_torchvision(rule: str) -> None:
    ops = pytest.importorskip("torchvision.ops")
    mlp = ops.MLP(6, [8, 5], inplace=True, dropout=0.0).double()
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    with relurules.apply(mlp, rule) as ruled:
        found = gradients(ruled(x), [x])
    assert same(found[0], gradients(mlp[3](act(mlp[0](x), rule)), [x])[0])
    conv = ops.Conv2dNormActivation(3, 4, activation_layer=nn.ReLU6).double().eval()
    x = (torch.randn(2, 3, 5, 5, dtype=torch.float64) * 9).requires_grad_()
    with relurules.apply(conv, rule) as ruled:
        found = gradients(ruled(x), [x])
    assert same(found[0], gradients(act(conv[1](conv[0](x)), rule, RELU6), [x])[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "write", [torch.relu, F.relu6, F.hardtanh, lambda x: F.hardtanh(x, -1, 0.3)]
)
def test_one_site_equals_the_specification(
    write: Activation, rule: str, dtype: torch.dtype
) -> None:
    """The edges, bit for bit, in each dtype: zeros, bounds, subnormals, infinities and NaN."""
    tiny = torch.finfo(dtype).smallest_normal
    values = [0.0, tiny, tiny / 4, 0.3, 1.0, 6.0, 7.0, torch.finfo(dtype).max, float("inf")]
    edges = torch.tensor([*values, *(-v for v in values), float("nan")], dtype=torch.float64)
    x, g = (t.contiguous().to(dtype) for t in torch.meshgrid(edges, edges, indexing="ij"))
    x.requires_grad_()

    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return write(x)

    with relurules.apply(One(), rule) as ruled:
        output = ruled(x)
    (found,) = torch.autograd.grad(output, x, g)

    site = {torch.relu: RELU, F.relu6: RELU6, F.hardtanh: (-1.0, 1.0)}.get(write, (-1.0, 0.3))
    lo, hi = (torch.tensor(b, dtype=torch.float64).to(dtype).item() for b in site)
    assert same(found, _specified(rule, x.detach(), g, (lo, hi)))


def _specified(rule: str, x: Tensor, g: Tensor, bounds: Bounds) -> Tensor:
    lo, hi = bounds
    gate = (x <= lo) | ((x >= hi) if hi != float("inf") else torch.zeros_like(x, dtype=torch.bool))
    blocked = {
        "standard": gate,
        "deconv": g <= 0,
        "guided": gate | (g <= 0),
        "identity": torch.zeros_like(gate),
    }
    if rule == "leaky":
        return torch.where(x < lo, g * 0.1, g)
    if rule == "redirected":
        below, above = x < lo, x > hi
        passed = torch.where(below | above, torch.zeros_like(g), g)
        live = (passed != 0).any(dim=1, keepdim=True)
        away = (below & (g > 0)) | (above & (g < 0))
        return torch.where((live & (below | above)) | away, torch.zeros_like(g), g)
    return torch.where(blocked[rule], torch.zeros_like(g), g)
