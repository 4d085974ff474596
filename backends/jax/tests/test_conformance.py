"""The conformance kit on JAX: the specification's bits, in every mode, at 500 examples a law."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

import relurules
from relurules.testing import Check, CompilingCase, find_case, parametrize_with_checks
from relurules.testing._trial import Trial, compare
from relurules.testing._values import mixed

PROGRAM = "/jax/core/compile/backend_compile_duration"


@parametrize_with_checks("jax", profile="ci")
def test_conformance(check: Check) -> None:
    check()


@contextmanager
def programs() -> Iterator[list[str]]:
    """Collect an item for each program that is compiled."""
    found: list[str] = []

    def note(event: str, seconds: float, **of: Any) -> None:
        if event == PROGRAM:
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "vmap"},
    {"bounds": (-0.1, 0.3)},
    {"gradient_of": "loss"},
    {"schedule": relurules.until(16), "step": 16},
    {"schedule": relurules.until(16), "step": 17},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rule", ["guided", "redirected"])
def test_the_same_trial_again_compiles_nothing(rule: str, options: dict[str, Any]) -> None:
    case = find_case("jax")
    for seed in range(3):
        x, g = mixed("float32", options.get("bounds", (0.0, np.inf)), seed, shape=(3, 7))
        with programs() as compiled:
            compare(case, Trial(rule=relurules.rule(rule), x=x, g=g, **options))
        assert not compiled or seed == 0


def test_one_axis_named_twice_is_one_program() -> None:
    case, (x, g) = find_case("jax"), mixed("float32", (0.0, np.inf), 0, shape=(3, 11))
    for axis, new in ((1, True), (-1, False)):
        with programs() as compiled:
            compare(case, Trial(rule=relurules.rule("redirected"), x=x, g=g, batch_axis=axis))
        assert bool(compiled) == new


def test_the_kit_knows_that_jax_compiles() -> None:
    assert isinstance(find_case("jax"), CompilingCase)
