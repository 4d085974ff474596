"""The commands write what they say, and what a user can mend is a message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torchvision
from PIL import Image
from typer.testing import CliRunner

import relurules
from relurules import cli
from relurules.explain import _commands, load_image, load_model
from relurules.explain._app import app
from relurules.pictures import overlay


def _invoke(*arguments: str):
    runner = CliRunner()
    result = runner.invoke(app, arguments, env={"COLUMNS": "120"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def _run(*arguments: str) -> str:
    return _invoke(*arguments).stdout


def _fails(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["relurules", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code not in (0, None)
    return str(exit_.value.code)


def test_explain_writes_the_picture_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "new" / "rules.png"
    shown = _run("explain", "chelsea", "coffee", "--rule", "guided", "--out", str(out))
    assert f"wrote {out}" in shown
    assert "Egyptian cat" in shown
    assert "espresso" in shown
    with Image.open(out) as picture:
        assert picture.width > picture.height


def test_explain_takes_a_target(tmp_path: Path) -> None:
    out = tmp_path / "rules.png"
    shown = _run("explain", "chelsea", "--target", "tabby", "--rule", "guided", "--out", str(out))
    assert "tabby" in shown


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two small photographs and a text."""
    found = tmp_path / "photographs"
    found.mkdir()
    for name, colour in (("red.png", "red"), ("blue.jpg", "blue")):
        Image.new("RGB", (32, 32), colour).save(found / name)
    (found / "notes.txt").write_text("not a picture")
    return found


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return weights for a SqueezeNet of 7 classes."""
    path = tmp_path / "w.safetensors"
    source = torchvision.models.squeezenet1_1(weights=None, num_classes=7)
    safetensors.torch.save_file(source.state_dict(), path)
    return path


SMALL = ("--model", "torchvision:squeezenet1_1", "--size", "64", "--rule", "guided")


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def _holds(figure: np.ndarray, picture: np.ndarray) -> bool:
    """Return whether a picture is somewhere in a figure, to the pixel."""
    windows = np.lib.stride_tricks.sliding_window_view(figure, (1, picture.shape[1], 3))
    starts = np.argwhere((windows[:, :, 0, 0] == picture[0]).all(axis=(2, 3)))
    height, width = picture.shape[:2]
    return any(
        np.array_equal(figure[top : top + height, left : left + width], picture)
        for top, left in starts
    )


def test_what_is_in_the_file_is_the_map_of_the_library(tmp_path: Path) -> None:
    out = tmp_path / "rules.png"
    _run("explain", "coffee", "--rule", "guided", "--style", "overlay", "--out", str(out))
    model, image = load_model(), load_image("coffee")
    gradient = relurules.attribute(model.network, model.normalise(image)[None], 967, "guided")
    values, photograph = (each.permute(1, 2, 0).numpy() for each in (gradient[0], image))
    wanted = np.rint(overlay(values, photograph) * 255).astype(np.uint8)
    assert _holds(_pixels(out), wanted)


def test_a_folder_into_a_folder_gives_a_picture_for_each(
    folder: Path, tmp_path: Path, small: Path
) -> None:
    out = tmp_path / "maps"
    shown = _run(
        *("explain", str(folder), *SMALL, "--weights", str(small), "--classes", "7"),
        *("--target", "3", "--out", str(out)),
    )
    assert sorted(path.name for path in out.iterdir()) == ["blue.png", "red.png"]
    assert shown.count("wrote ") == 2
    assert shown.count("output 3") == 2
    assert _holds(_pixels(out / "red.png"), np.full((64, 64, 3), (255, 0, 0), np.uint8))
    assert not _holds(_pixels(out / "blue.png"), np.full((64, 64, 3), (255, 0, 0), np.uint8))
    assert sorted(path.name for path in folder.iterdir()) == ["blue.jpg", "notes.txt", "red.png"]


def test_a_folder_into_a_file_gives_a_row_for_each(
    folder: Path, tmp_path: Path, small: Path
) -> None:
    arguments = (*SMALL, "--weights", str(small), "--classes", "7", "--out")
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    _run("explain", str(folder / "red.png"), *arguments, str(one))
    _run("explain", str(folder), *arguments, str(two))
    assert _pixels(two).shape[0] > 1.8 * _pixels(one).shape[0]
    assert _pixels(two).shape[1] == _pixels(one).shape[1]


def test_random_weights_are_said_loudly(folder: Path, tmp_path: Path, small: Path) -> None:
    random, trained = tmp_path / "random.png", tmp_path / "trained.png"
    command = ("explain", str(folder / "red.png"), *SMALL)
    loud = _invoke(*command, "--out", str(random))
    assert "Warning: RANDOM WEIGHTS" in loud.stderr
    quiet = _invoke(*command, "--weights", str(small), "--classes", "7", "--out", str(trained))
    assert "RANDOM" not in quiet.stderr
    assert _pixels(random).shape[0] > _pixels(trained).shape[0]  # by the line above the picture


def test_random_weights_are_said_in_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(_commands, "write", lambda figure, out: drawn.append(figure))
    _run("explain", "coffee", *SMALL)
    assert any("RANDOM WEIGHTS" in text.get_text() for text in drawn[0].texts)
    _run(
        *("wake", "--model", "torchvision:squeezenet1_1", "--layer", "features.1"),
        *("--channel", "0", "--steps", "1", "--size", "32"),
    )
    assert "RANDOM WEIGHTS" in drawn[1].get_suptitle()


def test_smooth_and_occlusion_change_and_add_a_map(tmp_path: Path) -> None:
    plain, more = tmp_path / "plain.png", tmp_path / "more.png"
    command = ("explain", "coffee", "--rule", "gradient", "--style", "magnitude", "--out")
    header = "┃ occlusion ┃"
    assert header not in _run(*command, str(plain))
    shown = _run(*command, str(more), "--smooth", "2", "--sigma", "0.2", "--occlusion", "112")
    assert header in shown
    first, second = _pixels(plain), _pixels(more)
    assert second.shape[1] == first.shape[1] + 224 + 8
    assert not np.array_equal(first, second[:, : first.shape[1]])


def test_progress_is_on_standard_error_only(tmp_path: Path) -> None:
    result = _invoke(
        *("explain", "coffee", "--rule", "guided", "--smooth", "2"),
        *("--out", str(tmp_path / "rules.png")),
    )
    assert result.stdout.splitlines()[-1] == f"wrote {tmp_path / 'rules.png'}"
    assert "%" not in result.stdout


def test_own_code_with_its_own_size_and_colours(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(392, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    shown = _run(
        *("explain", str(folder / "red.png"), "--model", "own_net:build", "--size", "16"),
        *("--mean", "0.5", "0.5", "0.5", "--std", "0.5", "0.5", "0.5", "--target", "2"),
    )
    assert "output 2" in shown
    assert (tmp_path / "rules.png").is_file()


def test_wake_writes_the_picture_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "wake.png"
    shown = _run("wake", "--steps", "2", "--size", "64", "--out", str(out))
    assert f"wrote {out}" in shown
    assert "standard" in shown
    assert "redirected" in shown
    assert out.stat().st_size > 0


def test_rules_and_backends_list_what_is_installed() -> None:
    rules, backends = _run("rules"), _run("backends")
    assert all(rule.name in rules for rule in relurules.rules())
    assert all(backend.name in backends for backend in relurules.backends())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "nowhere.png"], "There is no file 'nowhere.png'"),
        (["explain", "chelsea", "--rule", "guidde"], "did you mean 'guided'"),
        (["explain", "chelsea", "--target", "espressso"], "did you mean 'espresso'"),
        (["explain", "chelsea", "--model", "lite9"], "there is: efficientnet_lite0"),
        (["explain", "chelsea", "--target", "1000"], "0 to 999"),
        (["explain", "chelsea", "--model", "torchvision:resnet81"], "did you mean 'resnet"),
        (["explain", "chelsea", "--model", "timm:vit_tiny_patch16_224"], "--rule gradient"),
        (["explain", "chelsea", "--weights", "nowhere.pt"], "There is no file 'nowhere.pt'"),
        (["explain", "chelsea", "--occlusion", "500"], "does not fit into 224"),
        (["explain", "chelsea", "--out", "maps.pdf"], "neither a name ending in .png nor a folder"),
        (["wake", "--layer", "bn2_act"], "did you mean 'bn2.act'"),
    ],
)
def test_a_wrong_request_is_a_message(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    shown = _fails(monkeypatch, *arguments)
    assert shown.startswith("relurules: ")
    assert message in shown


def test_another_suffix_is_refused_before_anything_is_computed() -> None:
    result = CliRunner().invoke(app, ["wake", "--out", "wake.pdf"])
    assert result.exit_code == 2
    assert "does not end in .png" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--style", "sigend"], "did you mean 'signed'"),
        (["--smooth", "-1"], "Invalid value for '--smooth'"),
        (["--percentile", "101"], "Invalid value for '--percentile'"),
        (["--size", "0"], "Invalid value for '--size'"),
        (["--mean", "1"], "requires 3 arguments"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_computed(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["explain", "chelsea", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.output


def test_a_model_without_relu_still_has_its_gradient(tmp_path: Path) -> None:
    command = ("explain", "chelsea", "--model", "timm:vit_tiny_patch16_224", "--rule", "gradient")
    assert "gradient" in _run(*command, "--out", str(tmp_path / "vit.png"))


def test_a_missing_module_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "relurules.explain._app")
    monkeypatch.setitem(sys.modules, "typer", None)
    assert 'pip install "relurules[explain]"' in _fails(monkeypatch, "rules")


def test_the_listing_imports_no_framework() -> None:
    code = (
        "import sys; sys.argv = ['relurules', 'rules']\n"
        "import relurules.explain, relurules.explain._app as a\n"
        "a.app(standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_rule_given_twice_is_one_column(folder: Path, tmp_path: Path, small: Path) -> None:
    command = (*SMALL, "--weights", str(small), "--classes", "7", "--occlusion", "32")
    once, twice = (
        _run("explain", str(folder / "red.png"), *command, *more, "--out", str(tmp_path / name))
        for name, more in (("once.png", ()), ("twice.png", ("--rule", "guided")))
    )
    assert twice.replace("twice.png", "once.png") == once
    assert np.array_equal(_pixels(tmp_path / "once.png"), _pixels(tmp_path / "twice.png"))


def test_an_image_of_one_value_has_no_range(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    Image.new("RGB", (32, 32), "grey").save(tmp_path / "grey.png")
    colours = ("--mean", "0", "0", "0", "--std", "1", "1", "1")
    command = ("explain", str(tmp_path / "grey.png"), *SMALL, *colours, "--weights", str(small))
    out = ("--out", str(tmp_path / "maps.png"))
    shown = _fails(monkeypatch, *command, "--classes", "7", "--smooth", "2", *out)
    assert "one value only" in shown
    assert "Traceback" not in shown
