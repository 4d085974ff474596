"""The gradient of a class score with respect to the pixels, under each rule.

This is the whole of what a user of the package writes: apply a rule, call the model, and let
the framework differentiate. The parameters are frozen and only the input is differentiated,
so a network comes back exactly as it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import relurules
from relurules.explain._models import Classifier


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One picture, what the network sees in it, and the gradient under each rule.

    Attributes:
        image: Shape `(3, size, size)`, in [0, 1].
        label: The name of the explained class.
        probability: The probability that the network gives it.
        maps: The input gradient of the class score by rule, each of the image's shape.
    """

    image: Tensor
    label: str
    probability: float
    maps: Mapping[str, Tensor]


def explain(
    classifier: Classifier, image: Tensor, *, rules: Iterable[str], target: int | None = None
) -> Explanation:
    """Differentiate a class score with respect to the input, once for each rule.

    Args:
        classifier: The network.
        image: Shape `(3, size, size)`, in [0, 1].
        rules: Names of rules.
        target: The index of the class; None is the most probable one.

    Example:
        >>> from relurules.explain import explain, load_image, load_model
        >>> cat = explain(load_model(), load_image("chelsea"), rules=["guided"])
        >>> cat.label, cat.maps["guided"].shape
        ('Egyptian cat', torch.Size([3, 224, 224]))
    """
    inputs = classifier.normalise(image)[None]
    with torch.no_grad():
        probabilities = classifier.network(inputs)[0].softmax(dim=0)
    index = int(probabilities.argmax()) if target is None else target
    return Explanation(
        image=image,
        label=classifier.labels[index],
        probability=float(probabilities[index]),
        maps={rule: input_gradient(classifier.network, inputs, rule, index)[0] for rule in rules},
    )


def input_gradient(network: nn.Module, inputs: Tensor, rule: str, target: int) -> Tensor:
    """Return the gradient of the score of class `target` with respect to `inputs`.

    The score, not a loss, is differentiated, and the rule is told so: with the other sign
    guided and deconv would keep the evidence against the class.
    """
    inputs = inputs.detach().requires_grad_()
    with relurules.apply(network, rule, gradient_of="score") as model:
        scores = model(inputs)[:, target]
        (gradient,) = torch.autograd.grad(scores.sum(), inputs)
    return gradient


def magnitude(gradient: Tensor) -> Tensor:
    """Return how much each pixel matters: the sum over colours of the gradient's size."""
    return gradient.abs().sum(dim=-3)


def gini(sizes: Tensor) -> float:
    """Return how unevenly magnitudes are spread: 0 all alike, towards 1 all in one place.

    The Gini coefficient tells the rules apart where the eye does: it is a property of the
    whole map, with no threshold to choose.

    Args:
        sizes: Not negative, such as `magnitude` gives; any shape.

    Example:
        >>> from relurules.explain import gini
        >>> gini(torch.ones(8)), gini(torch.tensor([0.0, 0.0, 0.0, 1.0]))
        (0.0, 0.75)
    """
    ordered = sizes.double().flatten().sort().values
    count, total = ordered.numel(), ordered.sum()
    if total == 0:
        return 0.0
    ranks = torch.arange(1, count + 1, dtype=ordered.dtype)
    return float(2 * (ranks * ordered).sum() / (count * total) - (count + 1) / count)
