"""A dead unit stays dead under the plain gradient and wakes under redirected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from relurules.explain import Classifier, ExplainError, Visualisation, load_image, wake


@pytest.fixture(scope="module")
def dead(classifier: Classifier) -> Visualisation:
    return wake(classifier, "standard")


@pytest.fixture(scope="module")
def woken(classifier: Classifier) -> Visualisation:
    return wake(classifier, "redirected")


def test_it_stays_dead_under_standard(dead: Visualisation) -> None:
    assert dead.objective == (0.0,) * 64


def test_it_wakes_under_redirected(woken: Visualisation) -> None:
    assert woken.objective[0] == 0.0
    assert woken.final > 5


def test_it_lives_on_when_the_rule_has_ended(woken: Visualisation) -> None:
    assert min(woken.objective[17:]) > woken.objective[0]
    assert woken.final > woken.objective[17]


def test_only_the_woken_picture_changes(dead: Visualisation, woken: Visualisation) -> None:
    assert float(dead.image.std()) < 0.02 < 0.1 < float(woken.image.std())
    for picture in (dead.image, woken.image):
        assert picture.shape == (3, 128, 128)
        assert 0 <= float(picture.min()) <= float(picture.max()) <= 1


def test_a_seed_gives_the_same_picture_again(classifier: Classifier) -> None:
    one, same, other = (
        wake(classifier, "redirected", steps=2, size=64, seed=seed) for seed in (3, 3, 4)
    )
    assert torch.equal(one.image, same.image)
    assert not torch.equal(one.image, other.image)


def test_the_network_comes_back_as_it_was(classifier: Classifier) -> None:
    inputs = classifier.normalise(load_image("coffee"))[None].requires_grad_()
    before = torch.autograd.grad(classifier.network(inputs)[0, 0], inputs)[0]
    wake(classifier, "redirected", steps=1, size=64)
    after = torch.autograd.grad(classifier.network(inputs)[0, 0], inputs)[0]
    assert torch.equal(before, after)
    assert all(parameter.grad is None for parameter in classifier.network.parameters())
    assert not classifier.network.get_submodule("bn2.act")._forward_hooks


@pytest.mark.parametrize(
    ("layer", "channel", "message"),
    [
        ("bn2_act", 424, "no layer 'bn2_act'; did you mean 'bn2.act'"),
        ("", 424, "no layer ''"),
        ("bn2.act", 1280, "channels 0 to 1279, not 1280"),
        ("bn2.act", -1, "not -1"),
    ],
)
def test_a_unit_that_is_not_there(
    classifier: Classifier, layer: str, channel: int, message: str
) -> None:
    with pytest.raises(ExplainError, match=message):
        wake(classifier, "redirected", layer=layer, channel=channel, steps=1, size=32)


def test_a_layer_that_is_never_called(classifier: Classifier) -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU6())
    network[0].spare = nn.ReLU6()
    tiny = replace(classifier, network=network.requires_grad_(False))
    with pytest.raises(ExplainError, match=r"does not call its layer '0.spare'"):
        wake(tiny, "redirected", layer="0.spare", channel=0, steps=1, size=32)
