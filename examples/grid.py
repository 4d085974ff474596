"""Deconv's grid: without max-pooling a deconv map holds nothing of the image.

Deconv looks at the gradient alone, so the switches of max-pooling are the only way by which an
image can come into its backward pass. A trained network without them is measured, and random
ones like VGG that differ in the pooling only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from experiment import (
    RULES,
    Experiment,
    Key,
    Progress,
    Samples,
    correlation,
    correlation_of_pairs,
    photos,
)
from torch import Tensor, nn

import relurules
from relurules.explain import load_model

SIDE = 64
WIDTHS = (32, 64, 128)
POOLS = {"average": nn.AvgPool2d, "max": nn.MaxPool2d}
CAT, ESPRESSO = CLASSES = (285, 967)
TRAINED = "EfficientNet-Lite0, trained"


def vgg(pool: type[nn.Module], seed: int) -> nn.Sequential:
    """Return three stages of two convolutions and a pooling, and a dense layer, all random."""
    torch.manual_seed(seed)
    stages = itertools.pairwise((3, *WIDTHS))
    layers = [layer for before, width in stages for layer in _stage(before, width, pool)]
    outputs = nn.Linear(WIDTHS[-1] * (SIDE // 2 ** len(WIDTHS)) ** 2, 10)
    return nn.Sequential(*layers, nn.Flatten(), outputs)


def _stage(before: int, width: int, pool: type[nn.Module]) -> Iterable[nn.Module]:
    for channels in (before, width):
        layer = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        yield from (layer, nn.ReLU())
    yield pool(2)


def measure(seeds: int, progress: Progress) -> Samples:
    """Compare the maps of one class between photographs, then with the photographs."""
    yield from _trained(progress)
    images = photos(SIDE) - 0.5
    for pooling, seed in progress(list(itertools.product(POOLS, range(seeds)))):
        net = vgg(POOLS[pooling], seed)
        for rule in RULES:
            maps = relurules.attribute(net, images, 0, rule)
            yield from _compared(random(pooling), rule, maps, images)


def _trained(progress: Progress) -> Samples:
    classifier = load_model()
    images = classifier.normalise(photos(classifier.size))
    for rule in progress(RULES):
        cat, espresso = (
            relurules.attribute(classifier.network, images, target, rule) for target in CLASSES
        )
        yield from _compared(TRAINED, rule, cat, images)
        yield Key(two_classes(TRAINED), rule), correlation(cat, espresso)


def _compared(network: str, rule: str, maps: Tensor, images: Tensor) -> Samples:
    yield Key(between(network), rule), correlation_of_pairs(maps)
    yield Key(with_image(network), rule), correlation(maps, images)


def random(pooling: str) -> str:
    """Return the name of the random network with this pooling."""
    return f"like VGG, {pooling} pooling, random"


def between(network: str) -> str:
    """Return the name of the setting that compares two photographs, one class."""
    return f"{network}: two photographs"


def two_classes(network: str) -> str:
    """Return the name of the setting that compares two classes, one photograph."""
    return f"{network}: two classes"


def with_image(network: str) -> str:
    """Return the name of the setting that compares a map with its photograph."""
    return f"{network}: map and image"


EXPERIMENT = Experiment(
    name="grid",
    paper="deconv's grid",
    shows="correlation; 4 photographs; classes 'Egyptian cat' and 'espresso'; 5 random networks",
    measure=measure,
    seeds=5,
    quick=2,
)
