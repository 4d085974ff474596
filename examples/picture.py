"""One look at what the numbers say: maps of two classes under each rule, on a trained network.

Every photograph is explained for the same two classes, whether it shows them or not, so equal
columns are class-insensitivity and equal rows are a map without the image.
"""

from __future__ import annotations

import io
import itertools

import torch
from experiment import RULES, photos
from grid import CLASSES
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

import relurules
from relurules.explain import load_model

ROWS = 3
PANEL = 1.0  # inches; at 112 dots each, half the network's 224 pixels
COLOURS = 160  # a palette keeps the file small, and noise hides its steps


def picture() -> Image.Image:
    """Return a row for each photograph: itself, then two classes for each rule."""
    classifier = load_model()
    images = photos(classifier.size)[:ROWS]
    inputs = classifier.normalise(images)
    columns = {"photograph": images}
    for rule, target in itertools.product(RULES, CLASSES):
        maps = relurules.attribute(classifier.network, inputs, target, rule)
        columns[f"{rule}\n{classifier.labels[target]}"] = torch.stack([*map(signed, maps)])
    return _small(_drawn(columns))


def signed(gradient: Tensor) -> Tensor:
    """Map a gradient to colours: 0 is mid grey, the largest half per cent are full or none."""
    largest = torch.quantile(gradient.abs().flatten(), 0.995)
    return (0.5 + 0.5 * gradient / largest).clamp(0, 1)


def _drawn(columns: dict[str, Tensor]) -> Figure:
    heights = len(next(iter(columns.values())))
    size = (len(columns) * PANEL, heights * PANEL + 0.4)
    figure = Figure(figsize=size, layout="constrained", dpi=112)
    axes = figure.subplots(
        heights, len(columns), squeeze=False, gridspec_kw={"wspace": 0, "hspace": 0}
    )
    for row, column in itertools.product(range(heights), range(len(columns))):
        axes[row][column].set_axis_off()
    for place, (title, panels) in enumerate(columns.items()):
        axes[0][place].set_title(title, fontsize=7)
        for row, panel in enumerate(panels):
            axes[row][place].imshow(panel.permute(1, 2, 0).numpy(), interpolation="antialiased")
    return figure


def _small(figure: Figure) -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image.open(file).convert("RGB").quantize(COLOURS)
