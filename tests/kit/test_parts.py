"""What the kit itself rests on: its comparisons, its values, its guard, its messages."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relurules import spec
from relurules.testing import SubnormalsFlushedError, assert_ieee, check_backend
from relurules.testing import _guard as guard
from relurules.testing._bits import assert_same, is_nan, magnitude, matches, negated, order
from relurules.testing._case import find_case
from relurules.testing._catalogue import PROFILES, find_profile
from relurules.testing._draws import Draw, search
from relurules.testing._extra import dtype_of, require
from relurules.testing._golden import differences, recorded
from relurules.testing._values import BOUNDS, deadened, grid, mixed, specials, sweep

F32 = np.float32


def compare(actual: object, expected: object, **options: int) -> int:
    one = np.ones(2, F32)
    return assert_same(actual, np.asarray(expected, F32), x=one, g=one, what="it", **options)


# --- Comparing -------------------------------------------------------------------------------


def test_equal_bits() -> None:
    values = np.array([0.0, -0.0, math.inf, 1e-45, math.nan], F32)
    assert assert_same(values, values.copy(), x=values, g=values, what="it") == 5


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (0.0, -0.0),
        (1.0, np.nextafter(F32(1), F32(2))),
        (0.0, 1e-45),
        (math.nan, 0.0),
        (0.0, math.nan),
        (math.inf, np.finfo(F32).max),
        (1.0, -1.0),
    ],
)
def test_different_bits(actual: float, expected: float) -> None:
    with pytest.raises(AssertionError, match=r"^it: 1 of 2 differ; the first, at index \(1,\)"):
        compare(np.array([1, actual], F32), [1, expected])


def test_the_message_shows_bits() -> None:
    with pytest.raises(AssertionError, match=r"expected -0.0 \(0x80000000\), got 0.0 \(0x0{8}\)"):
        compare(np.zeros(2, F32), [0.0, -0.0])


@pytest.mark.parametrize(
    ("actual", "told"),
    [
        (np.ones(2), "float64 of shape"),
        (np.ones((1, 2), F32), r"float32 of shape \(1, 2\)"),
        ([1.0, 1.0], "got list"),
        (None, "got NoneType"),
    ],
)
def test_shape_dtype_and_type_count(actual: object, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        compare(actual, [1, 1])


def test_ulps() -> None:
    up = np.nextafter(F32(1), F32(2))
    assert compare(np.array([up, 1], F32), [1, 1], ulps=1) == 2
    assert compare(np.array([0.0, -1e-45], F32), [-0.0, 0.0], ulps=1) == 2
    for far in (np.nextafter(up, F32(2)), math.nan, -1.0):
        with pytest.raises(AssertionError):
            compare(np.array([far, 1], F32), [1, 1], ulps=1)


@pytest.mark.parametrize("dtype", spec.DTYPES)
def test_bits_agree_with_floats(dtype: str) -> None:
    values = specials(dtype)
    with np.errstate(invalid="ignore"):
        exact = values.astype(np.float64)
    assert np.array_equal(is_nan(values), np.isnan(exact))
    assert matches(negated(negated(values)), values).all()
    assert not (magnitude(negated(values)) - magnitude(values)).any()
    finite = ~np.isnan(exact)
    a, b = np.meshgrid(values[finite], values[finite])
    below = a.astype(np.float64) < b.astype(np.float64)
    assert np.array_equal(order(a) < order(b), below)


# --- Values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", spec.DTYPES)
def test_the_special_values_are_special(dtype: str) -> None:
    exact = {float(value) for value in specials(dtype)}
    edges = {float(np.asarray(bound, dtype_of(dtype))) for bounds in BOUNDS for bound in bounds}
    assert edges <= exact
    assert {6.0, -6.0, -1.0, math.inf, -math.inf} <= exact
    assert any(math.isnan(value) for value in exact)
    tiny = sorted(value for value in exact if 0 < value < 1)[:3]
    assert tiny[0] / 2 == 0 or np.asarray(tiny[0] / 2, dtype_of(dtype)) == 0
    signs = {math.copysign(1, float(v)) for v in specials(dtype) if float(v) == 0}
    assert signs == {1, -1}


def test_the_grid_holds_every_pair_beside_every_neighbour() -> None:
    x, g = grid("float16")
    count = len(specials("float16")) ** 2
    assert x.shape == g.shape == (4 * count, 3)
    pairs = {(a, b) for a, b in zip(x[:, 0].view("u2"), g[:, 0].view("u2"), strict=True)}
    assert len(pairs) == count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_sweep_holds_every_pattern_beside_each_special_value(dtype: str) -> None:
    x, g = (a.view("u2").astype(np.uint32) for a in sweep(dtype))
    pairs, one_way = np.unique((x << 16) | g), (1 << 16) * len(specials(dtype))
    assert len(x) == 2 * one_way
    assert len(pairs) == 2 * one_way - len(specials(dtype)) ** 2


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_half_of_each_draw_is_dead(bounds: tuple[float, float]) -> None:
    for seed in range(6):
        x, g = mixed("float32", bounds, seed)
        dead = (x < F32(bounds[0])) | (x > F32(bounds[1]))
        assert dead.reshape(len(x), -1).all(axis=1)[seed % 2 :: 2].all()
        assert x.dtype == g.dtype == F32
    assert not ((deadened(x, bounds) >= bounds[0]) & (deadened(x, bounds) <= bounds[1])).any()


def test_lucids_record_is_complete() -> None:
    keys = {key.rpartition("/")[0] for key in recorded() if "/" in key}
    assert len(keys) == 304
    assert set(differences()) < keys


def test_searches_differ_from_law_to_law_and_not_from_run_to_run() -> None:
    def of(name: str) -> list[str]:
        seen: list[str] = []

        def holds(draw: Draw) -> None:
            seen.append(repr(draw))

        holds.__name__ = name
        search(holds, find_case("example"), spec._library.BUILTIN, PROFILES["default"])
        return seen

    assert of("one") == of("one") != of("other")
    assert len(of("one")) >= 100


def test_ci_searches_500_and_nightly_5000() -> None:
    examples = {name: (one.examples, one.seed) for name, one in PROFILES.items()}
    assert examples == {"default": (100, 0), "ci": (500, 0), "nightly": (5000, None)}
    assert find_profile("ci") == PROFILES["ci"]
    assert find_profile("nightly").seed != find_profile("nightly").seed


# --- Refusing --------------------------------------------------------------------------------


def test_this_process_is_ieee() -> None:
    assert guard.lost_subnormals() == []
    assert_ieee()


@pytest.mark.parametrize(
    ("loaded", "told"),
    [
        ("gevent", "gevent is known to ship"),
        ("torch", "set_flush_denormal"),
        ("", "Some imported library"),
    ],
)
def test_a_process_that_flushes_is_refused(
    loaded: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "lost_subnormals", lambda: ["np.float32(1e-45) > 0"])
    for name in ("torch", *guard._FAST_MATH):
        monkeypatch.delitem(guard.sys.modules, name, raising=False)
    if loaded:
        monkeypatch.setitem(guard.sys.modules, loaded, guard)
    with pytest.raises(SubnormalsFlushedError, match=told):
        check_backend("example", only=lambda one: one == "pausing")


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ImportError, match=r"needs no_such.*pip install 'relurules\[test\]'"):
        require("no_such.module")
