"""What guided and deconv do not show: published claims, measured again on small networks.

Prints each number beside the one recorded when the project was designed, with other code, and
says where both agree. Everything runs offline; seeds are fixed.

    python examples/papers.py                       # all, one to two minutes
    python examples/papers.py nie sixt              # some
    python examples/papers.py --quick --json numbers.json
    python examples/papers.py grid --picture docs/images/limits.png
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import adebayo
import cascade
import grid
import nie
import sixt
import torch
from experiment import NO_RULE, RULES, Experiment, Finding, Findings, Key
from picture import picture
from rich.console import Console
from rich.progress import track
from rich.table import Table

MODULES = (nie, sixt, adebayo, cascade, grid)
EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in MODULES}
MARKS = {True: " [green]agrees[/]", False: " [red]differs[/]", None: ""}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for, print it, and keep it."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)  # networks so small gain nothing from more
    console = Console()
    found = {}
    for name in options.names or EXPERIMENTS:
        begun = time.perf_counter()
        found[name] = measured(EXPERIMENTS[name], console, quick=options.quick)
        console.print(table(EXPERIMENTS[name], found[name]))
        console.print(f"{time.perf_counter() - begun:.0f} s\n", style="dim")
    if options.json:
        options.json.write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    if options.picture:
        picture().save(options.picture, optimize=True)


def measured(experiment: Experiment, console: Console, *, quick: bool = False) -> Findings:
    """Run one experiment under a progress bar."""
    bar = partial(track, description=experiment.paper, console=console, transient=True)
    return experiment.run(quick=quick, progress=bar)


def table(experiment: Experiment, findings: Findings) -> Table:
    """Return a row for each setting, a column for each rule."""
    drawn = Table(title=f"{experiment.paper}: {experiment.shows}", title_justify="left")
    drawn.add_column("setting")
    for rule in RULES:
        drawn.add_column(rule, justify="right")
    for setting in dict.fromkeys(key.setting for key in findings):
        about, *cells = (_cell(findings.get(Key(setting, rule))) for rule in (NO_RULE, *RULES))
        drawn.add_row(f"{setting} {about}".rstrip(), *cells)
    return drawn


def _cell(finding: Finding | None) -> str:
    if finding is None:
        return ""
    recorded = "" if finding.recorded is None else f" [dim]({finding.recorded:.3f})[/]"
    return f"{finding.mean:z.3f} ± {finding.spread:.3f}{recorded}{MARKS[finding.agrees]}"


def as_json(found: dict[str, Findings]) -> dict[str, list[dict[str, object]]]:
    """Return all numbers as lists of rows."""
    return {
        name: [key._asdict() | finding.summary() for key, finding in findings.items()]
        for name, findings in found.items()
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure what guided and deconv do not show.")
    known = ", ".join(EXPERIMENTS)
    parser.add_argument("names", nargs="*", type=_known, metavar="NAME", help=known)
    parser.add_argument("--quick", action="store_true", help="fewer seeds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the numbers")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the maps as PNG")
    return parser


def _known(name: str) -> str:
    if name not in EXPERIMENTS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(EXPERIMENTS)}")
    return name


if __name__ == "__main__":
    main()
