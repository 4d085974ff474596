"""What counts as a step: each call of `step` of the optimiser followed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import relurules


class Loop:
    """A parameter, a model with a scheduled rule on it, and an optimiser that is followed."""

    def __init__(self, make: Callable[[list[Tensor]], Any] | None = None) -> None:
        self.x = torch.full((1, 2), -1.0, requires_grad=True)
        self.optimizer = (make or (lambda p: torch.optim.SGD(p, lr=0.0)))([self.x])
        self.applied = relurules.apply(nn.ReLU(), "identity", schedule=relurules.until(1000))
        self.applied.follow(self.optimizer)

    def loss(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = -self.applied(self.x).sum()
        loss.backward()
        return loss


def _plain(loop: Loop) -> None:
    for _ in range(3):
        loop.loss()
        loop.optimizer.step()


def _micro_batches(loop: Loop) -> None:
    for _ in range(3):
        for _ in range(2):
            (-loop.applied(loop.x).sum() / 2).backward()
        loop.optimizer.step()


def _lbfgs(loop: Loop) -> None:
    for _ in range(3):
        loop.optimizer.step(loop.loss)


def _manual(loop: Loop) -> None:
    for _ in range(3):
        loop.loss()
        with torch.no_grad():
            loop.x -= 0.1 * loop.x.grad
        loop.applied.advance()


def _forgotten(loop: Loop) -> None:
    for _ in range(3):
        torch.autograd.grad(loop.applied(loop.x).sum(), loop.x)


def _two_backwards(loop: Loop) -> None:
    for _ in range(3):
        loss = loop.applied(loop.x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        loop.optimizer.step()


def _looking(loop: Loop) -> None:
    for _ in range(3):
        with torch.no_grad():
            loop.applied(loop.x)
        loop.loss()
        loop.optimizer.step()


def _another_optimiser(loop: Loop) -> None:
    other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    for _ in range(3):
        loop.loss()
        other.step()
        loop.optimizer.step()


def _scaled(loop: Loop) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for bad in (False, True, False):
        loop.optimizer.zero_grad()
        scaler.scale(-loop.applied(loop.x).sum()).backward()
        if bad:
            loop.x.grad.fill_(float("inf"))
        scaler.step(loop.optimizer)
        scaler.update()


def _new_lbfgs(p: list[Tensor]) -> Any:
    return torch.optim.LBFGS(p, lr=0.01, max_iter=4)


COUNTS: dict[str, tuple[Callable[[Loop], None], Any, int]] = {
    "a plain loop": (_plain, None, 3),
    "micro batches": (_micro_batches, None, 3),
    "LBFGS, which evaluates several times": (_lbfgs, _new_lbfgs, 3),
    "a manual update that advances": (_manual, None, 3),
    "a manual update that does not": (_forgotten, None, 0),
    "two backwards for a graph": (_two_backwards, None, 3),
    "more forwards without a gradient": (_looking, None, 3),
    "another optimiser steps too": (_another_optimiser, None, 3),
    "a scaler that skips an overflowing step": (_scaled, None, 2),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.filterwarnings("ignore::relurules.ScheduleWarning")
def test_count(name: str) -> None:
    run, make, expected = COUNTS[name]
    loop = Loop(make)
    run(loop)
    assert loop.applied.step == expected
    loop.applied.remove()


def test_following_ends_with_the_rule() -> None:
    loop = Loop()
    _plain(loop)
    loop.applied.remove()
    loop.optimizer.step()
    assert loop.applied.step == 3


def test_the_step_is_read_in_the_forward() -> None:
    """A graph keeps the rule that was active when it was built, whatever the step is later."""
    x = torch.full((1, 2), -1.0, requires_grad=True)
    applied = relurules.apply(nn.ReLU(), "identity", schedule=relurules.until(0))
    score = applied(x).sum()
    applied.advance()
    assert torch.autograd.grad(score, x)[0].tolist() == [[1.0, 1.0]]
    assert torch.autograd.grad(applied(x).sum(), x)[0].tolist() == [[0.0, 0.0]]
    applied.remove()
