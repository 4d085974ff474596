"""torch.compile: in every order of applying and compiling the rule is in force, or it says why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import RELU6, act, gradients, same
from torch import Tensor, nn

import relurules
from relurules import NoActivationError, UncoveredActivationError

dynamo_testing = pytest.importorskip("torch._dynamo.testing")
pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of what it looks at


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.head = nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Linear(4, 2)
        self.body: Any = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(F.relu(self.act(self.conv(x)) - 0.5))
        return self.head(F.relu6(h * 3, inplace=True).mean((2, 3)))


def by_hand(model: Small, x: Tensor, rule: str) -> Tensor:
    h = act(act(model.conv(x), rule) - 0.5, rule)
    h = act(getattr(model.body, "_orig_mod", model.body)[0](h), rule)
    return gradients(model.head(act(h * 3, rule, RELU6).mean((2, 3))), [x])[0]


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.fixture
def model() -> Small:
    return Small().double().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)


class Compiled:
    """A model compiled in one of several ways, without graph breaks, and counted."""

    def __init__(self, model: Small, way: str, backend: str) -> None:
        self.counter = dynamo_testing.CompileCounterWithBackend(backend)
        self.run, self.target = WAYS[way](model, self._compile)

    def _compile(self, thing: Any) -> Any:
        return torch.compile(thing, backend=self.counter, fullgraph=True)

    def gradient(self, x: Tensor) -> Tensor:
        return gradients(self.run(x), [x])[0]

    @property
    def graphs(self) -> int:
        return self.counter.frame_count


def _in_place(model: Small, make: Any) -> tuple[Any, Any]:
    model.forward = make(model.forward)  # type: ignore[method-assign]
    return model, model


def _submodule(model: Small, make: Any) -> tuple[Any, Any]:
    model.body = make(model.body)
    return model, model


def _function(model: Small, make: Any) -> tuple[Any, Any]:
    def run(x: Tensor) -> Tensor:
        return model(x)

    return make(run), model


def _whole(model: Small, make: Any) -> tuple[Any, Any]:
    compiled = make(model)
    return compiled, compiled


WAYS: dict[str, Callable[[Small, Any], tuple[Any, Any]]] = {
    "the compiled model": _whole,
    "the model inside": lambda model, make: (make(model), model),
    "a compiled submodule": _submodule,
    "a compiled forward": _in_place,
    "a compiled function": _function,
}


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
@pytest.mark.parametrize("way", WAYS)
def test_every_order(model: Small, x: Tensor, backend: str, way: str, warm: bool) -> None:
    compiled = Compiled(model, way, backend)
    if warm:
        assert close(compiled.gradient(x), by_hand(model, x, "standard"))
    for _ in range(3):
        with relurules.apply(compiled.target, "guided"):
            assert close(compiled.gradient(x), by_hand(model, x, "guided"))
        assert close(compiled.gradient(x), by_hand(model, x, "standard"))
    graphs = compiled.graphs
    assert graphs == 2
    for _ in range(12):
        with relurules.apply(compiled.target, "guided"):
            compiled.gradient(x)
        compiled.gradient(x)
    assert compiled.graphs == graphs
    for rule in ("deconv", "guided"):
        with relurules.apply(compiled.target, rule):
            assert close(compiled.gradient(x), by_hand(model, x, rule))


@pytest.mark.parametrize("rule", ["redirected", "leaky", "identity", "standard"])
def test_every_rule(model: Small, x: Tensor, rule: str) -> None:
    compiled = Compiled(model, "the model inside", "aot_eager")
    with relurules.apply(model, rule):
        assert close(compiled.gradient(x), by_hand(model, x, rule))


@pytest.mark.parametrize("way", ["the model inside", "a compiled submodule"])
def test_inductor(model: Small, x: Tensor, way: str) -> None:
    compiled = Compiled(model, way, "inductor")
    compiled.gradient(x)
    with relurules.apply(compiled.target, "guided"):
        assert close(compiled.gradient(x), by_hand(model, x, "guided"))
    assert close(compiled.gradient(x), by_hand(model, x, "standard"))
    assert compiled.graphs == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_applied_before_compiling(model: Small, x: Tensor, backend: str) -> None:
    with relurules.apply(model, "guided"):
        compiled = Compiled(model, "the compiled model", backend)
        assert close(compiled.gradient(x), by_hand(model, x, "guided"))
    assert close(compiled.gradient(x), by_hand(model, x, "standard"))


@pytest.mark.parametrize("way", ["the compiled model", "the model inside"])
def test_steps_without_a_compilation_each(model: Small, x: Tensor, way: str) -> None:
    compiled = Compiled(model, way, "aot_eager")
    applied = relurules.apply(compiled.target, "identity", schedule=relurules.until(2))
    for step in range(8):
        expected = by_hand(model, x, "identity" if step <= 2 else "standard")
        assert close(compiled.gradient(x), expected)
        applied.advance()
    assert compiled.graphs == 2  # one that is active, one that is not
    for step in range(8):
        with applied.at(torch.tensor(step)):
            expected = by_hand(model, x, "identity" if step <= 2 else "standard")
            assert close(compiled.gradient(x), expected)
    assert compiled.graphs == 3
    with applied.paused():
        assert close(compiled.gradient(x), by_hand(model, x, "standard"))
    applied.remove()


@pytest.mark.parametrize("way", WAYS)
def test_another_thread_stays_plain(model: Small, x: Tensor, way: str) -> None:
    compiled, found = Compiled(model, way, "aot_eager"), []
    other = x.detach().clone().requires_grad_()
    with relurules.apply(compiled.target, "guided"):
        compiled.gradient(x)
        thread = threading.Thread(target=lambda: found.append(compiled.gradient(other)))
        thread.start()
        thread.join()
        assert close(compiled.gradient(x), by_hand(model, x, "guided"))
    assert close(found[0], by_hand(model, x, "standard"))


def test_other_compiled_code_stays_plain(model: Small, x: Tensor) -> None:
    other = Small().double().eval()
    compiled = torch.compile(other, backend="aot_eager")
    around = torch.compile(lambda x: F.relu(model(F.relu(x))), backend="aot_eager")
    with relurules.apply(model, "identity"):
        assert close(gradients(compiled(x), [x])[0], by_hand(other, x, "standard"))
        eager = gradients(F.relu(model(F.relu(x))), [x])[0]
        assert close(gradients(around(x), [x])[0], eager)


def test_graph_breaks(x: Tensor) -> None:
    class Broken(Small):
        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.conv(x))
            torch._dynamo.graph_break()
            return self.head(F.relu(h - 0.5).mean((2, 3)))

    model = Broken().double()
    compiled = torch.compile(model, backend="aot_eager")

    def expected(rule: str) -> Tensor:
        h = act(act(model.conv(x), rule) - 0.5, rule)
        return gradients(model.head(h.mean((2, 3))), [x])[0]

    for target in (model, compiled):
        with relurules.apply(target, "guided"):
            assert close(gradients(compiled(x), [x])[0], expected("guided"))
        assert close(gradients(compiled(x), [x])[0], expected("standard"))


def test_the_report_says_that_it_was_compiled(model: Small, x: Tensor) -> None:
    compiled = torch.compile(model, backend="aot_eager")
    applied = relurules.apply(model, "guided")
    compiled(x)
    assert [row.name for row in applied.report.sites] == ["compiled region"]
    applied.remove()


def test_names_are_not_known_in_one_compiled_graph(model: Small, x: Tensor) -> None:
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    applied = relurules.apply(model, "guided", exclude="act", missing="ignore")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="that is not known"):
        whole(x)
    applied.remove()


def test_where_graphs_may_break_names_make_the_model_run_eagerly(model: Small, x: Tensor) -> None:
    compiled = torch.compile(model, backend="aot_eager")
    with relurules.apply(model, "identity", exclude="act"):
        eager, found = (gradients(run(x), [x])[0] for run in (model, compiled))
    assert close(found, eager)
    assert not close(found, by_hand(model, x, "identity"))


@pytest.mark.parametrize("inside", [True, False])
def test_what_has_no_activation_or_an_opaque_one(x: Tensor, inside: bool) -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.RNNCell(6, 6, nonlinearity="relu")

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.cell(x))

    h = torch.randn(2, 6, requires_grad=True)
    errors = (UncoveredActivationError, torch._dynamo.exc.Unsupported)
    for model, error in ((nn.GELU(), NoActivationError), (Cell(), errors)):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=model is not nn.GELU)
        with pytest.raises(error), relurules.apply(model if inside else compiled, "guided"):
            compiled(h)


def test_the_value_is_that_of_the_compiled_model(model: Small, x: Tensor) -> None:
    compiled = torch.compile(model, backend="aot_eager")
    plain = compiled(x)
    with relurules.apply(model, "redirected"):
        assert same(compiled(x), plain)
