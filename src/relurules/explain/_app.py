"""The commands put together, and the two that list what is installed.

`relurules rules` and `relurules backends` are for when something is amiss, so they import no
framework: they answer at once, also where one is broken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

import relurules
from relurules.explain import _commands
from relurules.testing._cli import add_commands

_COLUMNS = ("name", "distribution", "version", "error")

app = typer.Typer(
    name="relurules",
    help="Gradient rules for ReLU networks: guided, deconv, redirected and others.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def rules() -> None:
    """List the installed rules and the distributions they come from."""
    _print_table("rules", relurules.rules())


def backends() -> None:
    """List the installed backends, and what failed to load and why."""
    _print_table("backends", relurules.backends())


def _print_table(title: str, installed: Iterable[Any]) -> None:
    table = Table(*_COLUMNS, title=title)
    for one in installed:
        table.add_row(*(str(getattr(one, column) or "") for column in _COLUMNS))
    Console().print(table)


for _command in (_commands.explain, _commands.wake, rules, backends):
    app.command()(_command)
add_commands(app)
