"""The direction of each published claim, with few seeds; `examples/papers.py` measures them all.

The margins are wide on purpose: what is asserted must hold for any seed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import adebayo
import grid
import nie
import papers
import picture
import pytest
import sixt
from experiment import NO_RULE, RULES, Experiment, Finding, Findings, Key

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"


@pytest.fixture(scope="session")
def found() -> dict[str, Findings]:
    return {name: each.run(quick=True) for name, each in papers.EXPERIMENTS.items()}


def test_guided_recovers_the_image_and_standard_does_not(found: dict[str, Findings]) -> None:
    for pooling in nie.POOLS:
        setting = nie.image_setting(pooling, 256)
        assert found["nie"][Key(setting, "guided")].mean > 0.5
        assert abs(found["nie"][Key(setting, "standard")].mean) < 0.1


def test_guided_is_nearly_the_same_for_two_classes(found: dict[str, Findings]) -> None:
    for pooling in nie.POOLS:
        setting = nie.class_setting(pooling, 256)
        assert found["nie"][Key(setting, "guided")].mean > 0.8
        assert abs(found["nie"][Key(setting, "standard")].mean) < 0.2


def test_recovery_grows_with_the_width(found: dict[str, Findings]) -> None:
    for pooling in nie.POOLS:
        settings = (nie.image_setting(pooling, width) for width in nie.WIDTHS)
        means = [found["nie"][Key(setting, "guided")].mean for setting in settings]
        assert means == sorted(means)


@pytest.mark.parametrize(
    ("name", "depth"), [("dense, 20 layers", 20), ("convolutions, 12 layers", 12)]
)
def test_with_depth_guided_maps_of_all_outputs_become_one(
    found: dict[str, Findings], name: str, depth: int
) -> None:
    deep, shallow = sixt.setting(name, depth), sixt.setting(name, 1)
    assert found["sixt"][Key(deep, "guided")].mean > 0.99
    assert found["sixt"][Key(shallow, "guided")].mean < 0.6
    assert abs(found["sixt"][Key(deep, "standard")].mean) < 0.3
    assert found["sixt"][Key(deep, "deconv")].mean > 0.5


@pytest.mark.parametrize("pooling", adebayo.POOLS)
def test_guided_survives_random_weights_better_than_standard(
    found: dict[str, Findings], pooling: str
) -> None:
    accuracy = found["adebayo"][Key(adebayo.accuracy_setting(pooling), NO_RULE)]
    assert accuracy.mean >= 0.97
    for count in range(1, adebayo.LAYERS):
        setting = adebayo.setting(pooling, count)
        guided, standard = (
            found["adebayo"][Key(setting, rule)].mean for rule in ("guided", "standard")
        )
        assert guided > standard + 0.1


def test_deconv_is_sensitive_to_the_weights_where_nothing_is_pooled(
    found: dict[str, Findings],
) -> None:
    plain, pooled = (adebayo.setting(pooling, 2) for pooling in ("no pooling", "max-pooling"))
    assert found["adebayo"][Key(plain, "deconv")].mean < 0.4
    assert found["adebayo"][Key(pooled, "deconv")].mean > 0.4


def test_a_random_classifier_leaves_the_maps_of_a_large_network(
    found: dict[str, Findings],
) -> None:
    findings = found["cascade"]
    first = next(iter(findings)).setting
    assert "top 1 of" in first
    assert findings[Key(first, "guided")].mean > 0.95
    assert findings[Key(first, "deconv")].mean > 0.95
    assert findings[Key(first, "standard")].mean < 0.7


def test_without_max_pooling_deconv_is_the_same_for_every_image(
    found: dict[str, Findings],
) -> None:
    for network in (grid.TRAINED, grid.random("average")):
        assert min(found["grid"][Key(grid.between(network), "deconv")].values) > 1 - 1e-12
        assert found["grid"][Key(grid.between(network), "guided")].mean < 0.5
    assert max(found["grid"][Key(grid.between(grid.random("max")), "deconv")].values) < 0.6


def test_a_large_network_gives_two_classes_one_guided_map(found: dict[str, Findings]) -> None:
    setting = grid.two_classes(grid.TRAINED)
    assert min(found["grid"][Key(setting, "guided")].values) > 0.95
    assert found["grid"][Key(setting, "standard")].mean < 0.2


def test_every_recorded_number_was_measured(found: dict[str, Findings]) -> None:
    for name, experiment in papers.EXPERIMENTS.items():
        assert set(experiment.recorded) <= set(found[name])


def test_a_finding_says_whether_it_agrees() -> None:
    finding = Finding(values=(0.1, 0.3), recorded=0.25, within=0.1)
    assert (finding.mean, finding.spread) == (pytest.approx(0.2), pytest.approx(0.1))
    assert finding.agrees
    assert Finding(values=(0.1, 0.3), recorded=0.35, within=0.1).agrees is False
    assert Finding(values=(0.1, 0.3), recorded=None, within=0.1).agrees is None


def test_the_command_prints_a_table_and_keeps_the_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sixt, "NETWORKS", {"dense, 20 layers": sixt.dense})
    papers.main(["sixt", "--quick", "--json", str(tmp_path / "numbers.json")])
    printed = capsys.readouterr().out
    assert "Sixt, Granz & Landgraf 2020" in printed
    assert "agrees" in printed
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert list(numbers) == ["sixt"]
    rows = numbers["sixt"]
    assert {row["rule"] for row in rows} == set(RULES)
    assert all(row["least"] <= row["mean"] <= row["most"] for row in rows)


def test_a_wrong_name_is_told_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        papers.main(["nei"])
    assert "'nei' is none of nie, sixt, adebayo, cascade, grid" in capsys.readouterr().err


@pytest.mark.parametrize("experiment", papers.EXPERIMENTS.values(), ids=lambda each: each.name)
def test_the_page_quotes_every_recorded_number(experiment: Experiment) -> None:
    quoted = re.findall(r"\((-?\d\.\d{3})\)", PAGE.read_text(encoding="utf-8"))
    assert {f"{number:.3f}" for number in experiment.recorded.values()} <= set(quoted)


def test_the_picture_has_a_row_for_each_photograph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "ROWS", 1)
    drawn = picture.picture()
    columns = 1 + len(RULES) * len(grid.CLASSES)
    assert drawn.width == pytest.approx(112 * columns, abs=2)
    assert drawn.height < 2 * 112


def test_the_picture_on_the_page_is_small() -> None:
    assert (PAGE.parent / "images" / "limits.png").stat().st_size < 200_000
