"""A figure shows every map at a scale of its own, and says what a reader must know."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from relurules.explain import Explanation, Visualisation, maps_picture, wake_picture
from relurules.explain._pictures import bright, signed


def _titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def _explanation() -> Explanation:
    maps = {"guided": torch.randn(3, 8, 8), "deconv": torch.randn(3, 8, 8) * 1e9}
    return Explanation(image=torch.rand(3, 8, 8), label="cup", probability=0.5, maps=maps)


def test_each_row_has_the_image_and_two_maps_a_rule() -> None:
    figure = maps_picture([_explanation(), _explanation()])
    row = ["cup 0.50", "guided", "guided, magnitude", "deconv", "deconv, magnitude"]
    assert _titles(figure) == row * 2


def test_a_note_is_there_for_a_rule_that_is_drawn_only() -> None:
    notes = {"deconv": "a grid", "leaky": "not here"}
    assert maps_picture([_explanation()], notes=notes).get_supxlabel() == "a grid"


def test_the_pictures_and_the_curves_are_side_by_side() -> None:
    drawn = [
        Visualisation(rule=rule, image=torch.rand(3, 8, 8), objective=(0.0, end))
        for rule, end in (("standard", 0.0), ("redirected", 5.5))
    ]
    figure = wake_picture(drawn, until=1, title="unit")
    assert _titles(figure) == ["standard: 0.000", "redirected: 5.500", "mean activation"]
    curves = [list(line.get_ydata()) for line in figure.axes[-1].lines[:2]]
    assert curves == [[0.0, 0.0], [0.0, 5.5]]


def test_scaling_ignores_outliers_and_survives_zeros() -> None:
    gradient = torch.linspace(-1, 1, 3 * 40 * 40).reshape(3, 40, 40)
    spoilt = gradient.clone()
    spoilt[0, 0, 0] = -1e6
    torch.testing.assert_close(signed(spoilt)[1:], signed(gradient)[1:], atol=1e-2, rtol=0)
    assert torch.equal(signed(torch.zeros(3, 4, 4)), torch.full((3, 4, 4), 0.5))
    assert torch.equal(bright(torch.zeros(3, 4, 4)), torch.zeros(3, 4, 4))
