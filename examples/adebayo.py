"""Adebayo et al. 2018: does a map change when what the network has learnt is taken from it?

Small enough to train here: the digits of scikit-learn and four layers. Both kinds of network
are trained, since whether deconv passes the test depends on the max-pooling alone.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from experiment import (
    NO_RULE,
    RULES,
    Experiment,
    Key,
    Progress,
    Samples,
    by_rule,
    correlation,
    rows,
)
from scipy.stats import rankdata
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import relurules

TRAINED_ON = 1400
COMPARED = 100
EPOCHS = 15
LAYERS = 4
POOLS = {"no pooling": 1, "max-pooling": 2}


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Pictures, and what each shows."""

    images: Tensor
    labels: Tensor

    def __getitem__(self, rows: slice | Tensor) -> Labelled:
        """Return some of them."""
        return Labelled(images=self.images[rows], labels=self.labels[rows])

    def accuracy(self, net: nn.Module) -> float:
        """Return the share that the network names right."""
        with torch.no_grad():
            return float((net(self.images).argmax(dim=1) == self.labels).float().mean())


def digits() -> Labelled:
    """Return all 1797 digits in an order drawn at random."""
    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None] / 16
    return Labelled(images=images, labels=torch.from_numpy(found.target))[
        torch.randperm(len(images))
    ]


def network(pool: int) -> nn.Sequential:
    """Return two convolutions and two dense layers, not trained."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(pool),
        nn.Flatten(),
        nn.Linear(32 * (8 // pool) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(net: nn.Module, data: Labelled) -> None:
    """Fit the network to the digits."""
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(data.images)).split(64):
            optimizer.zero_grad()
            part = data[batch]
            functional.cross_entropy(net(part.images), part.labels).backward()
            optimizer.step()


def measure(seeds: int, progress: Progress) -> Samples:
    """Train, then compare with the same network in which layers were drawn anew."""
    for pooling, seed in progress(list(itertools.product(POOLS, range(seeds)))):
        torch.manual_seed(seed)
        data, net = digits(), network(POOLS[pooling])
        train(net, data[:TRAINED_ON])
        test = data[TRAINED_ON:]
        yield Key(accuracy_setting(pooling), NO_RULE), torch.tensor([test.accuracy(net)])
        yield from compared(pooling, net, test[:COMPARED], counts=range(1, LAYERS + 1))


def compared(name: str, net: nn.Module, data: Labelled, *, counts: Container[int]) -> Samples:
    """Compare the sizes in a trained network's maps with those after so many layers are random."""
    trained = {rule: sizes(net, data, rule) for rule in RULES}
    for count, other in enumerate(randomised(net), start=1):
        if count not in counts:
            continue
        for rule in RULES:
            key = Key(setting(name, count, of=len(layers(net))), rule)
            yield key, spearman(trained[rule], sizes(other, data, rule))


def randomised(net: nn.Module) -> Iterator[nn.Module]:
    """Yield one copy again and again, each time with one more layer, from the top, drawn anew."""
    net = copy.deepcopy(net)
    for layer in reversed(layers(net)):
        layer.reset_parameters()
        yield net


def layers(net: nn.Module) -> list[Any]:
    """Return what has weights, in the order of the forward pass."""
    return [module for module in net.modules() if hasattr(module, "reset_parameters")]


def sizes(net: nn.Module, data: Labelled, rule: str) -> Tensor:
    """Return the maps without their signs, as the paper compares them."""
    return relurules.attribute(net, data.images, data.labels, rule).abs()


def spearman(ones: Tensor, others: Tensor) -> Tensor:
    """Return Spearman's correlation of each map with the other at its place."""
    ranks = (torch.from_numpy(rankdata(rows(maps).numpy(), axis=1)) for maps in (ones, others))
    return correlation(*ranks)


def accuracy_setting(pooling: str) -> str:
    """Return the name of the setting that says how well the networks were trained."""
    return f"{pooling}: accuracy"


def setting(name: str, count: int, *, of: int = LAYERS) -> str:
    """Return the name of the setting with so many layers drawn anew."""
    return f"{name}: top {count} of {of} layers random"


RECORDED = (
    by_rule(setting("no pooling", 1), 0.359, 0.110, 0.578)
    | by_rule(setting("no pooling", 2), 0.202, 0.278, 0.690)
    | by_rule(setting("no pooling", 3), 0.128, 0.197, 0.637)
    | by_rule(setting("no pooling", 4), 0.108, 0.110, 0.580)
)

EXPERIMENT = Experiment(
    name="adebayo",
    paper="Adebayo et al. 2018",
    shows="rank correlation of sizes with the trained network's map; 100 digits, 3 networks",
    measure=measure,
    seeds=3,
    quick=1,
    recorded=RECORDED,
    within=0.15,
)
