"""Plugins: found in order, guarded, named when broken, and switched off by a variable.

Real distributions in miniature (a package and its metadata in a folder on the path) are what
`importlib.metadata` sees, so nothing of the loader is replaced.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import relurules
from relurules import PluginError, PluginLoadWarning, _plugins, backend

Install = Callable[..., None]

GOOD = """
    from relurules import Rule, hookimpl
    from relurules.backend import BackendInfo

    def double(x, g, *, bounds, xp):
        return g * 2

    @hookimpl
    def relurules_register_rules():
        return [Rule(name="spam_double", fn=double, is_filter=False, aliases=("spam_twice",))]

    @hookimpl
    def relurules_register_backends():
        return [BackendInfo(name="spam", framework="spam_framework", owns=bool, load=lambda: None)]
"""

BROKEN = {
    "an import that fails": ("import no_such_framework", "No module named 'no_such_framework'"),
    "a syntax error": ("def", "SyntaxError"),
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "another API": ("RELURULES_API = 99", "plugin API 99"),
    "a misspelt hook": (
        "from relurules import hookimpl\n@hookimpl\ndef relurules_register_rule(): return []",
        "unknown hook 'relurules_register_rule'",
    ),
    "an unknown argument": (
        "from relurules import hookimpl\n@hookimpl\ndef relurules_register_rules(x): return []",
        "Argument(s) {'x'}",
    ),
    "no rule": (
        "from relurules import hookimpl\n@hookimpl\ndef relurules_register_rules(): return [1]",
        "must return Rule objects, got 1",
    ),
    "a hook that raises": (
        "from relurules import hookimpl\n@hookimpl\ndef relurules_register_rules(): raise KeyError",
        "KeyError",
    ),
    "a rule that contradicts itself": (
        "from relurules import Rule, hookimpl\n"
        "@hookimpl\ndef relurules_register_rules(): return [Rule(name='A b', fn=len)]",
        "lower-case identifier",
    ),
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def add(distribution: str, source: str, *, name: str = "", module: str = "") -> None:
        module = module or distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2")
        entry = f"[relurules]\n{name or distribution} = {module}\n"
        (info / "entry_points.txt").write_text(entry)
        _plugins.catalogue.cache_clear()

    yield add
    _plugins.catalogue.cache_clear()
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_plugin_adds_rules_and_backends(install: Install) -> None:
    install("good-spam", GOOD)
    rule = relurules.rule("spam_double")
    assert relurules.spec.evaluate(rule, [1.0], [3.0]).tolist() == [6.0]
    assert relurules.rule("spam_twice") is relurules.rule("good-spam:spam_double") is rule
    (found,) = (one for one in relurules.rules() if one.name == "spam_double")
    assert (found.origin, found.error) == ("good-spam 1.2", None)
    assert "spam" in [one.name for one in relurules.backends()]


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_plugin_is_named_and_the_others_work(install: Install, how: str) -> None:
    source, reason = BROKEN[how]
    install("broken-eggs", source)
    install("good-spam", GOOD)
    with pytest.warns(PluginLoadWarning, match=r"'broken-eggs' of broken-eggs 1\.2 failed") as told:
        assert relurules.rule("spam_double").name == "spam_double"
    assert len(told) == 1
    (failed,) = (one for one in relurules.rules() if one.error)
    assert failed.name == "broken-eggs"
    assert reason in failed.error
    with pytest.raises(PluginError, match="broken-eggs") as caught:
        relurules.rule("broken-eggs")
    assert caught.value.__cause__ is not None
    with pytest.raises(relurules.UnknownRuleError, match=r"Note: the plugin 'broken-eggs'"):
        relurules.rule("eggs_rule")


def test_strict_plugins_raise(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("broken-eggs", "import no_such_framework")
    monkeypatch.setenv("RELURULES_STRICT_PLUGINS", "1")
    with pytest.raises(PluginError, match="no_such_framework"):
        relurules.rules()


@pytest.mark.parametrize("switch", ["1", "all", "broken-eggs", "other, broken-eggs"])
def test_disabled_plugins_are_not_imported(
    install: Install, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    install("broken-eggs", "raise AssertionError('imported')")
    monkeypatch.setenv("RELURULES_DISABLE_PLUGINS", switch)
    assert not [one for one in relurules.rules() if one.error]
    assert "broken_eggs" not in sys.modules


@pytest.mark.parametrize("order", [("aa-first", "zz-last"), ("zz-last", "aa-first")])
def test_a_name_claimed_twice_names_both(install: Install, order: tuple[str, str]) -> None:
    for distribution in order:
        install(distribution, GOOD)
    with pytest.raises(relurules.DuplicateNameError, match=r"aa-first 1\.2 and by zz-last 1\.2"):
        relurules.rule("spam_double")
    assert relurules.rule("zz-last:spam_double").name == "spam_double"
    with pytest.raises(relurules.DuplicateNameError, match="backend name 'spam'"):
        relurules.apply(object(), "guided", backend="spam")


def test_a_built_in_rule_cannot_be_replaced(install: Install) -> None:
    install("good-spam", GOOD.replace("spam_double", "guided"))
    with pytest.warns(PluginLoadWarning, match="'guided', which is built in"):
        assert relurules.rule("guided").source.startswith("Springenberg")
    assert relurules.rule("good-spam:guided").source == ""


def test_kernels_and_recognised_activations(install: Install) -> None:
    install(
        "good-spam",
        """
        from relurules import hookimpl

        @hookimpl
        def relurules_kernel(rule, backend):
            return abs if (rule.name, backend) == ("guided", "spam") else None

        @hookimpl
        def relurules_recognise(backend, obj):
            return (0.0, 6.0) if obj == "my relu6" else None
        """,
    )
    assert backend.kernel_for(relurules.rule("guided"), "spam") is abs
    assert backend.kernel_for(relurules.rule("guided"), "torch") is None
    assert backend.recognise("spam", "my relu6") == (0.0, 6.0)
    assert backend.recognise("spam", "another") is None


def test_the_framework_of_a_model_without_backend_is_named(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELURULES_DISABLE_PLUGINS", "1")
    install("unused", "")
    model = type("Module", (), {"__module__": "torch.nn.modules.module"})()
    with pytest.raises(relurules.BackendNotInstalledError, match=r"pip install 'relurules\[torch"):
        relurules.apply(model, "guided")
    with pytest.raises(relurules.UnsupportedModelError, match="builtins.int"):
        relurules.apply(3, "guided")


def test_a_model_that_two_backends_own(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELURULES_DISABLE_PLUGINS", "torch,jax,tensorflow,example")
    monkeypatch.setitem(sys.modules, "spam_framework", sys)
    install("good-spam", GOOD)
    install("more-spam", GOOD.replace('"spam', '"more'))
    monkeypatch.setitem(sys.modules, "more_framework", sys)
    with pytest.raises(relurules.UnsupportedModelError, match="backend='spam' or 'more'"):
        relurules.apply(object(), "guided")


IMPORT = """
import sys
import relurules
{then}
heavy = {{"torch", "jax", "tensorflow", "matplotlib", "timm", "typer", "rich"}} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("then", ["", "relurules.rules(), relurules.backends()"])
def test_importing_and_discovering_loads_no_framework(then: str) -> None:
    subprocess.run([sys.executable, "-c", IMPORT.format(then=then)], check=True)


def test_everything_public_is_there_and_documented() -> None:
    for name in relurules.__all__:
        assert getattr(relurules, name, None) is not None
        assert name == "__version__" or getattr(relurules, name).__doc__


def test_a_rule_that_is_no_name() -> None:
    for wrong in (3, None, np.array(1)):
        with pytest.raises(TypeError, match="a name or a relurules.Rule"):
            relurules.rule(wrong)  # type: ignore[arg-type]
