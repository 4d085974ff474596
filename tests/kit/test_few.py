"""What a backend that compiles for each shape is asked: fewer programs, and nothing left out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiling import CompilingExample

import relurules
from relurules.testing import CompilingCase, backend_checks, check_backend
from relurules.testing import _numbers as numbers
from relurules.testing._catalogue import PROFILES
from relurules.testing._check import Setting
from relurules.testing._draws import SHAPES, search
from relurules.testing._few import few
from relurules.testing._trial import Trial
from relurules.testing._values import BOUNDS, SIZES
from relurules_example.testing import ExampleCase


def test_what_compiles_says_so() -> None:
    assert isinstance(CompilingExample(), CompilingCase)
    assert not isinstance(ExampleCase(), CompilingCase)


def test_all_options_where_nothing_is_compiled() -> None:
    assert few(SIZES, ExampleCase(), 3, 1) == SIZES


@pytest.mark.parametrize("options", [SIZES, SHAPES, BOUNDS, (1, 2), (1,)], ids=len)
def test_every_option_meets_every_rule_and_every_dtype(options: tuple[Any, ...]) -> None:
    rules, dtypes, case = range(7), range(4), CompilingExample()
    for rule in rules:
        assert {o for d in dtypes for o in few(options, case, rule, d)} == set(options)
    for dtype in dtypes:
        assert {o for r in rules for o in few(options, case, r, dtype)} == set(options)
    assert {o for seed in range(4) for o in few(options, case, 5, 2, seed)} == set(options)


@pytest.mark.parametrize("draws", [1, 2, 20, 50])
def test_draws_are_as_many_and_of_few_kinds(draws: int) -> None:
    profile = replace(PROFILES["default"], draws=draws)
    rules = tuple(map(relurules.rule, ("standard", "redirected")))
    at = Setting(case=CompilingExample(), profile=profile, rules=rules, rule=rules[1])
    trials = list(numbers._draws(at))
    kinds = {(t.bounds, t.batch_axis, t.gradient_of, t.step) for t in trials}
    assert len(trials) == draws
    assert len(kinds) <= 5
    assert len({t.x.tobytes() for t in trials}) == draws


def test_laws_are_searched_at_two_shapes_for_each_program() -> None:
    seen: dict[Any, set[tuple[int, ...]]] = {}

    def holds(draw: Any) -> None:
        key = draw.x.dtype, draw.bounds
        seen.setdefault(key, set()).add(draw.x.shape)

    rules = tuple(map(relurules.rule, ("standard", "guided")))
    search(holds, CompilingExample(), rules, PROFILES["ci"])
    assert max(map(len, seen.values())) == 2
    assert set(itertools.chain(*seen.values())) == set(SHAPES)


def test_the_models_value_is_asked_for_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    x, asked = np.array([[-1.0, 2.0]], np.float32), []

    def value(self: Any, fn: Any, x: Any) -> Any:
        asked.append(fn)
        return np.maximum(x, 0)

    monkeypatch.setattr(CompilingExample, "value", value)
    trial = Trial(rule=relurules.rule("guided"), x=x, g=x)
    assert numbers.compare(CompilingExample(), trial) == 2
    assert len(asked) == 1


def test_the_right_backend_passes() -> None:
    only = {"sizes", "empty_arrays", "special_grid", "mixed_draws", "memory_layouts"}
    results = check_backend(CompilingExample(), only=lambda one: one.partition("[")[0] in only)
    assert {result.status for result in results} == {"passed"}
    names = [check.id for check in backend_checks("example")]
    assert [check.id for check in backend_checks(CompilingExample())] == names
