"""JAX tests run on four host devices in 64 bits, share `helpers.py`, and print what was tried.

Each row of the matrix is one way in which JAX code is written or transformed. A row is right, or
refused by name; the table at the end says which, so that nobody has to guess from test names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, str(Path(__file__).parent))

import jax
import pytest

jax.config.update("jax_enable_x64", True)

_rows = pytest.StashKey[list[tuple[str, str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_rows] = []


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Note a row of the matrix: what was tried, and what came of it."""
    table = request.config.stash[_rows]
    home = request.path.stem.removeprefix("test_")
    return lambda what, outcome: table.append((home, what, outcome))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = config.stash[_rows]
    if rows:
        terminalreporter.section("JAX matrix")
        width = max(len(what) for _, what, _ in rows)
        for home, what, outcome in rows:
            terminalreporter.write_line(f"{home:14} {what:{width}}  {outcome}")
