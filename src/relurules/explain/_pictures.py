"""What the commands draw: maps as `relurules.show` draws them, and how a unit woke.

The figures are written to a file on any machine, with or without a display.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relurules.explain._maps import Explanation
from relurules.explain._wake import Visualisation
from relurules.pictures import show
from relurules.pictures._figure import Picture

_INCHES = 3.2


def maps_picture(
    explanations: Sequence[Explanation],
    *,
    styles: Sequence[str] = ("signed", "magnitude"),
    percentile: float | None = None,
    notes: Mapping[str, str] | None = None,
    heading: str = "",
) -> Figure:
    """Draw one row for each photograph: itself, then each map in each style.

    Args:
        explanations: What `explain` returned, all for the same rules.
        styles: As in `relurules.show`.
        percentile: As in `relurules.show`.
        notes: What to say below the figure of a rule that is in it.
        heading: What to say above it.
    """
    rules = list(explanations[0].maps)
    return show(
        {rule: torch.stack([each.maps[rule] for each in explanations]) for rule in rules},
        image=torch.stack([each.image for each in explanations]),
        style=styles,
        percentile=percentile,
        titles=[each.title for each in explanations],
        channel_axis=1,
        heading=heading,
        note="\n".join(note for rule, note in (notes or {}).items() if rule in rules),
    )


def wake_picture(visualisations: Sequence[Visualisation], *, until: int, title: str) -> Figure:
    """Draw what each rule drew side by side, then how the objective grew under each.

    Args:
        visualisations: What `wake` returned, one for each rule.
        until: The last step at which the rules were active, marked in the curve.
        title: What was excited.
    """
    columns = len(visualisations) + 1
    figure = Picture(figsize=(columns * _INCHES, _INCHES + 0.7), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    figure.suptitle(textwrap.fill(title, 40 * columns), fontsize=9)
    axes = figure.subplots(1, columns)
    for axis, drawn in zip(axes, visualisations, strict=False):
        _draw(axis, drawn)
    _draw_curves(axes[-1], visualisations, until=until)
    return figure


def _draw(axis: Any, drawn: Visualisation) -> None:
    axis.imshow(drawn.image.permute(1, 2, 0).numpy(), interpolation="nearest", origin="upper")
    axis.set_title(f"{drawn.rule}: {drawn.final:.3f}", fontsize=9)
    axis.set_axis_off()


def _draw_curves(axis: Any, visualisations: Sequence[Visualisation], *, until: int) -> None:
    for drawn in visualisations:
        axis.plot(drawn.objective, label=drawn.rule)
    axis.axvline(until, linestyle=":", color="grey", label=f"rule active to step {until}")
    axis.set_xlabel("step", fontsize=8)
    axis.set_title("mean activation", fontsize=9)
    axis.tick_params(labelsize=7)
    axis.legend(fontsize=7)
