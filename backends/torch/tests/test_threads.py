"""Threads, tasks and processes: a rule holds where it was applied, and nowhere else."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import act, same
from spawned import (
    Examples,
    RuledExamples,
    child,
    gradient,
    load_forked,
    load_forked_plainly,
    loader,
    new_example,
)
from spawned import Pair as Net
from torch import Tensor

import relurules
from relurules import NoActivationError


@pytest.fixture
def net() -> Net:
    return Net().double()


def by_hand(net: Net, x: Tensor, rule: str) -> Tensor:
    return gradient(lambda x: act(net.b(act(net.a(x), rule)), rule), x)


def new_input() -> Tensor:
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True)


def in_a_thread(run: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def guarded() -> None:
        try:
            found.append(run())
        except Exception as error:  # noqa: BLE001 - handed to the caller
            found.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    return found[0]


SECONDS = 3.0


@pytest.mark.parametrize("part", ["whole", "layer by layer"])
def test_two_threads_on_one_model(net: Net, part: str) -> None:
    """One thread enters and leaves a rule all the time, the other never has one."""
    x, stop = new_input(), time.monotonic() + SECONDS
    run = net if part == "whole" else lambda x: net.act(net.b(net.act(net.a(x))))
    expected = {rule: by_hand(net, x, rule) for rule in ("identity", "standard")}
    counts = {"identity": 0, "standard": 0, "wrong": 0}

    def ruled(x: Tensor) -> Tensor:
        with relurules.apply(net, "identity"):
            return gradient(run, x)

    def work(rule: str, once: Callable[[Tensor], Tensor]) -> None:
        mine = x.detach().clone().requires_grad_()
        while time.monotonic() < stop:
            counts["wrong"] += not same(once(mine), expected[rule])
            counts[rule] += 1

    threads = [
        threading.Thread(target=work, args=("identity", ruled)),
        threading.Thread(target=work, args=("standard", lambda x: gradient(run, x))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts["wrong"] == 0
    assert min(counts["identity"], counts["standard"]) > 50


def test_two_threads_with_two_rules(net: Net) -> None:
    x = new_input()
    expected = {rule: by_hand(net, x, rule) for rule in ("identity", "deconv")}
    wrong: list[str] = []

    def work(rule: str) -> None:
        mine = x.detach().clone().requires_grad_()
        for _ in range(150):
            with relurules.apply(net, rule) as ruled:
                if not same(gradient(ruled, mine), expected[rule]):
                    wrong.append(rule)

    threads = [threading.Thread(target=work, args=(rule,)) for rule in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert "forward" not in vars(net)


def test_a_model_called_in_another_thread_only(net: Net) -> None:
    applied = relurules.apply(net, "guided")
    in_a_thread(lambda: net(new_input()))
    with pytest.raises(NoActivationError, match="called in another thread"):
        applied.remove()


def test_the_applied_rule_called_in_another_thread_is_an_error(net: Net) -> None:
    applied = relurules.apply(net, "guided")
    applied(new_input())
    for call in (applied, applied.at(3)):
        error = in_a_thread(lambda call=call: call(new_input()))
        assert isinstance(error, NoActivationError)
        assert "in another thread than the one that applied it" in str(error)
    applied.remove()


def test_backward_in_another_thread(net: Net) -> None:
    x = new_input()
    with relurules.apply(net, "identity") as ruled:
        score = ruled(x).sin().sum()
        (found,) = in_a_thread(lambda: torch.autograd.grad(score, x))
    assert same(found, by_hand(net, x, "identity"))


def test_a_rule_removed_in_another_thread(net: Net) -> None:
    x = new_input()
    applied = relurules.apply(net, "identity")
    applied(x)
    in_a_thread(applied.remove)
    assert same(gradient(net, x), by_hand(net, x, "standard"))


def right(loaded: list[Tensor], net: Net, rule: str) -> bool:
    return all(same(one, by_hand(net, new_example(i), rule)) for i, one in enumerate(loaded))


def in_a_spawned_process(target: Callable[..., None], *args: Any) -> Any:
    """Run `target(*args, results)` where nothing ran before, and return what it puts there."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=target, args=(*args, results))
    process.start()
    found = results.get(timeout=120)
    process.join()
    return found


