"""Modules that are not simply run under the rule: recognised ones, and excluded TorchScript."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import RELU6, act, gradients, same
from torch import Tensor, nn

import relurules
from relurules import UncoveredActivationError, _plugins
from relurules.hookspecs import hookimpl

RULES = ("standard", "deconv", "guided", "redirected", "leaky", "identity")


class Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lo: float, hi: float) -> Tensor:
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor, None, None]:
        return g[0] * 7, None, None


class Fused(nn.Module):
    """An activation in a kernel of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return Hidden.apply(x, 0.0, math.inf)


class Clamped(Fused):
    """One of functions that are gates elsewhere, and with a part of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(torch.maximum(x.clamp(min=0), torch.zeros(())))


class InPlace(Fused):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp_(min=0)


class Six(Fused):
    bounds = RELU6

    def forward(self, x: Tensor) -> Tensor:
        return Hidden.apply(x, 0.0, 6.0)


class Plugin:
    @hookimpl
    def relurules_recognise(self, backend: str, obj: object) -> Any:
        is_known = backend == "torch" and isinstance(obj, Fused)
        return getattr(obj, "bounds", (0.0, math.inf)) if is_known else None


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    plugin, manager = Plugin(), _plugins.catalogue().manager
    manager.register(plugin)
    yield
    manager.unregister(plugin)


@pytest.fixture
def x() -> Tensor:
    return (torch.randn(3, 4, dtype=torch.float64) * 5).requires_grad_()


def new_model(activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), activation, nn.Linear(4, 4), nn.ReLU()).double()


def by_hand(model: Any, x: Tensor, first: str, second: str = "") -> Tensor:
    h = act(model[0](x), first, getattr(model[1], "bounds", (0.0, math.inf)))
    return gradients(act(model[2](h), second or first), [x])[0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [Fused, Clamped, Six])
def test_the_rule_stands_behind_what_a_plugin_recognises(kind: Any, rule: str, x: Tensor) -> None:
    model = new_model(kind())
    plain = model(x)
    applied = relurules.apply(model, rule)
    output = applied(x)  # no warning of what it runs inside: warnings are errors here
    assert same(output, plain)
    assert same(gradients(output, [x])[0], by_hand(model, x, rule))
    rows = [(row.status, row.name) for row in applied.report.rows]
    assert rows == [("replaced", f"1.{kind.__name__}"), ("replaced", "3")]
    part = torch.autograd.grad(model[1](x).sin().sum(), x)[0]
    assert same(part, torch.autograd.grad(act(x, rule, _bounds(model)).sin().sum(), x)[0])
    applied.remove()


def _bounds(model: Any) -> Any:
    return getattr(model[1], "bounds", (0.0, math.inf))


@pytest.mark.parametrize("kind", [Fused, Clamped, Six])
def test_it_can_be_excluded_and_paused(kind: Any, x: Tensor) -> None:
    model = new_model(kind())
    plain = gradients(model(x), [x])[0]
    with relurules.apply(model, "identity", exclude="1.*") as ruled:
        found = gradients(ruled(x), [x])[0]
    h = model[1](model[0](x))
    assert same(found, gradients(act(model[2](h), "identity"), [x])[0])
    applied = relurules.apply(model, "identity")
    with applied.paused():
        assert same(gradients(model(x), [x])[0], plain)
    with torch.no_grad():
        applied(x)
    applied.remove()
    assert same(gradients(model(x), [x])[0], plain)


@pytest.mark.parametrize("first_out", [0, 1])
def test_the_innermost_rule_wins_there_too(first_out: int, x: Tensor) -> None:
    model = new_model(Clamped())
    applied = [relurules.apply(model, rule) for rule in ("deconv", "identity")]
    assert same(gradients(model(x), [x])[0], by_hand(model, x, "identity"))
    applied.pop(first_out).remove()
    last = ("identity", "deconv")[first_out]
    assert same(gradients(model(x), [x])[0], by_hand(model, x, last))
    applied.pop().remove()


def test_one_that_changes_its_input_is_refused(x: Tensor) -> None:
    with (
        pytest.raises(UncoveredActivationError, match=r"1 \(InPlace\).*in place"),
        relurules.apply(new_model(InPlace()), "guided") as ruled,
    ):
        ruled(x)


@pytest.mark.filterwarnings("ignore")  # Dynamo warns of what it looks at
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [Fused, Clamped, Six])
@pytest.mark.parametrize("warm", [True, False])
def test_it_is_ruled_in_compiled_code(kind: Any, rule: str, warm: bool, x: Tensor) -> None:
    torch._dynamo.reset()
    model = new_model(kind())
    plain = gradients(model(x), [x])[0]
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    if warm:
        assert torch.allclose(gradients(compiled(x), [x])[0], plain)
    with relurules.apply(model, rule):
        found = gradients(compiled(x), [x])[0]
    assert torch.allclose(found, by_hand(model, x, rule), rtol=1e-12)
    assert torch.allclose(gradients(compiled(x), [x])[0], plain)


# --- TorchScript ------------------------------------------------------------------------------


class Cell(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2


class Parent(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.first, self.part = nn.Linear(4, 4), part

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.part(self.first(x)) - 1)


def _compiled(make: Callable[[nn.Module], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated
        return make(Cell())


SCRIPTS: dict[str, Callable[[], nn.Module]] = {
    "script": lambda: _compiled(torch.jit.script),
    "trace": lambda: _compiled(lambda cell: torch.jit.trace(cell, torch.ones(3, 4).double())),
}


@pytest.mark.parametrize("pattern", ["part", "par*"])
@pytest.mark.parametrize("how", SCRIPTS)
def test_one_pattern_excludes_torchscript(how: str, pattern: str, x: Tensor) -> None:
    """Also after some calls, when the profiling executor has made other nodes of it."""
    model = Parent(SCRIPTS[how]()).double()
    applied = relurules.apply(model, "identity", exclude=pattern)
    for _ in range(4):
        found = gradients(applied(x), [x])[0]
        hand = act(act(model.first(x), "standard") * 2 - 1, "identity")
        assert torch.allclose(found, gradients(hand, [x])[0], rtol=1e-12)
    assert [row.name for row in applied.report.where("excluded")] == ["part"]
    torch.autograd.grad(model.part(x).sum(), x)
    applied.remove()


@pytest.mark.parametrize("how", SCRIPTS)
def test_an_excluded_part_hides_nothing_else(how: str, x: Tensor) -> None:
    class Two(Parent):
        def __init__(self) -> None:
            super().__init__(SCRIPTS[how]())
            self.other = SCRIPTS[how]()

        def forward(self, x: Tensor) -> Tensor:
            return self.other(super().forward(x))

    with (
        pytest.raises(UncoveredActivationError, match="other"),
        relurules.apply(Two().double(), "guided", exclude="part") as ruled,
    ):
        ruled(x)
