"""A model of two blocks with three activations each, and its gradients by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from reference import RELU6, act, same
from torch import Tensor, nn


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


def gradient(model: Any, x: Tensor) -> Tensor:
    return torch.autograd.grad(model(x).sin().sum(), x)[0]


def by_hand(net: Net, x: Tensor, rule: str, rule6: str = "", rule_b: str = "") -> Tensor:
    return gradient(lambda x: output_by_hand(net, x, rule, rule6, rule_b), x)


def output_by_hand(net: Net, x: Tensor, rule: str, rule6: str = "", rule_b: str = "") -> Tensor:
    def block(block: Block, h: Tensor, rule: str) -> Tensor:
        inner = act(block.conv(h), rule) + act(h, rule6 or rule, RELU6)
        return inner + act(h - 1, rule)

    return block(net.b, block(net.a, x, rule), rule_b or rule)


@contextmanager
def nothing_stays_behind(net: nn.Module, x: Tensor) -> Iterator[None]:
    """Hold the model to its gradient and its hooks of before."""
    before = gradient(net, x)
    yield
    assert same(gradient(net, x), before)
    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()