def test_loader_in_the_same_process(net: Net) -> None:
    with relurules.apply(net, "identity") as ruled:
        ruled(new_input())
        assert right(list(loader(Examples(net), None)), net, "identity")


def test_a_forked_loader_worker_has_the_rule(net: Net) -> None:
    """It is the thread that applied the rule, as it was when the fork was made."""
    loaded = in_a_spawned_process(load_forked, net, False)
    assert right([torch.tensor(one, dtype=torch.float64) for one in loaded], net, "identity")


def test_a_fork_after_compiled_code_is_beyond_torch_with_or_without_a_rule(net: Net) -> None:
    """So fork first, or let workers be spawned: pytorch/pytorch/wiki/Autograd-and-Fork."""
    assert "Autograd-and-Fork" in in_a_spawned_process(load_forked, net, True)
    assert "Autograd-and-Fork" in in_a_spawned_process(load_forked_plainly, net)


def test_a_spawned_loader_worker_gets_a_plain_model_and_can_rule_it(net: Net) -> None:
    x = new_input()
    with relurules.apply(net, "deconv") as ruled:
        ruled(x)
        assert right(list(loader(Examples(net), "spawn")), net, "standard")
        assert right(list(loader(RuledExamples(net), "spawn")), net, "identity")
        assert same(gradient(ruled, x), by_hand(net, x, "deconv"))


def test_a_spawned_process_gets_a_plain_model_and_can_rule_it(net: Net) -> None:
    x = new_input()
    with relurules.apply(net, "deconv") as ruled:
        ruled(x)
        plain, found = in_a_spawned_process(child, net, x.detach().clone().requires_grad_())
    assert same(torch.tensor(plain, dtype=torch.float64), by_hand(net, x, "standard"))
    assert same(torch.tensor(found, dtype=torch.float64), by_hand(net, x, "identity"))


# --- asyncio ----------------------------------------------------------------------------------


def test_another_task_stays_plain(net: Net) -> None:
    x = new_input()

    async def ruled() -> bool:
        with relurules.apply(net, "identity") as model:
            await asyncio.sleep(0)
            return same(gradient(model, x), by_hand(net, x, "identity"))

    async def plain() -> bool:
        right = []
        for _ in range(3):
            right.append(same(gradient(net, x), by_hand(net, x, "standard")))
            await asyncio.sleep(0)
        return all(right)

    async def both() -> list[bool]:
        return list(await asyncio.gather(plain(), ruled(), plain()))

    assert asyncio.run(both()) == [True, True, True]


def test_a_task_that_the_rule_started_has_it(net: Net) -> None:
    x = new_input()

    async def child() -> bool:
        return same(gradient(net, x), by_hand(net, x, "identity"))

    async def parent() -> list[bool]:
        with relurules.apply(net, "identity"):
            return list(await asyncio.gather(child(), child()))

    assert asyncio.run(parent()) == [True, True]

    async def outside() -> bool:
        with relurules.apply(net, "identity"):
            return await child()

    assert asyncio.run(outside())
    with relurules.apply(net, "identity"):
        assert asyncio.run(child())


def test_a_handle_used_in_another_task_is_an_error(net: Net) -> None:
    async def serve() -> None:
        ready, done = asyncio.Event(), asyncio.Event()
        shared: list[Any] = []

        async def owner() -> None:
            applied = relurules.apply(net, "identity", missing="error")
            applied(new_input())
            shared.append(applied)
            ready.set()
            await done.wait()
            applied.remove()

        async def request() -> None:
            await ready.wait()
            with pytest.raises(NoActivationError, match="in another asyncio task"):
                shared[0](new_input())
            done.set()

        await asyncio.gather(owner(), request())

    asyncio.run(serve())


def test_the_rule_of_a_finished_task_is_the_threads(net: Net) -> None:
    """As in a notebook, each cell of which may be a task."""
    x, applied = new_input(), []

    async def first() -> None:
        applied.append(relurules.apply(net, "identity"))

    async def second() -> bool:
        return same(gradient(net, x), by_hand(net, x, "identity"))

    asyncio.run(first())
    assert asyncio.run(second())
    assert same(gradient(net, x), by_hand(net, x, "identity"))
    applied[0].remove()
