"""A network made ready to be explained: fed as it was trained, frozen, its outputs named.

Everything that differs between networks (input size, normalisation, labels, what a reader must
know to read its pictures) is data of one `Classifier`, so that nothing else here knows which
network it has. Where it comes from is told in `_sources`, how its weights are read in `_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torchvision.models._meta import _IMAGENET_CATEGORIES

from relurules.errors import did_you_mean
from relurules.explain._errors import ExplainError
from relurules.explain._sources import Colour, build
from relurules.explain._weights import load_weights

RANDOM = (
    "RANDOM WEIGHTS: this network is untrained, since no weights were given. Its maps explain "
    "nothing, also where they look right"
)


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A frozen network and what is needed to feed and read it.

    Attributes:
        name: The name by which `load_model` found it.
        network: The network, in evaluation mode, no parameter requiring a gradient.
        labels: The name of each class.
        size: Height and width of its input in pixels.
        mean: What is subtracted from red, green and blue in [0, 1].
        std: What they are then divided by.
        notes: What a reader should know of a rule's picture on this network, by rule.
        warning: What must be said beside each picture, or "".
    """

    name: str
    network: nn.Module
    labels: Sequence[str]
    size: int
    mean: Colour
    std: Colour
    notes: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""

    def normalise(self, pixels: Tensor) -> Tensor:
        """Map pixels in [0, 1], shape `(..., 3, height, width)`, to what the network expects."""
        mean, std = (torch.tensor(each)[:, None, None] for each in (self.mean, self.std))
        return (pixels - mean) / std

    def class_index(self, target: str) -> int:
        """Return the index of a class given by its index or its name.

        Args:
            target: `"285"`, `"Egyptian cat"`, or a part that only one label has.

        Raises:
            ExplainError: No class, or more than one, is meant.
        """
        if target.isdecimal():
            return self._checked(int(target))
        matches = self._matches(target.casefold())
        if not matches:
            raise ExplainError(f"No class is named {target!r}{did_you_mean(target, self.labels)}")
        if len(matches) > 1:
            found = ", ".join(f"{index} {self.labels[index]!r}" for index in matches)
            raise ExplainError(f"{target!r} fits more than one class: {found}; give one's index.")
        return matches[0]

    def _checked(self, index: int) -> int:
        if index < len(self.labels):
            return index
        last = len(self.labels) - 1
        raise ExplainError(f"There is no class {index}: {self.name} has 0 to {last}.")

    def _matches(self, target: str) -> list[int]:
        labels = [label.casefold() for label in self.labels]
        same = [index for index, label in enumerate(labels) if label == target]
        return same or [index for index, label in enumerate(labels) if target in label]


def load_model(
    name: str = "efficientnet_lite0",
    *,
    weights: str | Path | None = None,
    classes: int | None = None,
    size: int | None = None,
    mean: Colour | None = None,
    std: Colour | None = None,
) -> Classifier:
    """Make a network ready to be explained. Nothing is downloaded.

    Args:
        name: `"efficientnet_lite0"`, whose weights an installed package carries;
            `"torchvision:NAME"` or `"timm:NAME"`; or `"module:callable"`, which imports the
            module and calls what it finds there without arguments: only name code you trust.
        weights: A state dict, as `torch.save`, safetensors or `numpy.savez` wrote it. Nothing
            in it is run. None leaves torchvision's and timm's networks random, which the
            `warning` of what is returned says.
        classes: How many outputs torchvision or timm should build; None is their default.
        size: Height and width in pixels; None is what the network was published with, else 224.
        mean: What is subtracted from pixels in [0, 1]; None is likewise, else ImageNet's.
        std: What they are divided by; None is likewise.

    Raises:
        ExplainError: No such model, weights that cannot be read or do not fit, or a network
            that does not give one row of scores for one picture.
        ModuleNotFoundError: What reads these weights is not installed.

    Example:
        >>> from relurules.explain import load_model
        >>> load_model().labels[285]
        'Egyptian cat'
    """
    built = build(name, classes=classes)
    if weights is not None:
        load_weights(built.network, Path(weights))
    network = built.network.eval().requires_grad_(False)
    side = size or built.size
    return Classifier(
        name=name,
        network=network,
        labels=_labels(_outputs(network, side)),
        size=side,
        mean=mean or built.mean,
        std=_divisor(std or built.std),
        notes=built.notes,
        warning="" if built.trained or weights is not None else RANDOM,
    )


def _divisor(std: Colour) -> Colour:
    if min(std) > 0:
        return std
    raise ExplainError(f"The standard deviations must be above 0; got {std}.")


def _outputs(network: nn.Module, size: int) -> int:
    """Return how many scores the network gives, by asking it."""
    try:
        with torch.no_grad():
            scores = network(torch.zeros(1, 3, size, size))
    except (RuntimeError, AssertionError) as error:  # torch raises one, timm's networks the other
        raise ExplainError(
            f"The network does not take a picture of 3 colours and {size} x {size} pixels; "
            f"--size sets another. It says: {error}"
        ) from error
    if isinstance(scores, Tensor) and scores.ndim == 2 and len(scores) == 1:
        return int(scores.shape[1])
    found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    raise ExplainError(
        f"The network gives {found} for one picture; expected scores of shape (1, classes). Wrap "
        "it in a module that returns these, and name that as module:callable."
    )


def _labels(outputs: int) -> tuple[str, ...]:
    if outputs == len(_IMAGENET_CATEGORIES):
        return tuple(_IMAGENET_CATEGORIES)
    return tuple(f"output {index}" for index in range(outputs))
