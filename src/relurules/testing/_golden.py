"""Lucid's own code, run once and recorded: where `redirected` comes from.

The specification and a backend could share a mistake. Lucid cannot share it: these 304 inputs
were run through its published source. The rows on which relurules differs on purpose (exact
liveness, IEEE subnormals) are listed with the reason in the second file; there the
specification decides. Lucid treats each sample alone, so all samples of a dtype are one batch.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources

import numpy as np

import relurules
from relurules._schedule import until
from relurules.testing._bits import Array, assert_same
from relurules.testing._check import Setting
from relurules.testing._extra import dtype_of
from relurules.testing._trial import Trial, expected, run
from relurules.testing._values import RELU, RELU6, Pair

OPS = (
    ("relu", (relurules.rule("redirected"), RELU)),
    ("relu6", (relurules.rule("redirected_relu6"), RELU6)),
)
_DTYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_STEPS = {"early": (0, 16), "late": (17,)}


def lucid_golden(at: Setting) -> int:
    """Compare with what Lucid's code gave, at the first and last step of its schedule and after."""
    rule, bounds = at.part
    inputs = _inputs("relu" if bounds == RELU else "relu6", at.dtype)
    x, g = (_one_batch(arrays) for arrays in zip(*inputs.values(), strict=True))
    count = 0
    for phase, step in _phases():
        trial = Trial(rule=rule, x=x, g=g, bounds=bounds, schedule=until(16), step=step)
        rows = iter(run(at.case, trial)[1])
        for key, pair in inputs.items():
            one = replace(trial, x=pair[0], g=pair[1])
            count += _compare(_from(rows, one.x), key, phase, one)
    return count


def _inputs(op: str, dtype: str) -> dict[str, Pair]:
    prefix = f"{op}/{_DTYPES[dtype]}/"
    keys = sorted({key.rpartition("/")[0] for key in recorded() if key.startswith(prefix)})
    return {key: (_load(key, "x", dtype), _load(key, "g", dtype)) for key in keys}


def _one_batch(arrays: Sequence[Array]) -> Array:
    """Return the samples of all arrays as rows, filled up with zeros, which wake no sample."""
    width = max(math.prod(a.shape[1:]) for a in arrays)
    rows = np.zeros((sum(map(len, arrays)), width), arrays[0].dtype)
    filled = iter(rows)
    for sample in (sample for a in arrays for sample in a):
        next(filled)[: sample.size] = sample.reshape(-1)
    return rows


def _from(rows: Iterator[Array], like: Array) -> Array:
    """Return as many of the next rows as `like` has samples, in its shape."""
    size = math.prod(like.shape[1:])
    found = [row[:size] for row in itertools.islice(rows, len(like))]
    return np.stack(found).reshape(like.shape) if found else np.empty_like(like)


def _compare(dx: Array, key: str, phase: str, trial: Trial) -> int:
    what = f"{trial}, against Lucid's {key}"
    return assert_same(dx, _right(key, phase, trial), x=trial.x, g=trial.g, what=what)


def _phases() -> Iterator[tuple[str, int]]:
    return ((phase, step) for phase, steps in _STEPS.items() for step in steps)


def _right(key: str, phase: str, trial: Trial) -> Array:
    right = _load(key, f"y_{phase}", trial.x.dtype.name)
    listed = differences().get(key, {}).get(phase, {})
    rows = [row for rows in listed.values() for row in rows]
    right[rows] = expected(trial)[rows]
    return right


def _load(key: str, field: str, dtype: str) -> Array:
    return recorded()[f"{key}/{field}"].view(dtype_of(dtype)).copy()


@functools.cache
def recorded() -> dict[str, Array]:
    """Return every recorded array; bfloat16 is kept as its bit patterns."""
    data = resources.files("relurules.testing") / "data" / "lucid_golden.npz"
    with data.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


@functools.cache
def differences() -> dict[str, dict[str, dict[str, list[int]]]]:
    """Return key -> phase -> reason -> the rows that differ from Lucid for it."""
    data = resources.files("relurules.testing") / "data" / "lucid_differences.json"
    found: dict[str, dict[str, dict[str, list[int]]]] = json.loads(data.read_text("utf-8"))
    return found
