"""Running checks in several processes, for whoever waits for a terminal.

Checks are independent of each other, and most of their time is Python's or a compiler's own. So
each process makes the same table of checks and runs the parts of it that it is sent by name;
results come back as plain data and are put in the order of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context

from relurules.testing._case import find_case
from relurules.testing._catalogue import backend_checks
from relurules.testing._check import Check, Profile
from relurules.testing._run import CheckResult, known_failures, run_checks

Ids = tuple[str, ...]


def run_in_processes(
    backend: str,
    profile: Profile,
    checks: Iterable[Check],
    /,
    *,
    jobs: int,
    callback: Callable[[CheckResult], None],
) -> tuple[CheckResult, ...]:
    """Run these checks of a backend, and return their results in the order of the checks.

    Args:
        backend: The backend's name.
        profile: The profile of the checks, with its seed.
        checks: Some of `backend_checks(backend, profile=profile)`.
        jobs: How many processes.
        callback: Called with each result, in the order in which they come.

    Raises:
        SubnormalsFlushedError: A process cannot judge.
        BrokenProcessPool: A process died.
    """
    ids = [check.id for check in checks]
    found: dict[str, CheckResult] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        parts = [pool.submit(_run_part, backend, profile, part) for part in parts_of(ids)]
        for part in as_completed(parts):
            for result in part.result():
                found[result.id] = result
                callback(result)
    return tuple(found[one] for one in ids)


def parts_of(ids: Iterable[str], /) -> list[Ids]:
    """Return what is run in one go: the checks of one name and rule; each law, which takes long."""
    parts: dict[str, list[str]] = {}
    for one in ids:
        parts.setdefault(one.partition("-")[0], []).append(one)
    return sorted(map(tuple, parts.values()), key=lambda part: not part[0].startswith("law"))


def _run_part(backend: str, profile: Profile, ids: Ids) -> tuple[CheckResult, ...]:
    table = _table(backend, profile)
    results = run_checks(
        [table[one] for one in ids], known=known_failures(find_case(backend)), on_fail=None
    )
    return tuple(replace(result, error=None) for result in results)  # which may not be pickled


@functools.cache
def _table(backend: str, profile: Profile) -> dict[str, Check]:
    return {check.id: check for check in backend_checks(backend, profile=profile)}
