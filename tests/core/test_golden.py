"""The specification against what Lucid's own code returned.

`redirected` claims to be Lucid's rule but for two things: a sample is live if anything
nonzero passes, where Lucid asks whether the norm of what passes is above 0, and subnormals
are numbers, where TensorFlow flushes them to zero. The claim is worth something only if no
third thing hides behind these, so every row that differs is listed in
`lucid_differences.json` with its cause, and the cause is established here from the
numbers of that row.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from oracle import DTYPES, RELU, RELU6, Array, Bounds

import relurules
from relurules import spec

SHIPPED = Path(relurules.__file__).parent / "testing" / "data"
LUCID = json.loads((Path(__file__).parent / "data" / "lucid_golden.json").read_text())
DIFFERENCES = json.loads((SHIPPED / "lucid_differences.json").read_text())
CASES = {case["key"]: case for case in LUCID["cases"]}

SPEC = {"relu": spec.redirected, "relu6": spec.redirected_relu6}
BOUNDS = {"relu": RELU, "relu6": RELU6}
NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
STEPS = {"early": (0, 1, 15, 16), "late": (17, 100)}
RANKS_LUCID_REFUSES = [(), (1,), (4,)]


@functools.cache
def recorded() -> dict[str, Array]:
    with np.load(SHIPPED / "lucid_golden.npz") as file:
        return dict(file)


def load(key: str, field: str) -> Array:
    dtype = DTYPES[NAMES[CASES[key]["dtype"]]]
    return recorded()[f"{key}/{field}"].view(dtype)


def differing_rows(key: str, phase: str, step: int) -> list[int]:
    out = SPEC[CASES[key]["op"]](load(key, "x"), load(key, "g"), step)
    lucid = load(key, f"y_{phase}")
    assert (out.shape, out.dtype) == (lucid.shape, lucid.dtype)
    equal = oracle.matches(out, lucid)
    return [row for row in range(len(out)) if not np.all(equal[row])]


# --- Why a row differs ---------------------------------------------------------------------


def cause(key: str, row: int, phase: str) -> str:
    """Return why Lucid's result may differ from the definition on this row."""
    x, g = load(key, "x")[row].ravel(), load(key, "g")[row].ravel()
    passed = g[~oracle.outside(x, BOUNDS[CASES[key]["op"]])]
    if phase == "early" and np.any(oracle.is_nan(passed)):
        return "norm is NaN"
    if phase == "early" and np.any(oracle.order(passed)) and all(map(square_is_lost, passed)):
        return "norm underflow"
    flagged = recorded()[f"{key}/row_denormal"][row]
    if flagged and flushes(g.dtype) and any(map(is_subnormal, [*x, *g])):
        return "subnormal"
    return "none"


def square_is_lost(value: Any) -> bool:
    """Return whether value**2, as TensorFlow computes it, is 0."""
    square = oracle.rounded(float(value) * float(value), value.dtype)
    return square < (oracle.smallest_normal(value.dtype) if flushes(value.dtype) else math.ulp(0))


def is_subnormal(value: Any) -> bool:
    return 0 < abs(float(value)) < oracle.smallest_normal(value.dtype)


def flushes(dtype: np.dtype[Any]) -> bool:
    """Return whether TensorFlow flushes subnormals of this dtype; float16 it does not."""
    return dtype != np.float16


def lucid_keeps(x: Array, g: Array, bounds: Bounds, phase: str) -> list[bool]:
    """Return which elements of a sample Lucid's code keeps: subnormals flushed, a norm."""
    pairs = [(flushed(a), flushed(b)) for a, b in zip(x, g, strict=True)]
    lo, hi = bounds
    gate = [not (a < lo or a > hi) for a, _ in pairs]
    norm = sum(0.0 if square_is_lost(b) else float(b) * float(b) for b in g[gate])
    if phase == "late" or norm > 0:
        return gate
    return [not ((a < lo and b > 0) or (a > hi and b < 0)) for a, b in pairs]


def flushed(value: Any) -> float:
    return 0.0 if flushes(value.dtype) and is_subnormal(value) else float(value)


# --- Tests ---------------------------------------------------------------------------------


def test_all_cases_are_here() -> None:
    assert len(CASES) == 304
    assert set(DIFFERENCES) <= set(CASES)
    assert [*STEPS["early"], *STEPS["late"]] == LUCID["steps"]


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize("key", CASES)
def test_equals_lucid_but_for_the_listed_rows(key: str, phase: str) -> None:
    listed = DIFFERENCES.get(key, {}).get(phase, {})
    rows = sorted(row for rows in listed.values() for row in rows)
    for step in STEPS[phase]:
        assert differing_rows(key, phase, step) == rows


@pytest.mark.parametrize("key", DIFFERENCES)
def test_listed_rows_differ_for_the_cause_given(key: str) -> None:
    for phase, listed in DIFFERENCES[key].items():
        for reason, rows in listed.items():
            assert {cause(key, row, phase) for row in rows} == {reason}


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize("key", CASES)
def test_the_two_differences_explain_every_bit(key: str, phase: str) -> None:
    x, g, lucid = load(key, "x"), load(key, "g"), load(key, f"y_{phase}")
    port = np.empty_like(g)
    for row in range(len(x)):
        kept = lucid_keeps(x[row].ravel(), g[row].ravel(), BOUNDS[CASES[key]["op"]], phase)
        port[row] = np.where(np.reshape(kept, g[row].shape), g[row], np.zeros_like(g[row]))
    assert oracle.same(port, lucid)


@pytest.mark.parametrize("step", [0, 17])
@pytest.mark.parametrize("shape", RANKS_LUCID_REFUSES)
@pytest.mark.parametrize("op", SPEC)
def test_refuses_what_lucid_refuses(op: str, shape: tuple[int, ...], step: int) -> None:
    with pytest.raises(ValueError, match="rank"):
        SPEC[op](np.ones(shape), np.ones(shape), step)
