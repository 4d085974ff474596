"""The commands write what they say, and what a user can mend is a message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import relurules
from relurules import cli
from relurules.explain._app import app


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


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
