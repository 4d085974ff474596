"""Rules of one's own, and what a sample is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference import same
from torch import nn

import relurules
from relurules import Rule


def test_a_rule_of_ones_own() -> None:
    def halve(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
        return xp.where(x < bounds[0], g * 0.5, xp.where(x > bounds[1], g * 2, g))

    x = torch.tensor([[-1.0, 2.0, 7.0]], requires_grad=True)
    for activation, expected in ((nn.ReLU(), [0.5, 1, 1]), (nn.ReLU6(), [0.5, 1, 2])):
        with relurules.apply(activation, Rule(name="halve", fn=halve)) as ruled:
            (found,) = torch.autograd.grad(ruled(x).sum(), x)
        assert found[0].tolist() == expected


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
