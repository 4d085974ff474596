"""The maps differ as the rules say, and the network is left as it was.

That a guided map looks sensible is for the eye. What is tested is how sparse the maps are:
sparsity separates the rules, which correlation with the edges of the image does not.
"""

from __future__ import annotations

import pytest
import torch

from relurules.explain import (
    Classifier,
    Explanation,
    explain,
    gini,
    input_gradient,
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


def test_standard_is_the_plain_gradient(classifier: Classifier) -> None:
    inputs = classifier.normalise(load_image("coffee"))[None].requires_grad_()
    (plain,) = torch.autograd.grad(classifier.network(inputs)[0, 967], inputs)
    assert torch.equal(input_gradient(classifier.network, inputs, "standard", 967), plain)


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
