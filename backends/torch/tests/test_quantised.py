"""Quantised models: floating point takes the rule, integer kernels are refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import RELU6, act, gradients, same
from torch import Tensor, nn

import relurules
from relurules import UncoveredActivationError

quantization = pytest.importorskip("torch.ao.quantization")
pytestmark = [
    # https://github.com/pytorch/ao/issues/2259: it moves to another package, and still works
    pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*reduce_range:UserWarning"),
    pytest.mark.skipif(
        torch.backends.quantized.engine == "none",
        reason="needs an engine, see https://docs.pytorch.org/docs/stable/quantization.html",
    ),
]
RULES = ("deconv", "guided", "identity")


class Net(nn.Module):
    """A convolution and its activations, which one may fuse and quantise."""

    def __init__(self, *, last: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.act, self.act6 = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ReLU6()
        self.head, self.last = nn.Linear(4, 2), last or (lambda h: h)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act6(self.act(self.conv(self.quant(x))))
        return self.last(self.dequant(self.head(h.mean((2, 3)))))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 6, 6, requires_grad=True)


def prepared(net: Net, x: Tensor, *, fused: bool, training: bool = False) -> Net:
    net = net.train(training)
    fuse, prepare, config = {
        False: ("fuse_modules", "prepare", "get_default_qconfig"),
        True: ("fuse_modules_qat", "prepare_qat", "get_default_qat_qconfig"),
    }[training]
    if fused:
        net = getattr(quantization, fuse)(net, [["conv", "act"]])
    net.qconfig = getattr(quantization, config)(torch.backends.quantized.engine)
    net = getattr(quantization, prepare)(net)
    net(x.detach())
    return net.apply(quantization.disable_observer)


def ruled_gradient(model: Any, x: Tensor, rule: str) -> Tensor:
    plain = model(x)
    with relurules.apply(model, rule) as ruled:
        output = ruled(x)
    assert same(output, plain)
    return gradients(output, [x])[0]


class Dynamic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x))) * F.relu(x)


@pytest.mark.parametrize("rule", RULES)
def test_dynamically_quantised_layers_beside_float_activations(rule: str) -> None:
    """A quantised layer passes no gradient on; what is around it takes the rule."""
    model = quantization.quantize_dynamic(Dynamic(), {nn.Linear}, dtype=torch.qint8)
    x = torch.randn(3, 4, requires_grad=True)
    factor = model.last(model.act(model.first(x))).detach()
    expected = gradients(act(x, rule) * factor, [x])[0]
    assert same(ruled_gradient(model, x, rule), expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_prepared_models_are_float(rule: str, training: bool, fused: bool, x: Tensor) -> None:
    net = prepared(Net(), x, fused=fused, training=training)
    reference = copy.deepcopy(net)
    found = ruled_gradient(net, x, rule)
    _put_reference(reference, rule)
    assert same(found, gradients(reference(x), [x])[0])


def _put_reference(net: Any, rule: str) -> None:
    """Put the activation by hand in the place of each of Torch's, in fused modules too."""
    net.act6.forward = lambda h: act(h, rule, RELU6)
    conv = net.conv
    if type(conv).__name__ != "ConvReLU2d":
        net.act.forward = lambda h: act(h, rule)
    elif not hasattr(conv, "weight_fake_quant"):
        conv[1].forward = lambda h: act(h, rule)
    else:
        weight = conv.weight_fake_quant
        conv.forward = lambda h: act(conv._conv_forward(h, weight(conv.weight), conv.bias), rule)


@pytest.mark.parametrize(
    ("fused", "named"),
    [(False, r"act \(relu\), act6\.relu6 \(relu6\)"), (True, r"conv\.conv2d_relu \(conv2d_relu\)")],
)
def test_integer_kernels_are_refused_by_name(fused: bool, named: str, x: Tensor) -> None:
    net = quantization.convert(prepared(Net(last=F.relu), x, fused=fused))
    with (
        pytest.raises(UncoveredActivationError, match=named) as caught,
        relurules.apply(net, "guided") as ruled,
    ):
        ruled(x)
    assert "Apply the rule to the float model" in str(caught.value)
    names = ["act", "act6.*", "conv.*"]
    with relurules.apply(net, "guided", exclude=names) as ruled:
        assert not ruled(x).requires_grad
    applied = relurules.apply(net, "guided", exclude=names)
    applied(x)
    assert [row.name for row in applied.report.sites] == ["relu"]
    applied.remove()


def test_a_quantised_activation_called_by_its_function(x: Tensor) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            quantised = torch.quantize_per_tensor(x, 0.1, 64, torch.quint8)
            return F.relu(F.relu(quantised).dequantize() + x)

    with pytest.raises(UncoveredActivationError, match=r"relu \(relu\)"):
        relurules.apply(Model(), "guided")(x)


def test_a_dynamic_layer_with_a_relu_inside() -> None:
    from torch.ao.nn.intrinsic.quantized.dynamic import LinearReLU

    model = nn.Sequential(LinearReLU(4, 4), nn.ReLU())
    with pytest.raises(UncoveredActivationError, match="linear_relu_dynamic"):
        relurules.apply(model, "guided")(torch.randn(3, 4, requires_grad=True))


@pytest.mark.parametrize("rule", RULES)
def test_intrinsic_modules_are_made_of_float_ones(rule: str, x: Tensor) -> None:
    from torch.ao.nn.intrinsic import BNReLU2d, ConvBnReLU2d, ConvReLU2d

    conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
    norm.running_mean.normal_()
    fused = {
        ConvReLU2d(conv, nn.ReLU()): conv,
        ConvBnReLU2d(conv, norm, nn.ReLU()).eval(): lambda h: norm(conv(h)),
    }
    for module, before in fused.items():
        expected = gradients(act(before(x), rule), [x])[0]
        assert same(ruled_gradient(nn.Sequential(module), x, rule), expected)
    h = torch.randn(2, 4, 3, 3, requires_grad=True)
    expected = gradients(act(norm(h), rule), [h])[0]
    assert same(ruled_gradient(BNReLU2d(norm, nn.ReLU()).eval(), h, rule), expected)
