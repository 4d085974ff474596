"""Every wrong rule is caught, by the check that is meant to catch it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import wrong_elementwise  # noqa: F401 - adds to the table
import wrong_redirected  # noqa: F401
import wrong_standard  # noqa: F401
from compiling import CompilingExample
from wrong_rules import WRONG, WrongRule

import relurules
from relurules.testing import CheckResult, check_backend
from relurules.testing._properties import LAWS
from relurules_example import _backend
from relurules_example.testing import ExampleCase


@pytest.fixture(params=[ExampleCase, CompilingExample], ids=["plain", "compiling"])
def case(request: pytest.FixtureRequest) -> ExampleCase:
    """The toy backend, asked of everything, and of as little as one that compiles is."""
    made: ExampleCase = request.param()
    return made


def run_with(
    monkeypatch: pytest.MonkeyPatch, mutant: WrongRule, check: str, case: ExampleCase
) -> list[CheckResult]:
    """Run one check with the wrong rule in place of the right one."""
    right = _backend.evaluate

    def evaluate(rule: Any, x: Any, g: Any, /, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return right(mutant(rule), x, g, **options)

    monkeypatch.setattr(_backend, "evaluate", evaluate)
    rules = (relurules.rule(mutant.rule),)
    only = functools.partial(_about, check, mutant)
    return [*check_backend(case, rules=rules, only=only, profile="ci", on_fail=None)]


def _about(check: str, mutant: WrongRule, check_id: str) -> bool:
    if "[" in check:
        return check_id == check
    name, _, on = check_id.partition("[")
    ranges_over_rules = not name.startswith("lucid")
    return name == check and (on.startswith(f"{mutant.rule}-") or not ranges_over_rules)


def test_there_are_enough() -> None:
    assert len(WRONG) >= 47


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_caught(
    name: str, case: ExampleCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = WRONG[name]
    results = run_with(monkeypatch, mutant, mutant.check, case)
    assert results, f"no check is called {mutant.check}"
    assert any(result.status == "failed" for result in results)


BREAKS = {
    "is_the_specification": "standard_lo_passes",
    "keeps_shape_and_dtype": "standard_flattens",
    "reads_only": "standard_works_in_place",
    "selects": "standard_of_absolute_g",
    "is_idempotent": "standard_flips_g",
    "scales": "deconv_has_a_threshold",
    "permutes_samples": "standard_blocks_the_first_sample",
    "permutes_features": "standard_blocks_by_position",
    "separates_samples": "redirected_over_the_whole_batch",
    "ignores_layout": "standard_runs_through_memory",
    "takes_any_batch_axis": "redirected_over_axis_0",
    "takes_one_sample": "redirected_over_axis_0",
    "guided_is_both": "guided_ties_pass",
    "guided_is_the_smaller": "guided_is_standard",
    "deconv_ignores_x": "deconv_looks_at_x",
    "deconv_splits": "deconv_loses_nan",
    "live_samples_are_gated": "redirected_ties_block",
    "never_pushes_out": "redirected_everything",
    "mirrors_at_3": "redirected_relu6_forgets_above",
}


@pytest.mark.parametrize("law", BREAKS)
def test_each_law_catches_a_rule_that_breaks_it(
    law: str, case: ExampleCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    (result,) = run_with(monkeypatch, WRONG[BREAKS[law]], f"law[{law}]", case)
    assert result.status == "failed"
    assert WRONG[BREAKS[law]].rule in result.message


def test_every_law_is_broken_by_one() -> None:
    assert {name for name, _ in LAWS} - set(BREAKS) == {"negates_for_the_other_sign"}
