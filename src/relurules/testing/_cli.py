"""`relurules check`: the kit without pytest, for whoever has only a backend and a terminal.

Progress goes to standard error; the table, or the record with `--json -`, to standard output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from relurules.testing._case import BackendCase, find_case
from relurules.testing._catalogue import PROFILES, backend_checks, find_profile
from relurules.testing._check import Profile
from relurules.testing._jobs import parts_of, run_in_processes
from relurules.testing._matrix import into
from relurules.testing._record import record
from relurules.testing._run import CheckResult, known_failures, run_checks

_BACKEND = typer.Argument(help="An installed backend; `relurules backends` lists them.")
_JSON = typer.Option("--json", help="Write the record of the run to this file; - is the terminal.")
_PROFILE = typer.Option(help=f"How long to search: {', '.join(PROFILES)}.")
_SEED = typer.Option(help="What draws begin with; the record of a run has its own.")
_JOBS = typer.Option("--jobs", "-j", min=1, help="How many processes to share the work among.")
_ONLY = typer.Option("--only", help="Only checks whose id holds this text.")
_RECORDS = typer.Argument(help="Records that `relurules check --json` wrote.", exists=True)
_PAGE = typer.Option(help="The page to write into, between its two marker lines.", exists=True)


def check(
    backend: Annotated[str, _BACKEND],
    *,
    json_path: Annotated[Path | None, _JSON] = None,
    profile: Annotated[str, _PROFILE] = "default",
    seed: Annotated[int | None, _SEED] = None,
    only: Annotated[str, _ONLY] = "",
    jobs: Annotated[int, _JOBS] = 2,
) -> None:
    """Check that a backend gives the specification's bits; ends with 1 where it does not."""
    if profile not in PROFILES:
        raise typer.BadParameter(f"{profile} is none of {', '.join(PROFILES)}")
    case = find_case(backend)
    chosen = PROFILES[profile] if seed is None else replace(PROFILES[profile], seed=seed)
    chosen = find_profile(chosen)
    results = _run(case, chosen, only, jobs)
    written = json.dumps(record(case, results, profile=chosen), indent=1)
    if json_path == Path("-"):
        typer.echo(written)
    else:
        _print(results)
        if json_path is not None:
            json_path.write_text(written + "\n", encoding="utf-8")
    if any(result.bad for result in results):
        raise typer.Exit(1)


def matrix(
    records: Annotated[list[Path], _RECORDS],
    *,
    page: Annotated[Path, _PAGE],
) -> None:
    """Write the support matrix of these records into a page."""
    found = [json.loads(path.read_text("utf-8")) for path in records]
    page.write_text(into(page.read_text("utf-8"), found), encoding="utf-8")


def add_commands(app: typer.Typer, /) -> None:
    """Add `check` and `matrix` to a command line."""
    app.command()(check)
    app.command(hidden=True)(matrix)


def _run(case: BackendCase, profile: Profile, only: str, jobs: int) -> tuple[CheckResult, ...]:
    checks = [one for one in backend_checks(case, profile=profile) if only in one.id]
    if not checks:
        raise typer.BadParameter(f"no check's id holds {only!r}")
    known, jobs = known_failures(case), min(jobs, len(parts_of(one.id for one in checks)))
    with _progress() as progress:
        task = progress.add_task(case.name, total=len(checks), failed=0)
        failed = Counter[bool]()

        def advance(result: CheckResult) -> None:
            failed[result.bad] += 1
            progress.update(task, advance=1, description=result.id, failed=failed[True])

        if jobs > 1:
            return run_in_processes(case.name, profile, checks, jobs=jobs, callback=advance)
        return run_checks(checks, known=known, on_fail=None, callback=advance)


def _progress() -> Progress:
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[failed]} failed  {task.description}"),
        console=Console(stderr=True),
        transient=True,
    )


def _print(results: Iterable[CheckResult]) -> None:
    results, console = tuple(results), Console()
    table = Table("check", "passed", "failed", "known", "compared", "seconds")
    for row in _rows(results):
        table.add_row(*map(str, row))
    console.print(table)
    for result in results:
        if result.bad:
            told = result.message or f"passed, but was declared to fail ({result.reason})"
            console.print(f"{result.id}: {told}", style="red", markup=False, highlight=False)


def _rows(results: tuple[CheckResult, ...]) -> Iterable[tuple[Any, ...]]:
    for name in dict.fromkeys(result.check for result in results):
        yield name, *_sums([result for result in results if result.check == name])
    yield "all", *_sums(results)


def _sums(results: Iterable[CheckResult]) -> tuple[Any, ...]:
    results = tuple(results)
    counts = Counter(result.status for result in results)
    return (
        counts["passed"],
        counts["failed"] + counts["xpassed"] or "",
        counts["xfailed"] or "",
        f"{sum(result.compared for result in results):,}",
        f"{sum(result.seconds for result in results):.1f}",
    )
