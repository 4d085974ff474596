"""The pages promise commands, names and numbers; a page that promises too much is a bug.

The `>>>` examples are not run here but by pytest itself (see docs/conftest.py). What is
checked here is that nothing public is left out and that what is referred to exists.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import relurules
from relurules import backend, hookspecs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *sorted(DOCS.glob("*.md")),
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("backends/*/README.md")),
)
HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("relurules_")}
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")

DEMO = (
    'python3 -m venv .venv && .venv/bin/pip install -e ".[explain]" -e backends/torch '
    "&& .venv/bin/relurules explain chelsea coffee --model efficientnet_lite0 --rule standard "
    "--rule guided --rule deconv --out maps.png && .venv/bin/relurules wake --out wake.png"
)
TESTS = "python3 -m venv .venv-test && .venv-test/bin/pip install tox && .venv-test/bin/tox"


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in FENCED.findall(text(page)) if found == language]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by the rule of GitHub and of mkdocs alike."""
    without_code = FENCED.sub("", text(page))
    headings = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s+", "-", heading) for heading in words}


def test_the_readme_begins_with_its_two_commands() -> None:
    first, second, *_ = FENCED.findall(text(ROOT / "README.md"))
    assert first == ("sh", DEMO + "\n")
    assert second == ("sh", TESTS + "\n")


@pytest.mark.parametrize("page", ["README.md", "backends/torch/README.md"])
def test_the_python_of_a_readme_runs(page: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("relurules_torch")
    (code,) = blocks(ROOT / page, "python")
    exec(compile(code, page, "exec"), {})


def test_the_readme_says_it_in_five_lines() -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    assert sum(bool(line) for line in code.splitlines()) == 5


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_is_documented_with_its_signature(name: str) -> None:
    parts = re.split(r"^### ", text(DOCS / "plugins.md"), flags=re.MULTILINE)
    (part,) = [part for part in parts if part.startswith(f"{name}\n")]
    annotations = str(inspect.signature(HOOKS[name])).replace("'", "")
    assert f"{name}{annotations}" in part


def test_no_hook_is_documented_that_is_none() -> None:
    assert set(re.findall(r"\brelurules_\w+(?=\()", text(DOCS / "plugins.md"))) == set(HOOKS)


def test_every_public_name_is_in_the_reference() -> None:
    reference = text(DOCS / "api.md")
    errors = {name for name in relurules.__all__ if name.endswith(("Error", "Warning"))}
    assert errors <= set(vars(relurules.errors))
    for name in set(relurules.__all__) - errors:
        assert re.search(rf"(?:::: |`)relurules\.{name}\b", reference), name
    for name in backend.__all__:
        assert re.search(rf"(?:- |`|relurules\.){name}\b", reference), name
    for module in ("spec", "backend", "hookspecs", "errors"):
        assert f"::: relurules.{module}\n" in reference


def test_every_rule_has_its_section_its_aliases_and_its_source() -> None:
    page = text(DOCS / "rules.md")
    for installed in relurules.rules():
        if installed.distribution != "relurules":
            continue
        rule = installed.item
        assert rule is not None
        (part,) = re.findall(rf"^## {rule.name}\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
        for arxiv in re.findall(r"arXiv:[\d.]+", rule.source):
            assert arxiv in part
        for alias in rule.aliases:
            assert f"`{alias}`" in page


@pytest.mark.parametrize("status", relurules.STATUSES)
def test_every_status_of_a_report_is_explained(status: str) -> None:
    assert f"| `{status}` |" in text(DOCS / "never-silent.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_exists(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", text(page))):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        if anchor and not anchor.startswith("relurules."):  # those are made by mkdocstrings
            assert anchor in anchors(path), link


def test_the_navigation_has_every_page() -> None:
    navigation = text(ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
    assert set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)) == {
        page.name for page in DOCS.glob("*.md")
    }


def test_there_is_one_version() -> None:
    assert f"## [{relurules.__version__}]" in text(ROOT / "CHANGELOG.md")
    assert f"version: {relurules.__version__}\n" in text(ROOT / "CITATION.cff")
