"""Adebayo et al. 2018 once more, on a large network that was trained on ImageNet.

On small data a small network may have little to forget. This one tells a thousand classes
apart, and what it knows of them is in its upper layers.
"""

from __future__ import annotations

import torch
from adebayo import Labelled, compared, layers, sizes, spearman
from experiment import RULES, Experiment, Key, Progress, Samples, photos
from torch import nn

from relurules.explain import load_model

NAME = "EfficientNet-Lite0"
ANOTHER_CLASS = f"{NAME}: another class, nothing random"
SHARES = (0.25, 0.5, 0.75, 1.0)


def measure(seeds: int, progress: Progress) -> Samples:
    """Draw the classifier anew, then quarter by quarter all that is below."""
    classifier = load_model()
    net, images = classifier.network, classifier.normalise(photos(classifier.size))
    with torch.no_grad():
        data = Labelled(images=images, labels=net(images).argmax(dim=1))
    counts = {1, *(round(share * len(layers(net))) for share in SHARES)}
    for seed in progress(range(seeds)):
        torch.manual_seed(seed)
        yield from compared(NAME, net, data, counts=counts)
    yield from _another_class(net, data)


def _another_class(net: nn.Module, data: Labelled) -> Samples:
    """Compare with the maps of a class far off, as a measure of what counts as changed."""
    other = Labelled(images=data.images, labels=(data.labels + 100) % 1000)
    for rule in RULES:
        yield Key(ANOTHER_CLASS, rule), spearman(sizes(net, data, rule), sizes(net, other, rule))


EXPERIMENT = Experiment(
    name="cascade",
    paper="Adebayo et al. 2018",
    shows="the same on a network trained on ImageNet; 4 photographs, drawn anew 3 times",
    measure=measure,
    seeds=3,
    quick=1,
)
