"""What a spawned process imports: it finds modules on the path, and test modules are not there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from reference import RELU6, act
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import relurules


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.b(self.act(self.a(x))))


def gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.autograd.grad(run(x).sin().sum(), x)[0]


def child(net: Pair, x: Tensor, results: Any) -> None:
    plain = gradient(net, x)
    with relurules.apply(net, "identity") as ruled:
        results.put((plain.tolist(), gradient(ruled, x).tolist()))


def new_example(index: int) -> Tensor:
    return torch.full((1, 4), index - 1.0, dtype=torch.float64, requires_grad=True)


class Examples(Dataset[Tensor]):
    """Examples that a model makes, as a feature store does."""

    def __init__(self, net: Pair) -> None:
        self.net = net

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return gradient(self.net, new_example(index))


class RuledExamples(Examples):
    """It applies its rule itself, in whatever process it is asked."""

    def __getitem__(self, index: int) -> Tensor:
        with relurules.apply(self.net, "identity"):
            return super().__getitem__(index)


def loader(examples: Examples, start: str | None) -> DataLoader[Tensor]:
    """Load in the same process, or in two workers that are started in this way."""
    workers = 0 if start is None else 2
    return DataLoader(examples, batch_size=None, num_workers=workers, multiprocessing_context=start)


def load_forked(net: Pair, compiles: bool, results: Any) -> None:
    """Load in forked workers under a rule, and put the gradients or the error."""
    with relurules.apply(net, "identity") as ruled:
        ruled(new_example(0))
        _load_forked(net, compiles, results)


def load_forked_plainly(net: Pair, results: Any) -> None:
    """The same after compiled code, without relurules."""
    _load_forked(net, True, results)


def _load_forked(net: Pair, compiles: bool, results: Any) -> None:
    warnings.simplefilter("ignore")  # Python warns of a fork with threads
    if compiles:
        torch.compile(nn.Linear(4, 4), backend="eager")(torch.ones(1, 4)).sum().backward()
    try:
        results.put([one.tolist() for one in loader(Examples(net), "fork")])
    except RuntimeError as error:
        results.put(str(error))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(self.act(self.linear(x)) * 3 - 1)


class Net(nn.Module):
    """A block that may run inside something, and a layer after it."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.block, self.head = Block(), nn.Linear(4, 3)
        self.run = run or (lambda block, x: block(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.run(self.block, x))


def worker(rank: int, store: str, results: Any) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    found = {}
    for order in ("apply, wrap", "wrap, apply to the wrapper", "wrap, apply to the module"):
        torch.manual_seed(0)
        net = Net().double()
        x = torch.randn(5, 4, dtype=torch.float64) + rank
        found[order] = (_distributed(net, x, order), _locally(net, rank))
    results.put((rank, found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _distributed(net: Net, x: Tensor, order: str) -> list[float]:
    from torch.nn.parallel import DistributedDataParallel

    if order == "apply, wrap":
        with relurules.apply(net, "identity"):
            wrapped = DistributedDataParallel(net)
            wrapped(x).sum().backward()
    else:
        wrapped = DistributedDataParallel(net)
        with relurules.apply(wrapped if "wrapper" in order else net, "identity"):
            wrapped(x).sum().backward()
    grad = net.block.linear.weight.grad
    net.zero_grad()
    return grad.flatten().tolist()


def _locally(net: Net, rank: int) -> list[float]:
    torch.manual_seed(0)
    Net()
    base = torch.randn(5, 4, dtype=torch.float64)
    weight = net.block.linear.weight
    total = torch.zeros_like(weight)
    for other in range(2):
        inner = act(net.block.linear(base + other), "identity") * 3 - 1
        score = net.head(act(inner, "identity", RELU6)).sum()
        total += torch.autograd.grad(score, weight)[0]
    return (total / 2).flatten().tolist()
