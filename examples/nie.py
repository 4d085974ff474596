"""Nie, Zhang, Patel 2018: guided backpropagation recovers the image, whatever the class.

Their theorem is about networks with one wide layer of Gaussian weights, so such networks are
measured here, without and with the max-pooling on which deconv depends.
"""

from __future__ import annotations

import itertools

import torch
from experiment import RULES, Experiment, Key, Progress, Samples, by_rule, correlation, photos
from torch import nn

import relurules

SIDE = 48
WIDTHS = (16, 64, 256)
POOLS = {"no pooling": 1, "max-pooling": 2}  # pooling over one pixel is none


def network(*, width: int, pool: int, seed: int) -> nn.Module:
    """Return a convolution, a ReLU, pooling and a dense layer, all weights standard normal."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, width, 7, padding=3, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(pool),
        nn.Flatten(),
        nn.Linear(width * (SIDE // pool) ** 2, 2, bias=False),
    )
    for weights in net.parameters():
        nn.init.normal_(weights)
    return net


def measure(seeds: int, progress: Progress) -> Samples:
    """Compare the map of one class with the image, and with the map of another class."""
    images = photos(SIDE) - 0.5
    for pooling, width, seed in progress(list(itertools.product(POOLS, WIDTHS, range(seeds)))):
        net = network(width=width, pool=POOLS[pooling], seed=seed)
        for rule in RULES:
            one, other = (relurules.attribute(net, images, target, rule) for target in (0, 1))
            yield Key(image_setting(pooling, width), rule), correlation(one, images)
            yield Key(class_setting(pooling, width), rule), correlation(one, other)


def image_setting(pooling: str, width: int) -> str:
    """Return the name of the setting that compares a map with its image."""
    return f"{pooling}, width {width}: map and image"


def class_setting(pooling: str, width: int) -> str:
    """Return the name of the setting that compares the maps of two classes."""
    return f"{pooling}, width {width}: two classes"


RECORDED = (
    by_rule(image_setting("no pooling", 16), -0.002, -0.006, 0.526)
    | by_rule(image_setting("no pooling", 64), -0.003, -0.062, 0.734)
    | by_rule(image_setting("no pooling", 256), -0.003, -0.059, 0.850)
    | by_rule(image_setting("max-pooling", 16), -0.004, 0.080, 0.344)
    | by_rule(image_setting("max-pooling", 64), 0.005, 0.141, 0.534)
    | by_rule(image_setting("max-pooling", 256), -0.001, 0.226, 0.665)
    | by_rule(class_setting("no pooling", 256), 0.002, None, 0.917)
    | by_rule(class_setting("max-pooling", 256), -0.005, None, 0.865)
)

EXPERIMENT = Experiment(
    name="nie",
    paper="Nie, Zhang & Patel 2018",
    shows="correlation; 4 photographs in each of 5 random networks of one hidden layer",
    measure=measure,
    seeds=5,
    quick=2,
    recorded=RECORDED,
    within=0.15,
)
