"""Occlusion in Torch: Captum's numbers, at any batch size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import Occlusion
from small import Net
from torch import Tensor

import relurules

WINDOWS = [((3, 5, 4), (3, 2, 3)), ((3, 14, 12), (1, 1, 1)), ((2, 7, 5), (1, 7, 5)), ((1, 6, 6), 1)]


@pytest.mark.parametrize(("window", "stride"), WINDOWS)
@pytest.mark.parametrize("batch_size", [None, 1, 3, 16])
def test_occlusion_is_captums(
    net: Net, images: Tensor, window: Any, stride: Any, batch_size: int | None
) -> None:
    expected = Occlusion(net).attribute(
        images, window, strides=stride, target=2, perturbations_per_eval=8, baselines=0.25
    )
    found = relurules.occlusion(
        net, images, 2, window=window, stride=stride, baseline=0.25, batch_size=batch_size
    )
    # Captum adds up in float32, whatever the input.
    torch.testing.assert_close(found.float(), expected, rtol=1e-5, atol=1e-7)
    assert found.dtype == images.dtype


def test_occlusion_covers_with_an_array(net: Net, images: Tensor) -> None:
    cover = np.random.default_rng(0).normal(size=(3, 1, 1))
    found = relurules.occlusion(net, images, 2, window=(None, 14, 12), baseline=cover, stride=12)
    grey = torch.tensor(cover).expand(4, 3, 14, 12)
    falls = (net(images) - net(grey))[:, 2].detach()
    torch.testing.assert_close(found, falls[:, None, None, None].expand_as(found))


BAD_WINDOWS = {
    "wrong rank": ({"window": (4, 4)}, "one number for each axis"),
    "no tuple": ({"window": 4}, "one number for each axis"),
    "wrong rank of strides": ({"window": (3, 4, 4), "stride": (1, 1)}, "one number for each axis"),
    "larger than the input": ({"window": (3, 15, 4)}, "from 1 to 14"),
    "gap": ({"window": (3, 4, 4), "stride": (1, 5, 1)}, "nothing stays uncovered"),
    "no stride": ({"window": (3, 4, 4), "stride": 0}, "stride"),
    "scalar score": ({"window": (3, 4, 4), "target": lambda y: y.sum()}, "one number for each"),
}


@pytest.mark.parametrize("name", BAD_WINDOWS)
def test_bad_window(net: Net, images: Tensor, name: str) -> None:
    options, message = BAD_WINDOWS[name]
    with pytest.raises(ValueError, match=message):
        relurules.occlusion(net, images, **{"target": 0, **options})


def test_integers_would_cut_the_map(net: Net, images: Tensor) -> None:
    tokens = torch.randint(0, 9, (2, 5))
    model = torch.nn.Sequential(
        torch.nn.Embedding(9, 4), torch.nn.Flatten(), torch.nn.Linear(20, 3)
    )
    with pytest.raises(TypeError, match="int64"):
        relurules.occlusion(model, tokens, 0, window=(1,))
    call = lambda model, x: model(x.long())  # noqa: E731
    found = relurules.occlusion(model, tokens.double(), 0, window=(1,), call=call)
    for place in range(5):
        covered = tokens.clone()
        covered[:, place] = 0
        fall = (model(tokens) - model(covered))[:, 0].detach()
        torch.testing.assert_close(found[:, place], fall.double(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("baseline", [float("nan"), float("inf"), 1j, None, "grey"])
def test_baseline_that_is_no_number(net: Net, images: Tensor, baseline: Any) -> None:
    with pytest.raises(ValueError, match="finite real numbers"):
        relurules.occlusion(net, images, 0, window=(3, 7, 6), baseline=baseline)


@pytest.mark.parametrize("shape", [(2,), (4, 3, 14, 12), (3, 14, 1, 1)])
def test_baseline_of_another_shape(net: Net, images: Tensor, shape: Any) -> None:
    with pytest.raises(ValueError, match="does not broadcast to a sample"):
        relurules.occlusion(net, images, 0, window=(3, 7, 6), baseline=np.zeros(shape))


def test_baseline_and_stride_of_other_types(net: Net, images: Tensor) -> None:
    expected = relurules.occlusion(net, images, 0, window=(3, 7, 6), stride=3, baseline=0.5)
    for baseline in (torch.full((3, 1, 1), 0.5, requires_grad=True), np.float32(0.5)):
        found = relurules.occlusion(
            net, images, 0, window=(3, 7, 6), stride=np.int64(3), baseline=baseline
        )
        assert torch.equal(found, expected)
