"""The sign of a gradient, and what a schedule makes of a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference import same
from torch import nn

import relurules


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


def test_steps_by_hand_and_at() -> None:
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


def test_follow_wants_an_optimiser() -> None:
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        relurules.apply(nn.ReLU(), "guided", missing="ignore").follow(nn.ReLU())
