"""Every way into a model: its call, its forward, its other methods and its parts."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import act, same
from torch import Tensor, nn

import relurules
from relurules import NoActivationError, UncoveredActivationError


class Stem(nn.Module):
    """A layer of the user's own, without a module inside."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.relu = Stem(), nn.ReLU()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.cell = nn.RNNCell(4, 4, nonlinearity="relu")

    def encode(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return F.relu(x) * scale

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def _private(self, x: Tensor) -> Tensor:
        return F.relu(x)

    @staticmethod
    def fixed(x: Tensor) -> Tensor:
        return F.relu(x)

    def size(self) -> int:
        return 4

    def forward(self, x: Tensor) -> Tensor:
        return self.features(self.encode(self.stem(x)))


@pytest.fixture
def model() -> Encoder:
    return Encoder().double()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True)


def gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.autograd.grad(run(x).sin().sum(), x)[0]


Ways = dict[str, tuple[Callable[[Any, Tensor], Tensor], Callable[[Any, Tensor, str], Tensor]]]


def _whole(m: Any, x: Tensor, rule: str) -> Tensor:
    return act(m.body[0](act(act(x, rule), rule)), rule)


WAYS: Ways = {
    "model(x)": (lambda m, x: m(x), _whole),
    "model.forward(x)": (lambda m, x: m.forward(x), _whole),
    "model.encode(x)": (lambda m, x: m.encode(x, scale=2.0), lambda m, x, r: act(x, r) * 2),
    "model.features(x)": (lambda m, x: m.features(x), lambda m, x, r: act(m.body[0](x), r)),
    "model._private(x)": (lambda m, x: m._private(x), lambda m, x, r: act(x, r)),
    "model.fixed(x)": (lambda m, x: m.fixed(x), lambda m, x, r: act(x, r)),
    "model.stem(x)": (lambda m, x: m.stem(x), lambda m, x, r: act(x, r)),
    "model.relu(x)": (lambda m, x: m.relu(x), lambda m, x, r: act(x, r)),
    "model.relu.forward(x)": (lambda m, x: m.relu.forward(x), lambda m, x, r: act(x, r)),
    "model.body(x)": (lambda m, x: m.body(x), lambda m, x, r: act(m.body[0](x), r)),
    "layer by layer": (
        lambda m, x: m.relu(m.body[0](m.stem(x))),
        lambda m, x, r: act(m.body[0](act(x, r)), r),
    ),
}


@pytest.mark.parametrize("rule", ["guided", "deconv", "redirected", "identity"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_is_ruled(model: Encoder, x: Tensor, way: str, rule: str) -> None:
    run, by_hand = WAYS[way]
    plain = gradient(lambda x: run(model, x), x)
    with relurules.apply(model, rule) as ruled:
        assert same(gradient(ruled, x), gradient(lambda x: _whole(model, x, rule), x))
        expected = gradient(lambda x: by_hand(model, x, rule), x)
        assert same(gradient(lambda x: run(ruled, x), x), expected)
    assert same(gradient(lambda x: run(model, x), x), plain)
    assert same(plain, gradient(lambda x: by_hand(model, x, "standard"), x))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "model(x)"])
def test_a_part_alone_is_enough(model: Encoder, x: Tensor, way: str) -> None:
    run, by_hand = WAYS[way]
    applied = relurules.apply(model, "guided")
    expected = gradient(lambda x: by_hand(model, x, "guided"), x)
    assert same(gradient(lambda x: run(model, x), x), expected)
    assert applied.report.sites
    applied.remove()


def test_a_method_that_runs_no_activation_is_no_call(model: Encoder) -> None:
    with (
        pytest.raises(NoActivationError, match=r"What was called is size, and no activation"),
        relurules.apply(model, "guided") as ruled,
    ):
        assert ruled.size() == 4


def test_a_part_with_something_opaque_is_an_error_that_names_it(model: Encoder, x: Tensor) -> None:
    applied = relurules.apply(model, "guided")
    with pytest.raises(UncoveredActivationError, match=r"cell\.rnn_relu_cell"):
        model.cell(x)
    applied.remove()


def test_what_a_method_hides_below_python_is_an_error(x: Tensor) -> None:
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, *g: Tensor) -> Tensor:
            return g[0]

    class Model(nn.Module):
        def encode(self, x: Tensor) -> Tensor:
            return Hidden.apply(F.relu(x))

    applied = relurules.apply(Model(), "guided")
    with pytest.raises(UncoveredActivationError, match="Hidden"):
        applied.model.encode(x)
    applied.remove()


