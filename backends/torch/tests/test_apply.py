"""Applying, leaving, nesting, pausing and stepping, as the contract promises them."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import RELU6, act, same
from torch import Tensor, nn

import relurules
from relurules import NoActivationError, Rule, Site


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x)) + F.relu6(x) + F.relu(x - 1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@pytest.fixture
def net() -> Net:
    return Net().double()


@pytest.fixture
def x() -> Tensor:
    return (torch.randn(3, 4, dtype=torch.float64) * 4).requires_grad_()


def gradient(model: Any, x: Tensor) -> Tensor:
    return torch.autograd.grad(model(x).sin().sum(), x)[0]


def by_hand(net: Net, x: Tensor, rule: str, rule6: str = "", rule_b: str = "") -> Tensor:
    def block(block: Block, h: Tensor, rule: str) -> Tensor:
        inner = act(block.conv(h), rule) + act(h, rule6 or rule, RELU6)
        return inner + act(h - 1, rule)

    return gradient(lambda x: block(net.b, block(net.a, x, rule), rule_b or rule), x)


@pytest.fixture(autouse=True)
def _nothing_stays_behind(net: Net, x: Tensor) -> Iterator[None]:
    before = gradient(net, x)
    yield
    assert same(gradient(net, x), before)
    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()


def test_the_model_is_the_very_object(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "guided") as guided:
        assert guided is net
        assert same(gradient(guided, x), by_hand(net, x, "guided"))


def test_the_applied_rule_can_be_called(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided")
    assert same(gradient(applied, x), by_hand(net, x, "guided"))
    assert "guided" in repr(applied)
    applied.remove()
    applied.remove()
    assert "removed" in repr(applied)


def test_a_graph_keeps_its_rule_after_leaving(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "deconv") as ruled:
        score = ruled(x).sin().sum()
    assert same(torch.autograd.grad(score, x)[0], by_hand(net, x, "deconv"))


def test_an_exception_inside_restores_the_model(net: Net, x: Tensor) -> None:
    with pytest.raises(KeyError), relurules.apply(net, "guided"):
        raise KeyError("the user's own")
    with pytest.raises(RuntimeError, match="mat1"), relurules.apply(net, "guided") as ruled:
        ruled(torch.ones(2, 9, dtype=torch.float64))


def test_remove_while_an_exception_is_handled_does_not_hide_it(net: Net) -> None:
    applied = relurules.apply(net, "guided")
    with pytest.raises(KeyError):
        try:
            raise KeyError("the user's own")
        finally:
            applied.remove()


def test_an_interrupt_inside_the_forward_leaves_nothing(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "identity")
    net.b.act.forward = _interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        applied(x)
    del net.b.act.forward
    other = Net().double()
    assert same(gradient(other, x), by_hand(other, x, "standard"))
    assert same(gradient(net, x), by_hand(net, x, "identity"))
    applied.remove()


def _interrupt(h: Tensor) -> Tensor:
    raise KeyboardInterrupt


@pytest.mark.parametrize("first_out", ["inner", "outer"])
def test_the_innermost_rule_wins_and_any_order_of_leaving_restores(
    net: Net, x: Tensor, first_out: str
) -> None:
    outer = relurules.apply(net, "deconv")
    inner = relurules.apply(net, "guided")
    assert same(gradient(net, x), by_hand(net, x, "guided"))
    assert len(inner.report.sites) == 6
    outer_first = first_out == "outer"
    (outer if outer_first else inner).remove()
    assert same(gradient(net, x), by_hand(net, x, "guided" if outer_first else "deconv"))
    (inner if outer_first else outer).remove()


def test_where_the_inner_rule_does_not_act_the_outer_does(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "deconv"), relurules.apply(net, "guided", exclude="*relu6*"):
        assert same(gradient(net, x), by_hand(net, x, "guided", "deconv"))


def test_a_rule_on_a_submodule_wins_over_one_on_the_whole(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "deconv"), relurules.apply(net.b, "guided"):
        assert same(gradient(net, x), by_hand(net, x, "deconv", "", "guided"))
    # the block's relu6 is inside too
    with relurules.apply(net.b, "guided"), relurules.apply(net, "deconv"):
        net(x)


def test_entering_twice_leaves_once(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided")
    with applied:
        with applied as ruled:
            pass
        assert same(gradient(ruled, x), by_hand(net, x, "guided"))
    with pytest.raises(RuntimeError, match="removed"), applied:
        pass


def test_other_models_and_the_code_around_are_untouched(net: Net, x: Tensor) -> None:
    other = Net().double()
    with relurules.apply(net, "guided") as ruled:
        before, after = F.relu(x), F.relu(ruled(x))
        assert type(before.grad_fn).__name__ == type(after.grad_fn).__name__ == "ReluBackward0"
        assert same(gradient(other, x), by_hand(other, x, "standard"))


def test_a_ruled_graph_before_the_model_is_no_concern(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "guided") as ruled:
        found = gradient(lambda x: ruled(F.relu(x)), x)
    h = F.relu(x)
    h.retain_grad()
    assert found.shape == x.shape


def test_another_thread_stays_plain(net: Net, x: Tensor) -> None:
    found: list[Tensor] = []
    with relurules.apply(net, "guided") as ruled:
        ruled(x)
        other = x.detach().clone().requires_grad_()
        thread = threading.Thread(target=lambda: found.append(gradient(net, other)))
        thread.start()
        thread.join()
    assert same(found[0], by_hand(net, x, "standard"))


def test_paused(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided")
    with applied.paused():
        assert same(gradient(net, x), by_hand(net, x, "standard"))
    assert same(gradient(net, x), by_hand(net, x, "guided"))
    applied.remove()


def test_no_grad_and_inference_mode(net: Net, x: Tensor) -> None:
    plain = net(x).detach()
    with relurules.apply(net, "guided") as ruled:
        with torch.no_grad():
            assert same(ruled(x), plain)
        with torch.inference_mode():
            assert same(ruled(x).clone(), plain)


def test_parameters_and_state_stay(net: Net, x: Tensor) -> None:
    keys, ids = list(net.state_dict()), [id(p) for p in net.parameters()]
    with relurules.apply(net, "guided") as ruled:
        ruled(x)
        assert list(net.state_dict()) == keys
        assert [id(p) for p in net.parameters()] == ids


def test_a_parameter_can_be_the_input_of_an_activation() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([-1.0, 2.0]))

        def forward(self) -> Tensor:
            return F.relu(self.w)

    model = Learned()
    with relurules.apply(model, "identity") as ruled:
        ruled().sum().backward()
    assert model.w.grad is not None
    assert model.w.grad.tolist() == [1.0, 1.0]


def test_an_applied_rule_cannot_be_copied(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "guided") as ruled:
        ruled(x)
        applied = relurules.apply(net, "guided", missing="ignore")
        for make in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="copy the model"):
                make(applied)
        applied.remove()


def test_a_removed_rule_keeps_no_model_alive(x: Tensor) -> None:
    net = Net().double()
    dead = weakref.ref(net)
    applied = relurules.apply(net, "guided")
    applied(x)
    applied.remove()
    del net, applied
    gc.collect()
    assert dead() is None


# --- Which sites -------------------------------------------------------------------------


def test_the_report_names_each_site(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided")
    applied(x)
    applied(x)
    rows = [(row.name, row.kind, row.calls) for row in applied.report.sites]
    assert rows == [
        (f"{block}.{name}", kind, 2)
        for block in "ab"
        for name, kind in (("act", "relu"), ("relu6", "relu6"), ("relu", "relu"))
    ]
    assert "a.relu6" in str(applied.report)
    assert "<td>a.relu6</td>" in applied.report._repr_html_()
    assert applied.report.to_dict()["rows"][0]["name"] == "a.act"
    applied.remove()


def test_two_calls_in_one_forward_have_two_names_and_a_loop_has_one() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(x) + F.relu(-x)
            for _ in range(3):
                x = torch.relu(x - 1)
            return x

    applied = relurules.apply(Twice(), "guided")
    applied(torch.randn(2, 2, requires_grad=True))
    assert [(r.name, r.calls) for r in applied.report.sites] == [
        ("relu", 1),
        ("relu_1", 1),
        ("relu_2", 3),
    ]
    applied.remove()


@pytest.mark.parametrize(
    "selection",
    [
        {"exclude": "*relu6"},
        {"exclude": ["a.relu6", "b.relu6"]},
        {"exclude": lambda site: site.kind == "relu6"},
        {"only": ["*.act", "*.relu"]},
        {"only": lambda site: isinstance(site, Site) and site.bounds != RELU6},
        {"rule": {"relu": "guided"}},
        {"rule": {"*.act": "guided", "relu": "guided"}},
    ],
)
def test_selecting_sites(net: Net, x: Tensor, selection: dict[str, Any]) -> None:
    with relurules.apply(net, **{"rule": "guided", **selection}) as ruled:
        assert same(gradient(ruled, x), by_hand(net, x, "guided", "standard"))


def test_a_mapping_gives_each_site_its_rule(net: Net, x: Tensor) -> None:
    with relurules.apply(net, {"relu6": "deconv", "*": "guided"}) as ruled:
        assert same(gradient(ruled, x), by_hand(net, x, "guided", "deconv"))


def test_a_selection_that_leaves_nothing_is_an_error(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided", only="nothing.*")
    with pytest.raises(NoActivationError, match="Left out"):
        applied(x)
    applied.remove()


def test_redirected_relu6_leaves_relu_alone(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "redirected_relu6")
    assert same(gradient(applied, x), by_hand(net, x, "standard", "redirected"))
    assert {row.kind for row in applied.report.sites} == {"relu6"}
    assert {row.kind for row in applied.report.where("excluded")} == {"relu"}
    applied.remove()
    with (
        pytest.raises(NoActivationError, match="Left out"),
        relurules.apply(nn.ReLU(), "redirected_relu6") as ruled,
    ):
        ruled(x)


# --- Sign and schedule ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["standard", "deconv", "guided", "redirected", "leaky"])
def test_the_other_sign(rule: str) -> None:
    x = torch.tensor([[-1.0, 2.0], [-3.0, -4.0]], requires_grad=True)
    g = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
    own = relurules.rule(rule).gradient_of
    for gradient_of in ("score", "loss"):
        with relurules.apply(nn.ReLU(), rule, gradient_of=gradient_of) as ruled:
            (found,) = torch.autograd.grad(ruled(x), x, g)
        spec = relurules.spec.evaluate(
            relurules.rule(rule), x.detach().numpy(), g.numpy(), gradient_of=gradient_of
        )
        assert same(found, torch.from_numpy(spec))
        flipped = own not in (None, gradient_of)
        base = relurules.spec.evaluate(
            relurules.rule(rule), x.detach().numpy(), -g.numpy() if flipped else g.numpy()
        )
        assert same(found, torch.from_numpy(-base if flipped else base))


def test_the_schedule_follows_the_optimiser() -> None:
    x = torch.full((1, 2), -1.0, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    applied = relurules.apply(nn.ReLU(), "redirected", schedule=relurules.until(2)).follow(
        optimizer
    )
    seen = []
    for _ in range(5):
        optimizer.zero_grad()
        (-applied(x).sum()).backward()
        assert x.grad is not None
        seen.append(x.grad.abs().sum().item())
        optimizer.step()
    assert seen == [2.0, 2.0, 2.0, 0.0, 0.0]
    assert applied.step == 5
    applied.remove()
    optimizer.step()
    assert applied.step == 5


def test_steps_by_hand_and_at(x: Tensor) -> None:
    x = torch.full((1, 2), -1.0, requires_grad=True)
    applied = relurules.apply(nn.ReLU(), "identity", schedule=relurules.until(16))

    def passed(model: Any) -> bool:
        return bool(torch.autograd.grad(model(x).sum(), x)[0].any())

    assert passed(applied.at(16))
    assert not passed(applied.at(17))
    assert applied.step == 0
    with applied.at(17) as ruled:
        assert applied.step == 17
        assert not passed(ruled)
    assert passed(applied)
    assert applied.advance().advance(16).step == 17
    assert not passed(applied)
    assert passed(applied.at(torch.tensor(16)))
    assert not passed(applied.at(torch.tensor(17)))
    applied.remove()


def test_a_rule_says_what_follows_it() -> None:
    x = torch.tensor([[-1.0, 2.0]], requires_grad=True)
    rule = relurules.rule("identity").then(relurules.rule("deconv"))
    applied = relurules.apply(nn.ReLU(), rule, schedule=relurules.until(0))
    g = torch.tensor([[1.0, -1.0]])
    assert torch.autograd.grad(applied.at(0)(x), x, g)[0].tolist() == [[1.0, -1.0]]
    assert torch.autograd.grad(applied.at(1)(x), x, g)[0].tolist() == [[1.0, 0.0]]
    applied.remove()


def test_a_schedule_that_never_moves_is_told() -> None:
    x = torch.ones(1, 2, requires_grad=True)
    applied = relurules.apply(nn.ReLU(), "redirected", schedule=relurules.until(16))
    applied(x)
    applied(x)
    with pytest.warns(relurules.ScheduleWarning, match="never moved"):
        applied.remove()


def test_follow_wants_an_optimiser(net: Net, x: Tensor) -> None:
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        relurules.apply(nn.ReLU(), "guided", missing="ignore").follow(net)


# --- Rules of one's own and batch axes -----------------------------------------------------


def test_a_rule_of_ones_own(net: Net, x: Tensor) -> None:
    def halve(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
        return xp.where(x > bounds[0], g, g * 0)

    with relurules.apply(net, Rule(name="halve", fn=halve)) as ruled:
        gradient(ruled, x)


def test_a_namesake_of_a_built_in_rule_is_not_mistaken_for_it() -> None:
    x = torch.tensor([[-1.0]], requires_grad=True)
    mine = Rule(name="guided", fn=lambda x, g, *, bounds, xp: g)
    with relurules.apply(nn.ReLU(), mine) as ruled:
        assert torch.autograd.grad(ruled(x).sum(), x)[0].item() == 1


def test_a_rule_must_keep_the_dtype() -> None:
    x = torch.ones(2, requires_grad=True)
    wide = Rule(name="wide", fn=lambda x, g, *, bounds, xp: g.double())
    with relurules.apply(nn.ReLU(), wide) as ruled:
        y = ruled(x)
    with pytest.raises(TypeError, match="'wide' returned"):
        y.sum().backward()


@pytest.mark.parametrize("shape", [(), (3,)])
def test_samples_need_a_batch(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, requires_grad=True)
    applied = relurules.apply(nn.ReLU(), "redirected")
    with pytest.raises(ValueError, match="batch_axis=None"):
        applied(x)
    applied.remove()
    with relurules.apply(nn.ReLU(), "redirected", batch_axis=None) as ruled:
        ruled(x).sum().backward()


def test_the_batch_axis_can_be_another() -> None:
    x = torch.tensor([[-1.0, 2.0], [-3.0, -4.0]], requires_grad=True)
    g = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    for axis in (0, 1, -1, None):
        with relurules.apply(nn.ReLU(), "redirected", batch_axis=axis) as ruled:
            (found,) = torch.autograd.grad(ruled(x), x, g)
        spec = relurules.spec.redirected(x.detach().numpy(), g.numpy(), batch_axis=axis)
        assert same(found, torch.from_numpy(spec))


def test_dead_and_live_samples_in_one_batch() -> None:
    x = torch.randn(16, 3, 2, 2) - 1.2
    x[::3] = -x[::3].abs()
    g = torch.randn(16, 3, 2, 2)
    for shape in ((16, 12), (16, 3, 2, 2), (0, 3), (16, 0, 2)):
        n = torch.Size(shape).numel()
        a, b = x.flatten()[:n].reshape(shape).requires_grad_(), g.flatten()[:n].reshape(shape)
        with relurules.apply(nn.ReLU(), "redirected") as ruled:
            (found,) = torch.autograd.grad(ruled(a), a, b)
        spec = relurules.spec.redirected(a.detach().numpy(), b.numpy())
        assert same(found, torch.from_numpy(spec))
