"""The tutorial quotes the toy backend, so what it quotes must be what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import relurules_example
from relurules.testing import backend_checks
from relurules.testing._matrix import into

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "writing-a-backend.md").read_text("utf-8")
CONFORMANCE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().partition("\n")[0])
def test_the_tutorial_quotes_the_code(block: str) -> None:
    folder = Path(relurules_example.__file__).parent
    assert any(block in path.read_text("utf-8") for path in folder.glob("*.py"))


def test_the_tutorial_quotes_enough() -> None:
    assert len(BLOCKS) >= 7


def test_the_page_has_a_place_for_the_matrix() -> None:
    assert into(CONFORMANCE, []).startswith("# Conformance")


def test_the_page_names_checks_that_exist() -> None:
    table = CONFORMANCE.partition("## What is checked")[2].partition("## Known failures")[0]
    named = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = {name for cell in named for name in re.findall(r"`(\w+)`", cell)}
    assert len(names) == 13
    assert names <= {check.name for check in backend_checks("example")}