def _body(model: Encoder, x: Tensor, rule: str) -> Tensor:
    return gradient(lambda x: act(model.body[0](x), rule), x)


def test_paused_holds_for_parts_too(model: Encoder, x: Tensor) -> None:
    applied = relurules.apply(model, "identity")
    with applied.paused():
        assert same(gradient(model.body, x), _body(model, x, "standard"))
    assert same(gradient(model.body, x), _body(model, x, "identity"))
    applied.remove()


# --- Whose call is it ------------------------------------------------------------------------


class Sharing(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


@pytest.mark.parametrize("part", ["stem", "relu", "body"])
def test_another_model_that_shares_a_part_stays_plain(model: Encoder, x: Tensor, part: str) -> None:
    other = Sharing(getattr(model, part))
    plain = gradient(other, x)
    with relurules.apply(model, "identity") as ruled:
        assert same(gradient(other, x), plain)
        ruled(x)
        assert same(gradient(other, x), plain)


def test_a_wrapper_that_holds_the_model_calls_on_its_behalf(model: Encoder, x: Tensor) -> None:
    class Wrapper(Sharing):
        def forward(self, x: Tensor) -> Tensor:
            return self.part.body(x)

    expected = gradient(lambda x: act(model.body[0](x), "identity"), x)
    with relurules.apply(model, "identity"):
        assert same(gradient(Wrapper(model), x), expected)
    unregistered = Wrapper(nn.Identity())
    vars(unregistered)["part"] = model
    del unregistered._modules["part"]
    with relurules.apply(model, "identity"):
        assert same(gradient(unregistered, x), expected)


@pytest.mark.parametrize("inner_first", [True, False])
def test_a_rule_on_a_part_wins_when_the_part_is_called(
    model: Encoder, x: Tensor, inner_first: bool
) -> None:
    pairs = [(model, "deconv"), (model.body, "identity")]
    applied = [relurules.apply(*pair) for pair in (pairs[::-1] if inner_first else pairs)]
    expected = gradient(lambda x: act(model.body[0](x), "identity"), x)
    assert same(gradient(model.body, x), expected)
    assert same(gradient(model.features, x), expected)
    model(x)
    for one in applied:
        one.remove()


@pytest.mark.parametrize("first_out", [0, 1, 2])
def test_three_rules_left_in_any_order(model: Encoder, x: Tensor, first_out: int) -> None:
    rules = ["deconv", "identity", "guided"]
    applied = [relurules.apply(model, rule) for rule in rules]
    model(x)
    applied.pop(first_out).remove()
    rules.pop(first_out)
    for way in ("model(x)", "model.encode(x)", "model.body(x)"):
        run, by_hand = WAYS[way]
        expected = gradient(lambda x, by_hand=by_hand: by_hand(model, x, rules[-1]), x)
        assert same(gradient(lambda x, run=run: run(model, x), x), expected)
    for one in applied:
        one.remove()
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("method", ["_ff_block", "forward"])
def test_a_transformer_layer_part_by_part(method: str) -> None:
    layer = nn.TransformerEncoderLayer(4, 1, 8, dropout=0.0, activation="relu").double()
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    with relurules.apply(layer, "identity"):
        found = gradient(getattr(layer, method), x)
    layer.activation = lambda h: act(h, "identity")
    assert same(found, gradient(getattr(layer, method), x))


def test_one_module_twice_and_the_same_model_twice(x: Tensor) -> None:
    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()
    model = nn.Sequential(layer, layer)
    with relurules.apply(model, "deconv") as ruled:
        found = gradient(lambda x: ruled(ruled(x)), x)

    def hand(x: Tensor) -> Tensor:
        return act(layer[0](act(layer[0](x), "deconv")), "deconv")

    assert same(found, gradient(lambda x: hand(hand(x)), x))


# --- The model itself stays what it is ---------------------------------------------------------


def test_a_model_is_untouched_afterwards(model: Encoder, x: Tensor) -> None:
    model.encode = own = F.relu  # type: ignore[method-assign]
    before = {path: dict(vars(module)) for path, module in model.named_modules()}
    with relurules.apply(model, "guided") as ruled:
        assert type(ruled) is Encoder
        assert list(inspect.signature(ruled.forward).parameters) == ["x"]
        assert ruled.features.__name__ == "features"
        ruled(x)
    assert model.encode is own
    after = {path: dict(vars(module)) for path, module in model.named_modules()}
    assert all(before[path].keys() == after[path].keys() for path in before)
    assert all(before[path][key] is after[path][key] for path in before for key in before[path])


def test_what_others_assign_meanwhile_stays(model: Encoder, x: Tensor) -> None:
    with relurules.apply(model, "guided") as ruled:
        ruled(x)
        model.features = theirs = lambda x: x  # type: ignore[method-assign]
    assert model.features is theirs


def _saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": _saved,
    "data parallel": lambda m: m._replicate_for_data_parallel(),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_made_inside_is_plain_and_its_own(model: Encoder, x: Tensor, way: str) -> None:
    model.register_forward_hook(_user_hook)
    with relurules.apply(model, "identity", missing="ignore") as ruled:
        ruled(x)
        made = COPIES[way](model)
        assert "forward" not in vars(made)
        assert list(made._forward_hooks.values()) == [_user_hook]
        assert same(gradient(made._private, x), gradient(lambda x: act(x, "standard"), x))
    if way in ("copy.deepcopy", "pickle", "torch.save"):
        assert same(gradient(made, x), gradient(lambda x: _whole(made, x, "standard"), x))
        assert made.body[0].weight is not model.body[0].weight
        assert not any("forward" in vars(module) for module in made.modules())


def _user_hook(module: nn.Module, args: Any, output: Any) -> None:
    return None


def test_a_copy_of_a_graph_module(model: Encoder, x: Tensor) -> None:
    traced = torch.fx.symbolic_trace(model)
    with relurules.apply(traced, "identity") as ruled:
        ruled(x)
        made = copy.deepcopy(traced)
        assert same(gradient(made, x), gradient(lambda x: _whole(model, x, "standard"), x))
        assert made.body._modules["0"].weight is not model.body[0].weight


def test_an_interrupt_leaves_nothing_behind(model: Encoder, x: Tensor) -> None:
    class Interrupted(Encoder):
        def encode(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
            raise KeyboardInterrupt

    for run in (lambda m: m(x), lambda m: m.forward(x), lambda m: m.encode(x)):
        hooked, plain = Interrupted().double(), Interrupted().double()
        hooked.register_forward_hook(_user_hook)
        for interrupted in (hooked, plain):
            applied = relurules.apply(interrupted, "identity")
            with pytest.raises(KeyboardInterrupt):
                run(interrupted)
            assert not torch.overrides._get_current_function_mode_stack()
            found = gradient(interrupted.body, x)
            assert same(found, _body(interrupted, x, "identity"))
            applied.remove()


def test_a_thousand_rules_leave_no_growth(x: Tensor) -> None:
    import gc

    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()

    def cycle(times: int) -> int:
        for _ in range(times):
            with relurules.apply(layer, "guided") as ruled:
                ruled(x)
        gc.collect()
        return len(gc.get_objects())

    cycle(10)
    before = cycle(10)
    assert cycle(1000) - before < 100


def test_what_a_user_hooked_on_the_model_is_part_of_it(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(4, 4)).double()
    model.register_forward_hook(lambda module, args, output: F.relu(output))
    with relurules.apply(model, "identity") as ruled:
        found = gradient(ruled, x)
    assert same(found, gradient(lambda x: act(model[0](x), "identity"), x))


def test_a_relu_whose_forward_is_anothers_keeps_it() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net[1].forward = lambda h: torch.relu(h) * 2  # type: ignore[method-assign]
    x = torch.randn(3, 4, requires_grad=True)
    plain = net(x)
    with relurules.apply(net, "guided") as ruled:
        assert torch.equal(ruled(x), plain)
    with relurules.apply(net, "identity"), relurules.apply(net[1], "guided") as inner:
        assert inner is net[1]
        assert torch.equal(net(x), plain)


@pytest.mark.parametrize("first", ["whole", "part"])
def test_a_rule_on_one_relu_wins_over_one_on_the_model(first: str) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4, requires_grad=True)
    rules = [(net, "identity"), (net[1], "deconv")]
    outer, inner = (relurules.apply(*rule) for rule in rules[:: 1 if first == "whole" else -1])
    found = torch.autograd.grad(net(x), x, torch.ones(3, 4))[0]
    h = act(act(net[0](x), "deconv") @ net[2].weight.T + net[2].bias, "identity")
    assert torch.equal(found, torch.autograd.grad(h, x, torch.ones(3, 4))[0])
    outer.remove()
    inner.remove()
