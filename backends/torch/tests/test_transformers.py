"""Torch's transformer layers: their fused inference form stays, and no gradient is plain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import act, gradients, same
from torch import Tensor, nn

import relurules
from relurules import NoActivationError, UncoveredActivationError

# Torch says so itself of the nested tensors of its fast path
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")


def layer(**options: Any) -> nn.TransformerEncoderLayer:
    defaults = {"dropout": 0.0, "activation": "relu", "batch_first": True}
    return nn.TransformerEncoderLayer(8, 2, 16, **(defaults | options))


class OwnForward(nn.TransformerEncoderLayer):
    """A user's class around Torch's forward."""

    def forward(self, src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(src * 2, *args, **kwargs)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.act = nn.MultiheadAttention(8, 2, batch_first=True), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.attention(x, x, x, need_weights=False)[0])


class Padded(nn.Module):
    """With a mask for padding, an encoder makes nested tensors where no gradient is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(layer(), 2)
        self.encoder.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        return self.encoder(x, src_key_padding_mask=mask)


class Headed(nn.Module):
    """A transformer, and a head with activations of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = layer(), nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.head(self.body(x)) - 0.1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a layer": layer,
    "a layer with the norm first": lambda: layer(norm_first=True),
    "a layer with gelu": lambda: layer(activation="gelu"),
    "a layer with an odd number of heads": lambda: nn.TransformerEncoderLayer(
        8, 1, 16, dropout=0.0, batch_first=True
    ),
    "a layer with an activation of its own": lambda: layer(activation=lambda h: F.relu(h) - 0.1),
    "a layer with a module as activation": lambda: layer(activation=nn.ReLU()),
    "a subclass": lambda: OwnForward(8, 2, 16, dropout=0.0, batch_first=True),
    "an encoder": lambda: nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False),
    "an encoder with padding": Padded,
    "attention": Attention,
    "a model with a head": Headed,
    "in a sequence": lambda: nn.Sequential(layer(), nn.Linear(8, 8), nn.ReLU()),
}
INFERENCE: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "frozen": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 5, 8)


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    yield
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("rules", [1, 2])
@pytest.mark.parametrize("how", INFERENCE)
@pytest.mark.parametrize("name", MODELS)
def test_the_forward_keeps_its_bits_where_no_gradient_is_wanted(
    name: str, how: str, rules: int, x: Tensor
) -> None:
    model = MODELS[name]().eval().requires_grad_(how != "frozen")
    with INFERENCE[how]():
        plain = model(x)
        applied = [relurules.apply(model, "identity", missing="ignore") for _ in range(rules)]
        found = model(x)
    for one in applied:
        one.remove()
    assert same(found.clone(), plain.clone())


@pytest.mark.parametrize("name", ["a layer", "a model with a head", "an encoder with padding"])
def test_that_is_no_error_and_one_call(name: str, x: Tensor) -> None:
    model = MODELS[name]().eval().requires_grad_(False)
    with relurules.apply(model, "redirected", schedule=relurules.until(3)) as ruled:
        ruled(x)  # two calls without a step would be a ScheduleWarning


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["a layer", "a subclass", "an encoder", "in a sequence"])
def test_the_gradient_is_ruled(name: str, training: bool, frozen: bool, x: Tensor) -> None:
    model = MODELS[name]().train(training).requires_grad_(not frozen).double()
    x = x.double().requires_grad_()
    plain = model(x)
    with relurules.apply(model, "identity") as ruled:
        output = ruled(x)
    assert same(output, plain)
    found = gradients(output, [x])[0]
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation = lambda h: act(h, "identity")
        elif isinstance(module, nn.ReLU):
            module.forward = lambda h: act(h, "identity")
    assert same(found, gradients(model(x), [x])[0])


def test_a_frozen_layer_before_one_that_learns(x: Tensor) -> None:
    """The first steps aside, and what comes after it takes the rule."""
    model = nn.Sequential(layer().requires_grad_(False), layer()).double().eval()
    weight, x = model[1].linear1.weight, x.double()
    plain = model(x)
    applied = relurules.apply(model, "identity")
    output = applied(x)
    assert same(output, plain)
    assert [row.name for row in applied.report.sites] == ["1.relu"]
    applied.remove()
    found = gradients(output, [weight])[0]
    model[1].activation = lambda h: act(h, "identity")
    assert same(found, gradients(model(x), [weight])[0])


def test_an_encoder_whose_later_layers_learn(x: Tensor) -> None:
    encoder = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False).double().eval()
    encoder.layers[0].requires_grad_(False)
    x, weight = x.double(), encoder.layers[1].linear1.weight
    plain = encoder(x)
    with relurules.apply(encoder, "identity") as ruled:
        output = ruled(x)
    assert same(output, plain)
    found = gradients(output, [weight])[0]
    encoder.layers[1].activation = lambda h: act(h, "identity")
    assert same(found, gradients(encoder(x), [weight])[0])


def test_a_plain_gradient_beside_a_frozen_transformer_is_an_error(x: Tensor) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.head = layer().eval().requires_grad_(False), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(self.head(self.frozen(x)))

    with (
        pytest.raises(NoActivationError, match="gelu"),
        relurules.apply(Mixed(), "guided") as ruled,
    ):
        ruled(x)


# --- A gradient inside the model's own forward ------------------------------------------------


class Looking(nn.Module):
    """A model that takes a gradient of itself, whatever its caller wants."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.first = body, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            score = F.relu(self.first(self.body(x))).sin().sum()
            return torch.autograd.grad(score, x)[0]


