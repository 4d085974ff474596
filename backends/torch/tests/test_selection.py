"""Which sites take the rule, how they are named, and what the report says of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from blocks import Net, by_hand, gradient, nothing_stays_behind
from reference import RELU6, same
from torch import Tensor, nn

import relurules
from relurules import NoActivationError, Site


@pytest.fixture
def net() -> Net:
    return Net().double()


@pytest.fixture
def x() -> Tensor:
    return (torch.randn(3, 4, dtype=torch.float64) * 4).requires_grad_()


@pytest.fixture(autouse=True)
def _nothing_stays_behind(net: Net, x: Tensor) -> Iterator[None]:
    with nothing_stays_behind(net, x):
        yield


def test_the_report_names_each_site(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided")
    applied(x)
    applied(x)
    rows = [(row.name, row.kind, row.calls) for row in applied.report.sites]
    assert rows == [
        (f"{block}.{name}", kind, 2)
        for block in "ab"
        for name, kind in (("act", "relu"), ("relu6", "relu6"), ("relu", "relu"))
    ]
    assert "a.relu6" in str(applied.report)
    assert "<td>a.relu6</td>" in applied.report._repr_html_()
    assert applied.report.to_dict()["rows"][0]["name"] == "a.act"
    applied.remove()


def test_two_calls_in_one_forward_have_two_names_and_a_loop_has_one() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(x) + F.relu(-x)
            for _ in range(3):
                x = torch.relu(x - 1)
            return x

    applied = relurules.apply(Twice(), "guided")
    applied(torch.randn(2, 2, requires_grad=True))
    assert [(r.name, r.calls) for r in applied.report.sites] == [
        ("relu", 1),
        ("relu_1", 1),
        ("relu_2", 3),
    ]
    applied.remove()


@pytest.mark.parametrize(
    "selection",
    [
        {"exclude": "*relu6"},
        {"exclude": ["a.relu6", "b.relu6"]},
        {"exclude": lambda site: site.kind == "relu6"},
        {"only": ["*.act", "*.relu"]},
        {"only": lambda site: isinstance(site, Site) and site.bounds != RELU6},
        {"rule": {"relu": "guided"}},
        {"rule": {"*.act": "guided", "relu": "guided"}},
    ],
)
def test_selecting_sites(net: Net, x: Tensor, selection: dict[str, Any]) -> None:
    with relurules.apply(net, **{"rule": "guided", **selection}) as ruled:
        assert same(gradient(ruled, x), by_hand(net, x, "guided", "standard"))


def test_a_mapping_gives_each_site_its_rule(net: Net, x: Tensor) -> None:
    with relurules.apply(net, {"relu6": "deconv", "*": "guided"}) as ruled:
        assert same(gradient(ruled, x), by_hand(net, x, "guided", "deconv"))


def test_a_selection_that_leaves_nothing_is_an_error(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "guided", only="nothing.*")
    with pytest.raises(NoActivationError, match="Left out"):
        applied(x)
    applied.remove()


def test_redirected_relu6_leaves_relu_alone(net: Net, x: Tensor) -> None:
    applied = relurules.apply(net, "redirected_relu6")
    assert same(gradient(applied, x), by_hand(net, x, "standard", "redirected"))
    assert {row.kind for row in applied.report.sites} == {"relu6"}
    assert {row.kind for row in applied.report.where("excluded")} == {"relu"}
    applied.remove()
    with (
        pytest.raises(NoActivationError, match="Left out"),
        relurules.apply(nn.ReLU(), "redirected_relu6") as ruled,
    ):
        ruled(x)
