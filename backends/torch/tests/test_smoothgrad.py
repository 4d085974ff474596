"""SmoothGrad in Torch: Captum's numbers on the same noise, and what the noise is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import NoiseTunnel, Saliency
from small import Net
from torch import Tensor, nn
from torch.nn import functional

import relurules

KINDS = {"mean": "smoothgrad", "squared": "smoothgrad_sq"}


@pytest.mark.parametrize("average", KINDS)
@pytest.mark.parametrize("batch_size", [None, 1, 3, 8, 100])
def test_smooth_is_captums_noise_tunnel_on_the_same_noise(
    net: Net, images: Tensor, average: Any, batch_size: int | None, monkeypatch: Any
) -> None:
    met: list[Tensor] = []

    def call(model: nn.Module, x: Tensor) -> Tensor:
        met.append(x.detach().clone())
        return model(x)

    found = relurules.attribute(
        net, images, 2, "standard", smooth=9, average=average, call=call, batch_size=batch_size
    )
    noisy = _by_copy(met, len(images), batch_size)
    monkeypatch.setattr(
        NoiseTunnel,
        "_add_noise_to_input",
        staticmethod(lambda *_: noisy.transpose(0, 1).flatten(0, 1)),
    )
    tunnel = NoiseTunnel(Saliency(net))
    expected = tunnel.attribute(images, KINDS[average], nt_samples=9, target=2, abs=False)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


def _by_copy(met: list[Tensor], samples: int, batch_size: int | None) -> Tensor:
    """Put what the model met into shape `(copies, samples, ...)`."""
    rows = min(batch_size or samples, samples)
    spans = -(-samples // rows)
    columns = []
    for i in range(spans):
        mine = met[i * len(met) // spans : (i + 1) * len(met) // spans]
        size = len(range(samples)[i::spans]) if spans > 1 else samples
        columns.append(torch.cat([x.reshape(-1, size, *x.shape[1:]) for x in mine]))
    return torch.cat(columns, dim=1)


def test_smooth_noise_is_gaussian_of_a_share_of_each_samples_range(net: Net) -> None:
    wide = torch.rand(2, 3, 40, 40).double() * torch.tensor([1.0, 20.0])[:, None, None, None]
    met: list[Tensor] = []
    call = lambda model, x: (met.append(x.detach()), model(x))[1]  # noqa: E731
    relurules.attribute(net, wide, 0, "standard", smooth=16, sigma=0.2, call=call)
    noise = torch.cat([x.reshape(-1, *wide.shape) for x in met]) - wide
    ranges = wide.amax((1, 2, 3)) - wide.amin((1, 2, 3))
    spread = noise.std(dim=(0, 2, 3, 4)) / ranges
    assert spread.tolist() == pytest.approx([0.2, 0.2], rel=0.01)
    assert noise.mean(dim=(0, 2, 3, 4)).abs().max() < 0.01 * ranges.max()
    kurtosis = (noise[:, 0] ** 4).mean() / (noise[:, 0] ** 2).mean() ** 2
    assert kurtosis == pytest.approx(3, rel=0.03)
    assert (noise[0] - noise[1]).abs().max() > 0.1, "every copy has noise of its own"


def test_absolute_sigma_is_not_scaled(net: Net, images: Tensor) -> None:
    met: list[Tensor] = []
    call = lambda model, x: (met.append(x.detach()), model(x))[1]  # noqa: E731
    options = {"smooth": 16, "sigma": 0.5, "relative": False, "call": call}
    relurules.attribute(net, images * 100, 0, "standard", **options)
    noise = torch.cat([x.reshape(-1, *images.shape) for x in met]) - images * 100
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02)


def test_smooth_without_noise_is_the_plain_map(net: Net, images: Tensor) -> None:
    plain = relurules.attribute(net, images, 1)
    smooth = relurules.attribute(net, images, 1, smooth=5, sigma=0)
    torch.testing.assert_close(smooth, plain, rtol=1e-12, atol=1e-15)
    magnitude = relurules.attribute(net, images, 1, smooth=5, sigma=0, average="magnitude")
    torch.testing.assert_close(magnitude, plain.abs(), rtol=1e-12, atol=1e-15)


def test_seed_decides_the_noise(net: Net, images: Tensor) -> None:
    first, again, other = (
        relurules.attribute(net, images, 1, smooth=6, seed=seed) for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_sigma_for_each_input() -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            met.append((a.detach().clone(), b.detach().clone()))
            return functional.relu(a * b).sum(1, keepdim=True)

    met: list[Any] = []
    a, b = torch.rand(1, 6), torch.ones(1, 6)
    with pytest.raises(ValueError, match="constant"):
        relurules.attribute(Two(), (a, b), 0, smooth=4)
    relurules.attribute(Two(), (a, b), 0, smooth=4, sigma=(0.2, 0))
    assert all(torch.equal(y, b.expand_as(y)) for _, y in met)
    assert len({tuple(row.tolist()) for x, _ in met for row in x}) == 4
    with pytest.raises(ValueError, match="3 values of sigma for 2 inputs"):
        relurules.attribute(Two(), (a, b), 0, smooth=4, sigma=(0.1, 0.1, 0.1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("relative", [True, False])
def test_no_noise_is_added_to_what_is_not_finite(
    net: Net, images: Tensor, value: float, relative: bool
) -> None:
    """The range, and with it the whole sample, would be NaN, and the map finite and wrong."""
    images[1, 0, 2, 2] = value
    with pytest.raises(ValueError, match="NaN or infinity"):
        relurules.attribute(net, images, 0, smooth=4, relative=relative)


@pytest.mark.parametrize("weight", [1e-5, 6e4])
def test_map_that_its_dtype_cannot_hold(weight: float) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Flatten()).half()
    x = torch.rand(2, 3).half() + 1
    call = lambda model, x: model(x) * weight  # noqa: E731
    options = {"smooth": 4, "call": call}
    assert relurules.attribute(model, x, 0, **options).any()
    with pytest.raises(ValueError, match="does not fit into the input's dtype"):
        relurules.attribute(model, x, 0, average="squared", **options)
