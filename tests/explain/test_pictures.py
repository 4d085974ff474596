"""A figure shows every map at a scale of its own, and says what a reader must know."""

from __future__ import annotations

from dataclasses import replace

import torch
from matplotlib.figure import Figure

from relurules.explain import Explanation, Visualisation, maps_picture, wake_picture


def _titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def _explanation() -> Explanation:
    maps = {"guided": torch.randn(3, 8, 8), "deconv": torch.randn(3, 8, 8) * 1e9}
    return Explanation(image=torch.rand(3, 8, 8), label="cup", probability=0.5, maps=maps)


def test_each_row_has_the_image_and_two_maps_a_rule() -> None:
    figure = maps_picture([_explanation(), _explanation()])
    row = [
        "cup 0.50",
        *(f"{r}, {s}" for r in ("guided", "deconv") for s in ("signed", "magnitude")),
    ]
    assert _titles(figure) == row * 2


def test_a_note_is_there_for_a_rule_that_is_drawn_only() -> None:
    notes = {"deconv": "a grid", "leaky": "not here"}
    figure = maps_picture([_explanation()], notes=notes, heading="RANDOM")
    assert [text.get_text() for text in figure.texts] == ["RANDOM", "a grid"]


def test_a_class_without_a_probability_is_named_alone() -> None:
    one = replace(_explanation(), probability=None)
    assert _titles(maps_picture([one], styles=["overlay"])) == ["cup", "guided", "deconv"]


def test_the_pictures_and_the_curves_are_side_by_side() -> None:
    drawn = [
        Visualisation(rule=rule, image=torch.rand(3, 8, 8), objective=(0.0, end))
        for rule, end in (("standard", 0.0), ("redirected", 5.5))
    ]
    figure = wake_picture(drawn, until=1, title="unit")
    assert _titles(figure) == ["standard: 0.000", "redirected: 5.500", "mean activation"]
    curves = [list(line.get_ydata()) for line in figure.axes[-1].lines[:2]]
    assert curves == [[0.0, 0.0], [0.0, 5.5]]
