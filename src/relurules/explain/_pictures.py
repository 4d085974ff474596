"""Figures that are written to a file, on any machine, with or without a display.

How a gradient is scaled to colours decides what is seen in it. A few pixels hold values far
above the rest, so each map is scaled by a percentile of its magnitude, not by its maximum: at
the maximum a guided map is an even grey, and the eyes in it are lost. Maps of different rules
differ in scale by orders of magnitude, so each has its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from relurules.explain._maps import Explanation, magnitude
from relurules.explain._wake import Visualisation

_SIGNED_PERCENTILE = 0.995
_MAGNITUDE_PERCENTILE = 0.99
_INCHES = 2.2


def maps_picture(
    explanations: Sequence[Explanation], *, notes: Mapping[str, str] | None = None
) -> Figure:
    """Draw one row for each picture: itself, then each rule's map with its sign and its size.

    Args:
        explanations: What `explain` returned, all for the same rules.
        notes: What to say below the figure of a rule that is in it.
    """
    rules = list(explanations[0].maps)
    figure, axes = _grid(len(explanations), 1 + 2 * len(rules))
    for row, explanation in zip(axes, explanations, strict=True):
        _draw(row[0], explanation.image, f"{explanation.label} {explanation.probability:.2f}")
        for column, rule in enumerate(rules):
            gradient = explanation.maps[rule]
            _draw(row[1 + 2 * column], signed(gradient), rule)
            _draw(row[2 + 2 * column], bright(gradient), f"{rule}, magnitude")
    _caption(figure, [note for rule, note in (notes or {}).items() if rule in rules])
    return figure


def wake_picture(visualisations: Sequence[Visualisation], *, until: int, title: str) -> Figure:
    """Draw what each rule drew side by side, then how the objective grew under each.

    Args:
        visualisations: What `wake` returned, one for each rule.
        until: The last step at which the rules were active, marked in the curve.
        title: What was excited.
    """
    figure, axes = _grid(1, len(visualisations) + 1, inches=3.2)
    figure.suptitle(title, fontsize=9)
    for axis, drawn in zip(axes[0], visualisations, strict=False):
        _draw(axis, drawn.image, f"{drawn.rule}: {drawn.final:.3f}")
    _draw_curves(axes[0][-1], visualisations, until=until)
    return figure


def signed(gradient: Tensor) -> Tensor:
    """Map a gradient to colours: 0 is mid grey, the largest are full or none."""
    return (0.5 + 0.5 * gradient / _percentile(gradient.abs(), _SIGNED_PERCENTILE)).clamp(0, 1)


def bright(gradient: Tensor) -> Tensor:
    """Map the magnitude of a gradient to grey: 0 is black."""
    sizes = magnitude(gradient)
    return (sizes / _percentile(sizes, _MAGNITUDE_PERCENTILE)).clamp(0, 1).expand(3, -1, -1)


def _percentile(sizes: Tensor, fraction: float) -> Tensor:
    tiny = torch.finfo(sizes.dtype).tiny
    return torch.quantile(sizes.flatten(), fraction).clamp_min(tiny)


def _grid(rows: int, columns: int, *, inches: float = _INCHES) -> tuple[Figure, Any]:
    size = (columns * inches, rows * (inches + 0.3) + 0.4)
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _caption(figure: Figure, lines: Sequence[str]) -> None:
    wide = min(120, int(figure.get_figwidth() * 14))
    figure.supxlabel("\n".join(textwrap.fill(line, wide) for line in lines), fontsize=8)


def _draw(axis: Any, image: Tensor, title: str) -> None:
    axis.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
    axis.set_title(title, fontsize=9)
    axis.set_axis_off()


def _draw_curves(axis: Any, visualisations: Sequence[Visualisation], *, until: int) -> None:
    for drawn in visualisations:
        axis.plot(drawn.objective, label=drawn.rule)
    axis.axvline(until, linestyle=":", color="grey", label=f"rule active to step {until}")
    axis.set_xlabel("step", fontsize=8)
    axis.set_title("mean activation", fontsize=9)
    axis.tick_params(labelsize=7)
    axis.legend(fontsize=7)
