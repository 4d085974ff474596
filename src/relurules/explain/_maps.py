"""What a class score rests on, under each rule.

The maps are the library's own, `relurules.attribute` and `relurules.occlusion`; added here is
what a reader wants beside them: which class it is and how sure the network is of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

import relurules
from relurules.explain._errors import ExplainError
from relurules.explain._models import Classifier
from relurules.explain._options import GRADIENT

Meter: TypeAlias = Callable[[str], Callable[[Sequence[Any]], Iterable[Any]]]
"""From a description to what wraps a list of steps, to show how far they are."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One picture, what the network sees in it, and its maps.

    Attributes:
        image: Shape `(3, size, size)`, in [0, 1].
        label: The name of the explained class.
        probability: The probability that the network gives it; None where there is one class.
        maps: By rule, each of the image's shape.
    """

    image: Tensor
    label: str
    probability: float | None
    maps: Mapping[str, Tensor]

    @property
    def title(self) -> str:
        """The class, and its probability if there is one."""
        return self.label if self.probability is None else f"{self.label} {self.probability:.2f}"


def explain(
    classifier: Classifier,
    image: Tensor,
    *,
    rules: Iterable[str],
    target: int | None = None,
    smooth: int = 0,
    sigma: float = 0.15,
    occlusion: int = 0,
    meter: Meter = lambda description: iter,
) -> Explanation:
    """Return what a class score rests on: a gradient for each rule, and where covering hurts.

    Args:
        classifier: The network.
        image: Shape `(3, size, size)`, in [0, 1].
        rules: Names of rules; `"gradient"` is the model's own gradient, without a rule.
        target: The index of the class; None is the most probable one.
        smooth: How many noisy copies to average each gradient over (SmoothGrad); 0 is none.
        sigma: That noise's standard deviation, as a share of the range of the input.
        occlusion: The side in pixels of a square that covers the image; 0 is no such map.
        meter: Shows how far SmoothGrad and occlusion are.

    Raises:
        ExplainError: The network's scores are not finite, the square is larger than the image, or
            noise is asked for as a share of the range of an image of one value.
        NoActivationError: As for `relurules.apply`.
        UncoveredActivationError: As for `relurules.apply`.

    Example:
        >>> from relurules.explain import explain, load_image, load_model
        >>> cat = explain(load_model(), load_image("chelsea"), rules=["guided"])
        >>> cat.title, cat.maps["guided"].shape
        ('Egyptian cat 0.38', torch.Size([3, 224, 224]))
    """
    inputs = classifier.normalise(image)[None]
    if smooth and sigma and inputs.min() == inputs.max():
        raise ExplainError(
            "SmoothGrad's noise is a share of the image's range, and this image has one value only."
        )
    scores = _scores(classifier, inputs)
    index = int(scores.argmax()) if target is None else target
    maps = {
        rule: relurules.attribute(
            classifier.network,
            inputs,
            index,
            None if rule == GRADIENT else rule,
            smooth=smooth,
            sigma=sigma,
            progress=meter(f"smoothing {rule}") if smooth else iter,
        )[0]
        for rule in rules
    }
    if occlusion:
        maps["occlusion"] = _occluded(classifier, inputs, index, occlusion, meter)
    return Explanation(
        image=image,
        label=classifier.labels[index],
        probability=_probability(scores, index),
        maps=maps,
    )


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


def _scores(classifier: Classifier, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        scores: Tensor = classifier.network(inputs)[0]
    if bool(scores.isfinite().all()):
        return scores
    raise ExplainError(f"{classifier.name} gives scores that are NaN or infinite.")


def _probability(scores: Tensor, index: int) -> float | None:
    """Return the share of one class, also where the network ends in a softmax itself."""
    if len(scores) == 1:
        return None
    shares = bool((scores >= 0).all()) and abs(float(scores.sum()) - 1) < 1e-3
    return float(scores[index] if shares else scores.softmax(dim=0)[index])


def _occluded(
    classifier: Classifier, inputs: Tensor, index: int, side: int, meter: Meter
) -> Tensor:
    if side > classifier.size:
        raise ExplainError(f"A square of {side} pixels does not fit into {classifier.size}.")
    found: Tensor = relurules.occlusion(
        classifier.network,
        inputs,
        index,
        window=(None, side, side),
        stride=max(1, side // 2),
        progress=meter("occlusion"),
    )[0]
    return found
