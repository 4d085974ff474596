"""Sixt, Granz, Landgraf 2020: with depth the guided maps of all classes become one.

Every step back through a ReLU multiplies by a matrix and keeps what is positive, which draws
all starting directions towards the same one. One network is enough to see it by depth: the map
at an inner layer is that of the input of the layers above.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from experiment import RULES, Experiment, Key, Progress, Samples, by_rule, cosine_of_pairs
from torch import Tensor, nn

import relurules

CLASSES = 10
DEPTHS = (1, 2, 4, 8)


def dense(seed: int) -> tuple[nn.Sequential, Tensor]:
    """Return 20 layers of 256 units, and an input."""
    torch.manual_seed(seed)
    blocks = [_block(nn.Linear(256, 256, bias=False)) for _ in range(20)]
    return nn.Sequential(*blocks, nn.Linear(256, CLASSES)), torch.randn(1, 256)


def convolutional(seed: int) -> tuple[nn.Sequential, Tensor]:
    """Return 12 convolutions of 32 channels, and an input of 16 x 16 pixels."""
    torch.manual_seed(seed)
    channels = itertools.pairwise((3, *(32,) * 12))
    blocks = [_block(nn.Conv2d(*pair, 3, padding=1, bias=False)) for pair in channels]
    head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16 * 16, CLASSES))
    return nn.Sequential(*blocks, head), torch.randn(1, 3, 16, 16)


def _block(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(layer, nn.ReLU())


NETWORKS: Mapping[str, Callable[[int], tuple[nn.Sequential, Tensor]]] = MappingProxyType(
    {"dense, 20 layers": dense, "convolutions, 12 layers": convolutional}
)


def measure(seeds: int, progress: Progress) -> Samples:
    """Compare the maps of ten outputs, so many layers below them."""
    for name, seed in progress(list(itertools.product(NETWORKS, range(seeds)))):
        net, inputs = NETWORKS[name](seed)
        layers = len(net) - 1
        for depth, rule in itertools.product((*DEPTHS, layers), RULES):
            yield Key(setting(name, depth), rule), cosine_of_pairs(_maps(net, inputs, depth, rule))


def _maps(net: nn.Sequential, inputs: Tensor, depth: int, rule: str) -> Tensor:
    """Return the map of each output, `depth` hidden layers below it."""
    below = len(net) - 1 - depth
    with torch.no_grad():
        hidden = net[:below](inputs)
    copies = hidden.expand(CLASSES, *hidden.shape[1:])
    return relurules.attribute(net[below:], copies, list(range(CLASSES)), rule)


def setting(name: str, depth: int) -> str:
    """Return the name of the setting at this depth."""
    return f"{name}: {depth} below the outputs"


RECORDED = (
    by_rule(setting("dense, 20 layers", 8), 0.004, 0.849, 0.995)
    | by_rule(setting("dense, 20 layers", 20), -0.037, 0.943, 1.0)
    | by_rule(setting("convolutions, 12 layers", 12), -0.004, 0.807, 0.9985)
)

EXPERIMENT = Experiment(
    name="sixt",
    paper="Sixt, Granz & Landgraf 2020",
    shows="cosine of the maps of each two of 10 outputs; 5 random networks",
    measure=measure,
    seeds=5,
    quick=1,
    recorded=RECORDED,
    within=0.1,
)
