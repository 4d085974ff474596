"""One engine, four faces: each runs the same checks and says the same of a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import relurules
from relurules.testing import (
    ConformanceError,
    ConformanceWarning,
    KnownFailure,
    backend_checks,
    check_backend,
    find_case,
    parametrize_with_checks,
)
from relurules.testing import _cli as cli
from relurules_example import _backend, tape

PAUSING = "pausing"
FRAMEWORKS = ("torch", "jax", "tensorflow", "keras")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that never complains: `never_silent` fails."""
    monkeypatch.setattr(_backend, "judge", lambda report, plan: None)


def only(*ids: str) -> object:
    return lambda check_id: check_id in ids


def pytest_in(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own, with the plugin whether or not it is registered."""
    registered = entry_points(group="pytest11", name="relurules")
    plugin = () if registered else ("-p", "_relurules_pytest")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin]
    return subprocess.run(
        [*command, *args], cwd=folder, capture_output=True, text=True, check=False
    )


# --- As a function ---------------------------------------------------------------------------


def test_results_say_what_was_done() -> None:
    (result,) = check_backend("example", only=only("sizes[guided-float32]"))
    assert (result.id, result.check) == ("sizes[guided-float32]", "sizes")
    assert (result.rule, result.dtype, result.mode) == ("guided", "float32", "")
    assert (result.status, result.compared, result.message) == ("passed", 5595, "")
    assert not result.bad
    assert json.loads(json.dumps(result.to_dict()))["id"] == result.id


def test_results_come_in_the_order_of_the_checks() -> None:
    seen: list[str] = []
    results = check_backend(
        "example",
        only=lambda one: one.startswith("refusal"),
        callback=lambda result: seen.append(result.id),
    )
    ids = [check.id for check in backend_checks("example") if check.name == "refusal"]
    assert seen == [result.id for result in results] == ids


@pytest.mark.usefixtures("silent")
def test_a_failure_raises_warns_or_is_returned() -> None:
    chosen = only("never_silent", "never_called")
    with pytest.raises(ConformanceError, match="never_silent: a model without activations"):
        check_backend("example", only=chosen)
    with pytest.warns(ConformanceWarning, match="never_silent"):
        results = check_backend("example", only=chosen, on_fail="warn")
    assert [result.status for result in results] == ["failed", "passed"]
    assert check_backend("example", only=chosen, on_fail=None)[0].error is not None


@pytest.mark.usefixtures("silent")
def test_a_declared_failure_is_none() -> None:
    (result,) = check_backend(
        "example",
        only=only("never_silent"),
        expected_failures={"never_silent": "judges nothing yet"},
    )
    assert (result.status, result.reason) == ("xfailed", "notimpl: judges nothing yet")


def test_a_declared_failure_that_passes_is_one() -> None:
    declared = KnownFailure(check="pau*", kind="notyet", reason="no pause", link="#1")
    (result,) = check_backend(
        "example", only=only(PAUSING), expected_failures=[declared], on_fail=None
    )
    assert (result.status, result.bad) == ("xpassed", True)
    with pytest.raises(ConformanceError, match=r"declared to fail \(notyet: no pause \(#1\)\)"):
        check_backend("example", only=only(PAUSING), expected_failures=[declared])


def test_a_declaration_that_fits_no_check_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'sizes\[guidde-\*' fits no check"):
        check_backend("example", expected_failures={"sizes[guidde-*": "misspelt"})


def test_a_declaration_needs_a_reason_and_a_kind() -> None:
    with pytest.raises(ValueError, match="reason"):
        KnownFailure(check="sizes[*]", kind="never", reason=" ")
    with pytest.raises(ValueError, match="notimpl, notyet, never"):
        KnownFailure(check="sizes[*]", kind="flaky", reason="now and then")  # type: ignore[arg-type]


def test_plugins_declare_failures_too(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = KnownFailure(check=PAUSING, kind="never", reason="told by a plugin")
    hook = relurules._plugins.catalogue().manager.hook
    monkeypatch.setattr(
        hook, "relurules_known_failures", lambda backend: [[declared]], raising=False
    )
    (result,) = check_backend("example", only=only(PAUSING), on_fail=None)
    assert result.reason == "never: told by a plugin"


def test_unknown_names() -> None:
    with pytest.raises(relurules.UnknownBackendError, match="'example'"):
        check_backend("exampel")
    with pytest.raises(ValueError, match="default, ci, nightly"):
        check_backend("example", profile="weekly")


def test_an_incomplete_adapter_is_refused() -> None:
    class Half:
        name = "half"
        dtypes = ("float32",)

    with pytest.raises(TypeError, match="modes, spellings"):
        check_backend(Half())  # type: ignore[arg-type]


def test_a_backend_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relurules.testing._case.find_spec", lambda name: None)
    with pytest.raises(LookupError, match=r"relurules_example\.testing with a function case"):
        check_backend("example")


def test_an_adapter_may_be_given_itself() -> None:
    assert check_backend(find_case("example"), only=only(PAUSING))[0].status == "passed"


# --- Under pytest ----------------------------------------------------------------------------


@parametrize_with_checks("example")
def test_conformance(check: object) -> None:
    check()  # type: ignore[operator]


def test_the_decorator_marks_declared_failures() -> None:
    mark = parametrize_with_checks("example", expected_failures={PAUSING: "no pause"})
    (param,) = (p for p in mark.args[1] if p.id == PAUSING)
    assert [(m.name, m.kwargs["strict"]) for m in param.marks] == [("xfail", True)]


def test_the_suite(tmp_path: Path) -> None:
    suite = (
        "--pyargs",
        "relurules.testing.suite",
        "--relurules-backend=example",
        "-k",
        "not law and not every",
    )
    run = pytest_in(tmp_path, "-q", *suite)
    assert run.returncode == 0, run.stdout
    assert "178 passed" in run.stdout


def test_the_suite_wants_a_backend(tmp_path: Path) -> None:
    run = pytest_in(tmp_path, "--pyargs", "relurules.testing.suite")
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "name a backend: --relurules-backend=torch" in run.stdout


def test_the_plugin_imports_nothing() -> None:
    code = "import _relurules_pytest, sys; print([m for m in sys.modules if 'relurules' in m])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['_relurules_pytest']"


# --- On the command line ---------------------------------------------------------------------


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    cli.add_commands(app)
    return app


def test_the_command_passes(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    run = CliRunner().invoke(app, ["check", "example", "--only", "pausing", "--json", str(file)])
    assert run.exit_code == 0, run.output
    assert "pausing" in run.stdout
    record = json.loads(file.read_text())
    assert record["counts"] == {"passed": 1}
    assert record["versions"]["relurules"] == relurules.__version__
    assert record["subnormals"] == "ieee"


def test_the_record_on_the_terminal(app: typer.Typer) -> None:
    run = CliRunner().invoke(app, ["check", "example", "--only", "pausing", "--json", "-"])
    assert json.loads(run.stdout)["backend"] == "example"


@pytest.mark.usefixtures("silent")
def test_the_command_fails(app: typer.Typer) -> None:
    run = CliRunner().invoke(app, ["check", "example", "--only", "never_silent"])
    assert run.exit_code == 1
    assert "never_silent: a model without activations" in run.stdout


@pytest.mark.parametrize("wrong", [["--profile", "weekly"], ["--only", "nothing like it"]])
def test_the_command_refuses(app: typer.Typer, wrong: list[str]) -> None:
    assert CliRunner().invoke(app, ["check", "example", *wrong]).exit_code == 2


def test_the_matrix(app: typer.Typer, tmp_path: Path) -> None:
    record, page = tmp_path / "record.json", tmp_path / "page.md"
    page.write_text("# Title\n<!-- conformance matrix: begin -->\nold\n")
    CliRunner().invoke(app, ["check", "example", "--only", "sizes[gui", "--json", str(record)])
    command = ["matrix", str(record), "--page", str(page)]
    assert isinstance(CliRunner().invoke(app, command).exception, ValueError)
    page.write_text(page.read_text() + "<!-- conformance matrix: end -->\nafter\n")
    assert CliRunner().invoke(app, command).exit_code == 0
    text = page.read_text()
    assert "### example" in text
    assert "3 checks: 3 passed; 16,785 elements compared" in text
    assert "old" not in text
    assert text.endswith("<!-- conformance matrix: end -->\nafter\n")


# --- Without a framework ---------------------------------------------------------------------


def test_no_framework_is_imported() -> None:
    code = (
        "import sys; from relurules.testing import check_backend\n"
        "results = check_backend('example', only=lambda one: one.startswith('spe'))\n"
        f"print(len(results), [m for m in {FRAMEWORKS} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "25 []"


def test_the_tutorial_stays_short() -> None:
    folder = Path(tape.__file__).parent
    files = {path.name: len(path.read_text().splitlines()) for path in folder.glob("*.py")}
    framework = files.pop("tape.py")
    assert framework < 100
    assert sum(files.values()) < 200


def test_the_command_needs_nothing_of_what_draws() -> None:
    """It is the way to look at an installation, also at one that has no extra but `test`."""
    code = (
        "import sys\n"
        "for name in ('PIL', 'matplotlib', 'skimage', 'timm', 'torch', 'torchvision'):\n"
        "    sys.modules[name] = None\n"  # importing it is an ImportError
        "from relurules.cli import main\n"
        "sys.argv[1:] = ['check', 'example', '--only', 'pausing', '--jobs', '1']\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pausing" in done.stdout