@pytest.mark.parametrize("how", ["frozen", "no_grad"])  # there is no way out of inference_mode
@pytest.mark.parametrize("name", ["attention", "a layer", "an encoder", "a subclass"])
def test_it_is_ruled(name: str, how: str, x: Tensor) -> None:
    model = Looking(MODELS[name]()).eval().requires_grad_(how != "frozen")
    with INFERENCE[how]():
        plain = model(x)
        with relurules.apply(model, "identity") as ruled:
            found = ruled(x)
    _put_reference(model)
    assert same(found, model(x))
    assert not same(found, plain)


def _put_reference(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation = lambda h: act(h, "identity")
        elif isinstance(module, nn.ReLU):
            module.forward = lambda h: act(h, "identity")
    first, body = model.first, model.body

    def forward(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(act(first(body(x)), "identity").sin().sum(), x)[0]

    model.forward = forward


class LookingInside(nn.TransformerEncoderLayer):
    """It takes the gradient in a subclass of a layer with a fused form: nothing is ruled there."""

    def forward(self, src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with torch.enable_grad():
            src = src.detach().requires_grad_()
            return torch.autograd.grad(F.relu(src).sin().sum(), src)[0]


@pytest.mark.parametrize("how", ["frozen", "no_grad"])
@pytest.mark.parametrize("alone", [True, False])
def test_where_it_would_be_plain_it_is_an_error(how: str, alone: bool, x: Tensor) -> None:
    inner = LookingInside(8, 2, 16, batch_first=True).eval().requires_grad_(how != "frozen")
    model = inner if alone else nn.Sequential(inner, nn.ReLU())
    with (
        INFERENCE[how](),
        pytest.raises(UncoveredActivationError, match="records a gradient of its own"),
        relurules.apply(model, "guided") as ruled,
    ):
        ruled(x)


def test_a_part_with_a_gradient_of_its_own_inside_a_frozen_encoder(x: Tensor) -> None:
    """Torch's encoder runs any layers, so the rule waits behind the doors of those."""

    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.self_attn = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, src: Tensor, **kwargs: Any) -> Tensor:
            with torch.enable_grad():
                src = src.detach().requires_grad_()
                return torch.autograd.grad(F.relu(src).sin().sum(), src)[0]

    encoder = nn.TransformerEncoder(layer(), 1, enable_nested_tensor=False).eval()
    encoder.layers = nn.ModuleList([Mine().eval()])
    encoder.requires_grad_(False)
    with relurules.apply(encoder, "identity") as ruled:
        found = ruled(x)
    leaf = x.clone().requires_grad_()
    assert same(found, torch.autograd.grad(act(leaf, "identity").sin().sum(), leaf)[0])
