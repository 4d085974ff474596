"""The colours say what the numbers are: sign, size, and where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relurules.pictures import magnitude, overlay, signed

MAPS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 3])),
    elements=st.floats(-1e30, 1e30),
)
IMAGE = np.random.default_rng(0).random((6, 5, 3))


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


@pytest.mark.parametrize("paint", [signed, magnitude, lambda m: overlay(m, m[..., :1] * 0 + 0.3)])
@given(values=MAPS)
def test_every_finite_map_has_colours(paint, values: np.ndarray) -> None:
    colours = paint(values)
    assert colours.shape == (*values.shape[:2], 3)
    assert colours.min() >= 0
    assert colours.max() <= 1


@given(values=MAPS)
def test_the_opposite_sign_is_the_complement(values: np.ndarray) -> None:
    np.testing.assert_allclose(signed(values), 1 - signed(-values), rtol=0, atol=1e-12)


def test_zero_is_mid_grey_black_or_the_photograph() -> None:
    nothing = np.zeros((6, 5, 3))
    assert np.array_equal(signed(nothing), np.full((6, 5, 3), 0.5))
    assert np.array_equal(magnitude(nothing), nothing)
    grey = overlay(nothing, IMAGE)
    assert np.array_equal(grey[..., 0], grey[..., 2])
    np.testing.assert_allclose(grey[..., 0], IMAGE @ [0.299, 0.587, 0.114])


def test_a_sign_is_a_colour_of_its_own() -> None:
    red, blue = np.zeros((1, 1, 3)), np.zeros((1, 1, 3))
    red[..., 0], blue[..., 2] = 2.0, -2.0
    assert signed(red)[0, 0].tolist() == [1.0, 0.5, 0.5]
    assert signed(blue)[0, 0].tolist() == [0.5, 0.5, 0.0]


def test_magnitude_sums_over_colours() -> None:
    values = np.array([[[1.0, -2.0, 3.0], [0.0, 3.0, 0.0]]])
    assert magnitude(values, percentile=100)[0].tolist() == [[1.0] * 3, [0.5] * 3]


def test_an_overlay_keeps_the_photograph_where_the_map_is_zero() -> None:
    values = np.zeros((6, 5, 1))
    values[2, 3] = 7.0
    bare, over = overlay(np.zeros((6, 5, 1)), IMAGE), overlay(values, IMAGE)
    changed = (bare != over).any(axis=-1)
    assert np.argwhere(changed).tolist() == [[2, 3]]
    assert over[2, 3].tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("paint", [signed, magnitude])
def test_scaling_ignores_outliers(paint) -> None:
    values = np.abs(_random(40, 40, 1))
    spoilt = values.copy()
    spoilt[0, 0] = 1e6
    np.testing.assert_allclose(paint(spoilt)[1:], paint(values)[1:], atol=0.03)
    assert paint(spoilt, percentile=100)[1:].std() < 1e-5 < paint(values)[1:].std()


def test_the_percentile_is_the_share_that_is_not_clipped() -> None:
    ramp = np.arange(1, 1001, dtype=float).reshape(20, 50, 1)
    for percentile in (50, 90, 99):
        full = (magnitude(ramp, percentile=percentile)[..., 0] == 1).mean()
        assert full == pytest.approx(1 - percentile / 100, abs=1e-3)


def test_the_scale_of_a_map_does_not_matter() -> None:
    values = _random(8, 8, 3)
    for paint in (signed, magnitude):
        np.testing.assert_allclose(paint(values * 1e-30), paint(values))


def test_a_map_that_is_nearly_all_zero_is_scaled_by_its_largest() -> None:
    values = np.zeros((100, 100, 1))
    values[0, :2, 0] = 1.0, 2.0
    assert magnitude(values)[0, :3, 0].tolist() == [0.5, 1.0, 0.0]


@pytest.mark.parametrize("percentile", [0, -1, 101, float("nan")])
def test_a_percentile_that_is_none(percentile: float) -> None:
    with pytest.raises(ValueError, match="above 0 and up to 100"):
        signed(np.ones((2, 2, 1)), percentile=percentile)
