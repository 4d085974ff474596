"""Applying, leaving, nesting and pausing, as the contract promises them."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from blocks import Net, by_hand, gradient, nothing_stays_behind, output_by_hand
from reference import same
from torch import Tensor, nn

import relurules


@pytest.fixture
def net() -> Net:
    return Net().double()


@pytest.fixture
def x() -> Tensor:
    return (torch.randn(3, 4, dtype=torch.float64) * 4).requires_grad_()


@pytest.fixture(autouse=True)
def _nothing_stays_behind(net: Net, x: Tensor) -> Iterator[None]:
    with nothing_stays_behind(net, x):
        yield


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
    with relurules.apply(net, "identity") as ruled:
        found = gradient(lambda x: ruled(F.relu(x)), x)
    h = F.relu(x).detach().requires_grad_()
    assert same(found, torch.where(x > 0, by_hand(net, h, "identity"), 0.0))


def test_a_loss_after_the_model_is_no_concern(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "identity") as ruled:
        output = ruled(x)
        (found,) = torch.autograd.grad(output.clamp(min=0).sum() + F.relu(output - 1).sum(), x)
    leaf = output.detach().requires_grad_()
    (g,) = torch.autograd.grad(leaf.clamp(min=0).sum() + F.relu(leaf - 1).sum(), leaf)
    (expected,) = torch.autograd.grad(output_by_hand(net, x, "identity"), x, g)
    assert same(found, expected)


def test_one_graph_gives_the_same_gradient_twice(net: Net, x: Tensor) -> None:
    with relurules.apply(net, "guided") as ruled:
        score = ruled(x).sin().sum()
        once, twice = (torch.autograd.grad(score, x, retain_graph=True)[0] for _ in range(2))
    assert same(once, by_hand(net, x, "guided"))
    assert same(once, twice)


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
