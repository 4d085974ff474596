"""What a rule cannot reach is an error that names it and the way out, never a plain gradient."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import relurules
from relurules import NoActivationError, UncoveredActivationError, UncoveredActivationWarning

X = torch.randn(3, 4)


class Written(nn.Module):
    """A model whose forward is one function, with a linear layer before it."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.write = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.write(self, self.first(x))


class HiddenRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Tensor:
        return g[0] * (ctx.saved_tensors[0] > 0)


class Cell(nn.Module):
    """What gets scripted and traced."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2


def scripted() -> nn.Module:
    with pytest.warns(FutureWarning, match="deprecated"):
        return torch.jit.script(Cell())


def traced() -> nn.Module:
    with pytest.warns(FutureWarning, match="deprecated"):
        return torch.jit.trace(Cell(), X)


NOTHING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "LeakyReLU only": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU()), r"1 \(leaky_relu\)"),
    "LeakyReLU(0)": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0)), "leaky_relu"),
    "GELU": (lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU()), "gelu"),
    "SiLU": (lambda: nn.Sequential(nn.Linear(4, 4), nn.SiLU()), "silu"),
    "PReLU": (lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU()), "prelu"),
    "Hardswish": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Hardswish()), "hardswish"),
    "Hardsigmoid": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Hardsigmoid()), "hardsigmoid"),
    "linear": (lambda: nn.Linear(4, 4), "ran no nonlinearity"),
    "clamp": (lambda: Written(lambda self, h: h.clamp(min=0)), "match='structural'"),
    "where": (lambda: Written(lambda self, h: torch.where(h > 0, h, 0.0)), "where"),
    "maximum": (lambda: Written(lambda self, h: torch.maximum(h, torch.zeros(()))), "maximum"),
    "mask": (lambda: Written(lambda self, h: h * (h > 0)), "ran no nonlinearity"),
    "(x + |x|) / 2": (lambda: Written(lambda self, h: (h + h.abs()) / 2), "ran no nonlinearity"),
}

UNCOVERED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "nn.RNN(relu)": (
        lambda: Written(
            lambda self, h: F.relu(self.rnn(h)[0]), rnn=nn.RNN(4, 4, nonlinearity="relu")
        ),
        r"rnn\.rnn_relu \(rnn_relu\)",
    ),
    "nn.RNNCell(relu)": (
        lambda: Written(
            lambda self, h: F.relu(self.cell(h)), cell=nn.RNNCell(4, 4, nonlinearity="relu")
        ),
        r"cell\.rnn_relu_cell",
    ),
    "scripted submodule": (lambda: Written(lambda s, h: s.sub(h).relu(), sub=scripted()), "sub"),
    "traced submodule": (lambda: Written(lambda s, h: s.sub(h).relu(), sub=traced()), "sub"),
    "custom autograd function": (
        lambda: Written(lambda self, h: F.relu(HiddenRelu.apply(h))),
        "HiddenRelu .autograd function.",
    ),
    "threshold that is no clip": (
        lambda: Written(lambda self, h: F.relu(F.threshold(h, 1.0, 0.0))),
        "threshold .threshold.",
    ),
    "reentrant checkpoint": (
        lambda: Written(lambda self, h: checkpoint(F.relu, h, use_reentrant=True).relu()),
        "use_reentrant=False",
    ),
    "an activation in another thread": (lambda: Written(_relu_in_a_thread), "ReluBackward0"),
}


def _relu_in_a_thread(self: nn.Module, h: Tensor) -> Tensor:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(torch.relu(h)))
    thread.start()
    thread.join()
    return torch.relu(found[0])


@pytest.mark.parametrize("name", NOTHING)
def test_no_activation_took_the_rule(name: str) -> None:
    build, named = NOTHING[name]
    with pytest.raises(NoActivationError, match=named), relurules.apply(build(), "guided") as ruled:
        ruled(X)


@pytest.mark.parametrize("name", UNCOVERED)
def test_something_was_left_over(name: str) -> None:
    build, named = UNCOVERED[name]
    model = build()
    with pytest.raises(UncoveredActivationError, match=named) as caught:
        relurules.apply(model, "guided")(X)
    assert "missing=" in str(caught.value)


@pytest.mark.parametrize("build", [scripted, traced])
def test_torchscript_as_the_model(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(UncoveredActivationError, match="scripted or traced from"):
        relurules.apply(build(), "guided")


@pytest.mark.parametrize("build", [scripted, traced])
def test_a_torchscript_part_called_alone(build: Callable[[], nn.Module]) -> None:
    model = Written(lambda s, h: s.sub(h).relu(), sub=build())
    with (
        pytest.raises(UncoveredActivationError, match="scripted or traced from"),
        relurules.apply(model, "guided"),
    ):
        model.sub(X)


def test_torchscript_without_an_activation_is_no_obstacle() -> None:
    with pytest.warns(FutureWarning, match="deprecated"):
        plain = torch.jit.script(nn.Linear(4, 4))
    with relurules.apply(Written(lambda s, h: s.sub(h).relu(), sub=plain), "guided") as ruled:
        ruled(X)


@pytest.mark.parametrize("name", UNCOVERED)
def test_the_error_comes_on_every_call(name: str) -> None:
    """TorchScript runs another program from its second call on, and another after that."""
    applied = relurules.apply(UNCOVERED[name][0](), "guided")
    for _ in range(4):
        with pytest.raises(UncoveredActivationError):
            applied(X)


def test_what_is_excluded_by_name_is_no_error() -> None:
    model = UNCOVERED["nn.RNN(relu)"][0]()
    with relurules.apply(model, "guided", exclude="rnn.*") as ruled:
        ruled(X)
    model = UNCOVERED["custom autograd function"][0]()
    seen_inside = pytest.warns(UncoveredActivationWarning, match="clamp_min")
    with seen_inside, relurules.apply(model, "guided", exclude="HiddenRelu") as ruled:
        ruled(X)


@pytest.mark.parametrize("name", UNCOVERED)
def test_missing_warn_and_ignore(name: str) -> None:
    model = UNCOVERED[name][0]()
    with (
        pytest.warns(UncoveredActivationWarning),
        relurules.apply(model, "guided", missing="warn") as ruled,
    ):
        ruled(X)
    with relurules.apply(model, "guided", missing="ignore") as ruled:
        ruled(X)


def test_gates_beside_sites_are_told_once_and_listed() -> None:
    model = Written(lambda self, h: F.relu(h).clamp(max=1))
    applied = relurules.apply(model, "guided")
    with pytest.warns(UncoveredActivationWarning, match="clamp") as told:
        applied(X)
        applied(X)
    assert len(told) == 1
    assert [(row.name, row.calls) for row in applied.report.where("gate")] == [("clamp", 2)]
    applied.remove()


def test_reductions_and_merges_are_no_gates() -> None:
    model = Written(lambda self, h: torch.maximum(F.relu(h), h + 1).max(dim=1).values + h.max())
    with relurules.apply(model, "guided") as ruled:
        ruled(X)
    assert ruled is model


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_fused_layers_without_a_relu_are_no_obstacle(cell: Any) -> None:
    model = Written(lambda self, h: F.relu(self.cell(h)[0]), cell=cell(4, 4))
    with relurules.apply(model, "guided") as ruled:
        ruled(X)


def test_a_model_that_was_never_called() -> None:
    with (
        pytest.raises(NoActivationError, match="never called"),
        relurules.apply(nn.ReLU(), "guided"),
    ):
        pass


def test_a_function_that_a_model_stores_is_nobodys_method() -> None:
    model = Written(lambda self, h: F.relu(h))
    with (
        pytest.raises(NoActivationError, match="one of its methods or of one of its submodules"),
        relurules.apply(model, "guided") as ruled,
    ):
        ruled.write(ruled, X)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"rule": "guidde"}, relurules.UnknownRuleError, "did you mean 'guided'"),
        ({"rule": 3}, TypeError, "name or a relurules.Rule"),
        ({"rule": {}}, ValueError, "empty"),
        ({"rule": "guided", "missing": "no"}, ValueError, "missing must be one of"),
        ({"rule": "guided", "match": "all"}, ValueError, "match must be one of"),
        ({"rule": "guided", "gradient_of": "map"}, ValueError, "gradient_of must be one of"),
        ({"rule": "guided", "batch_axis": "N"}, TypeError, "batch_axis must be an int"),
        ({"rule": "guided", "batch_axis": True}, TypeError, "batch_axis must be an int"),
        ({"rule": "guided", "only": 3}, TypeError, "only must be a shell pattern"),
        ({"rule": "guided", "schedule": 16}, TypeError, "schedule must have a method active"),
        ({"rule": "guided", "backend": "torhc"}, relurules.UnknownBackendError, "'torch'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=re.escape(named)):
        relurules.apply(nn.ReLU(), **arguments)


@pytest.mark.parametrize("thing", [3, None, [nn.ReLU()], "resnet18"])
def test_what_is_no_model(thing: object) -> None:
    with pytest.raises(relurules.UnsupportedModelError, match="No installed backend takes"):
        relurules.apply(thing, "guided")


def test_a_function_of_tensors_is_no_model() -> None:
    """Where JAX is loaded any function may be one of JAX's, which only a call can tell."""
    with pytest.raises((relurules.UnsupportedModelError, NoActivationError)):
        relurules.apply(torch.relu, "guided")(X)


@pytest.mark.parametrize("excluded", [nn.ReLU(inplace=True), nn.ReLU6(inplace=True), nn.ReLU()])
def test_an_excluded_activation_is_not_taken_for_a_missed_one(excluded: nn.Module) -> None:
    model = Written(lambda self, h: self.sub(h * 1).sigmoid().relu(), sub=excluded)
    with relurules.apply(model, "guided", exclude="sub") as ruled:
        ruled(X)
        ruled(X)
