"""The maps differ as the rules say, and the network is left as it was.

That a guided map looks sensible is for the eye. What is tested is how sparse the maps are:
sparsity separates the rules, which correlation with the edges of the image does not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import relurules
from relurules.explain import (
    Classifier,
    ExplainError,
    Explanation,
    explain,
    gini,
    load_image,
    magnitude,
)

RULES = ("standard", "guided", "deconv")
IMAGES = ("chelsea", "coffee", "camera", "motorcycle_left")


@pytest.fixture(scope="module", params=IMAGES)
def explanation(request: pytest.FixtureRequest, classifier: Classifier) -> Explanation:
    return explain(classifier, load_image(request.param), rules=RULES)


def test_sparsity_separates_the_rules(explanation: Explanation) -> None:
    standard, guided, deconv = (gini(magnitude(explanation.maps[rule])) for rule in RULES)
    assert deconv < standard < guided
    assert 0.52 <= guided <= 0.62
    assert 0.38 <= standard <= 0.50
    assert 0.30 <= deconv <= 0.33


@pytest.mark.parametrize("rule", ["standard", "gradient"])
def test_two_names_for_the_plain_gradient(classifier: Classifier, rule: str) -> None:
    image = load_image("coffee")
    inputs = classifier.normalise(image)[None].requires_grad_()
    (plain,) = torch.autograd.grad(classifier.network(inputs)[0, 967], inputs)
    found = explain(classifier, image, rules=[rule], target=967)
    assert torch.equal(found.maps[rule], plain[0])


def test_gradient_needs_no_activation_and_a_rule_does(classifier: Classifier) -> None:
    linear = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 3)).requires_grad_(False)
    bare = replace(classifier, network=linear, labels=("a", "b", "c"), size=4)
    image = torch.rand(3, 4, 4)
    found = explain(bare, image, rules=["gradient"], target=1)
    assert torch.equal(found.maps["gradient"], linear[1].weight[1].reshape(3, 4, 4))
    with pytest.raises(relurules.NoActivationError):
        explain(bare, image, rules=["guided"])


def test_smooth_and_occlusion_are_the_librarys(classifier: Classifier) -> None:
    image, steps = load_image("coffee"), {}

    def meter(description: str):
        def over(items):
            steps[description] = len(items)
            return items

        return over

    found = explain(
        classifier, image, rules=["guided"], smooth=4, sigma=0.1, occlusion=112, meter=meter
    )
    inputs = classifier.normalise(image)[None]
    smoothed = relurules.attribute(classifier.network, inputs, 967, "guided", smooth=4, sigma=0.1)
    covered = relurules.occlusion(
        classifier.network, inputs, 967, window=(None, 112, 112), stride=56
    )
    torch.testing.assert_close(found.maps["guided"], smoothed[0])
    torch.testing.assert_close(found.maps["occlusion"], covered[0])
    assert list(steps) == ["smoothing guided", "occlusion"]
    assert steps["smoothing guided"] == 4


def test_a_square_larger_than_the_image(classifier: Classifier) -> None:
    with pytest.raises(ExplainError, match="225 pixels does not fit into 224"):
        explain(classifier, load_image("coffee"), rules=[], occlusion=225)


def _fixed(classifier: Classifier, scores: list[float]) -> Classifier:
    """Return a network whose scores are these, whatever it sees."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, len(scores)))
    net[1].weight.data.zero_()
    net[1].bias.data = torch.tensor(scores)
    labels = tuple(map(str, range(len(scores))))
    return replace(classifier, network=net.requires_grad_(False), labels=labels, size=4)


@pytest.mark.parametrize(
    ("scores", "probability"),
    [([0.0, 0.0], 0.5), ([0.25, 0.75], 0.75), ([-1.0, 2.0], 0.9526), ([3.0], None)],
)
def test_a_probability_is_one(
    classifier: Classifier, scores: list[float], probability: float | None
) -> None:
    """Also where the network ends in a softmax, and none where there is nothing to compare."""
    found = explain(_fixed(classifier, scores), torch.rand(3, 4, 4), rules=[])
    assert found.probability == (
        None if probability is None else pytest.approx(probability, abs=1e-4)
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers(classifier: Classifier, bad: float) -> None:
    with pytest.raises(ExplainError, match="NaN or infinite"):
        explain(_fixed(classifier, [0.0, bad]), torch.rand(3, 4, 4), rules=["gradient"])


def test_deconv_sees_nothing_of_the_image_on_this_network(classifier: Classifier) -> None:
    """No max-pooling, linear batch norm: the note below the picture says so, this shows it."""
    cat, cup = (
        explain(classifier, load_image(name), rules=["deconv"], target=285)
        for name in ("chelsea", "coffee")
    )
    assert torch.equal(cat.maps["deconv"], cup.maps["deconv"])
    assert "deconv" in classifier.notes


def test_the_network_comes_back_as_it_was(classifier: Classifier) -> None:
    inputs = classifier.normalise(load_image("coffee"))[None].requires_grad_()
    before = torch.autograd.grad(classifier.network(inputs)[0, 0], inputs)[0]
    explain(classifier, load_image("coffee"), rules=["guided"])
    after = torch.autograd.grad(classifier.network(inputs)[0, 0], inputs)[0]
    assert torch.equal(before, after)
    assert all(parameter.grad is None for parameter in classifier.network.parameters())
    assert inputs.grad is None


def test_a_target_other_than_the_most_probable(classifier: Classifier) -> None:
    found = explain(classifier, load_image("chelsea"), rules=["guided"], target=282)
    assert found.label == "tiger cat"
    best = explain(classifier, load_image("chelsea"), rules=["guided"])
    assert not torch.equal(found.maps["guided"], best.maps["guided"])


def test_gini_of_known_spreads() -> None:
    assert gini(torch.zeros(4)) == 0
    assert gini(torch.ones(3, 5)) == pytest.approx(0)
    assert gini(torch.tensor([1.0, 3.0])) == pytest.approx(0.25)
    assert gini(torch.eye(10)[0]) == pytest.approx(0.9)
