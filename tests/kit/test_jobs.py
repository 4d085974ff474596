"""Several processes give the results of one, in the same order, and say the same of a failure."""

from __future__ import annotations

import pickle

import pytest

from relurules.testing import CheckResult, KnownFailure, Profile, backend_checks, find_case
from relurules.testing import _jobs as jobs
from relurules.testing._catalogue import PROFILES
from relurules.testing._run import run_checks
from relurules_example import _backend

PROFILE = PROFILES["default"]


def without_seconds(result: CheckResult) -> dict[str, object]:
    return result.to_dict() | {"seconds": 0}


def test_two_processes_give_what_one_gives() -> None:
    names = {"law[reads_only]", "pausing", "never_silent"}
    checks = [c for c in backend_checks("example") if c.id in names or c.name == "sizes"]
    seen: list[str] = []
    results = jobs.run_in_processes(
        "example", PROFILE, checks, jobs=2, callback=lambda result: seen.append(result.id)
    )
    assert list(map(without_seconds, results)) == list(map(without_seconds, run_checks(checks)))
    assert sorted(seen) == sorted(check.id for check in checks)


def compared(seed: int) -> list[int]:
    profile = Profile(name="short", examples=5, draws=1, seed=seed)
    checks = [c for c in backend_checks("example", profile=profile) if c.name == "law"][:5]
    results = jobs.run_in_processes("example", profile, checks, jobs=1, callback=lambda _: None)
    return [result.compared for result in results]


def test_the_seed_of_a_search_goes_along() -> None:
    """Between processes: Hypothesis also draws numbers it finds in the modules that are loaded."""
    first = compared(77)
    assert compared(77) == first
    assert compared(78) != first


def test_each_check_is_in_one_part_and_laws_come_first() -> None:
    ids = [check.id for check in backend_checks("example")]
    parts = jobs.parts_of(ids)
    assert sorted(one for part in parts for one in part) == sorted(ids)
    laws = [part for part in parts if part[0].startswith("law")]
    assert parts[: len(laws)] == laws
    assert {len(part) for part in laws} == {1}


def test_a_failure_comes_back_as_plain_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "judge", lambda report, plan: None)
    (result,) = jobs._run_part("example", PROFILE, ("never_silent",))
    assert (result.status, result.error) == ("failed", None)
    assert "a model without activations" in result.message
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_declared_failure_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = (KnownFailure(check="pausing", kind="never", reason="declared"),)
    monkeypatch.setattr(type(find_case("example")), "known_failures", declared)
    (result,) = jobs._run_part("example", PROFILE, ("pausing",))
    assert (result.status, result.reason) == ("xpassed", "never: declared")
