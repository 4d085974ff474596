"""The parts of a map that need no framework: batches, noise, means, places, targets."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relurules
from relurules.maps._attribute import Options
from relurules.maps._call import spans
from relurules.maps._occlusion import _places, _spread
from relurules.maps._smooth import Mean, Noise, copies_in_a_batch
from relurules.maps._target import Picked, scores_for


class NumpyArrays:
    """What a framework's arrays would be, were NumPy a framework."""

    def to_numpy(self, array: Any) -> Any:
        return np.asarray(array)


def test_options_are_those_of_apply() -> None:
    """An argument that `apply` gains and a map does not would be missed by users."""
    own = {"model", "rule", "schedule", "gradient_of"}
    assert set(get_type_hints(Options)) == set(inspect.signature(relurules.apply).parameters) - own


@given(count=st.integers(1, 300), size=st.integers(1, 300))
def test_spans_cover_everything_once_in_two_lengths(count: int, size: int) -> None:
    found = spans(count, size)
    assert [i for span in found for i in range(count)[span]] == list(range(count))
    lengths = {span.stop - span.start for span in found}
    assert max(lengths) <= size
    assert len(lengths) <= 2
    assert len(found) == -(-count // size), "as few as can be"


@given(smooth=st.integers(1, 500), elements=st.integers(0, 10**8))
def test_noise_batches_hold_a_quarter_of_the_copies_at_most(smooth: int, elements: int) -> None:
    copies = copies_in_a_batch(smooth, elements)
    assert 1 <= copies <= max(1, smooth // 4)


def noise(values: Any, **options: Any) -> Noise:
    return Noise(**{"values": values, "sigma": 0.5, "relative": True, "seed": (7, 0), **options})


def test_noise_is_the_same_in_every_batch() -> None:
    values = np.random.default_rng(0).normal(size=(5, 2, 3))
    whole = noise(values).noisy(slice(0, 5), slice(0, 4)).reshape(4, 5, 2, 3)
    part = noise(values).noisy(slice(1, 3), slice(2, 4)).reshape(2, 2, 2, 3)
    assert np.array_equal(whole[2:4, 1:3], part)
    alone = noise(values[3:4]).noisy(slice(0, 1), slice(1, 2))
    assert np.array_equal(whole[1, 3:4], alone)


def test_noise_scales_with_each_samples_range() -> None:
    values = np.array([[0.0, 1.0], [-5.0, 5.0]])
    drawn = noise(values).noisy(slice(0, 2), slice(0, 1)) - values
    assert drawn[1] == pytest.approx(10 * drawn[0])
    absolute = noise(values, relative=False).noisy(slice(0, 2), slice(0, 1)) - values
    assert absolute[1] == pytest.approx(absolute[0])
    assert absolute[0] == pytest.approx(drawn[0])


def test_noise_differs_between_inputs_and_seeds() -> None:
    values = np.zeros((1, 8)) + np.arange(8)
    found = [
        noise(values, seed=seed).noisy(slice(0, 1), slice(0, 1))
        for seed in ((0, 0), (0, 1), (1, 0))
    ]
    assert all(not np.allclose(a, b) for a, b in ((found[0], found[1]), (found[0], found[2])))


def test_noise_leaves_a_half_precision_range_finite() -> None:
    values = np.array([[-60000.0, 60000.0]], np.float16)
    assert np.isfinite(noise(values).scale).all()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_running_mean_is_the_mean(sizes: list[int]) -> None:
    values = np.random.default_rng(1).normal(size=(sum(sizes), 3, 2))
    mean = Mean((3, 2))
    stops = np.cumsum(sizes)
    for stop, size in zip(stops, sizes, strict=True):  # rows in two parts, at their own pace
        mean.add(slice(0, 2), values[stop - size : stop, :2])
    mean.add(slice(2, 3), values[:, 2:])
    assert mean.value == pytest.approx(values.mean(axis=0), rel=1e-12, abs=1e-14)


def test_places_reach_the_end_of_every_axis() -> None:
    found = _places((3, 7, 5), (None, 3, 2), (1, 2, 2))
    rows = [slice(0, 3), slice(2, 5), slice(4, 7)]
    columns = [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert found == [(slice(0, 3), row, column) for row in rows for column in columns]


def test_fall_is_the_mean_over_the_windows_that_cover_an_element() -> None:
    places = _places((4,), (2,), 1)
    found = _spread(np.array([[1.0, 10], [2, 20], [6, 60]]), places, (2, 4))
    assert found.tolist() == [[1, 1.5, 4, 6], [10, 15, 40, 60]]


def outputs() -> Any:
    return np.array([[[0.0, 3, 1], [2, 2, 2]], [[5, 1, 1], [0, 0, 7]]])


TARGETS = {
    "one place": ((1, 2), [2, 7]),
    "negative": ((-1, -3), [2, 0]),
    "one for each": ([(0, 1), (0, 0)], [3, 5]),
    "array": (np.array([[0, 1], [1, 1]]), [3, 0]),
    "largest": (None, [3, 7]),
}


@pytest.mark.parametrize("name", TARGETS)
def test_target_picks(name: str) -> None:
    target, expected = TARGETS[name]
    scores = scores_for(target, 2, NumpyArrays(), outputs)  # type: ignore[arg-type]
    assert scores(outputs()).tolist() == expected
    copies = np.concatenate([outputs(), outputs() + 100])
    assert scores(copies).tolist() == [*expected, *(100 + x for x in expected)]
    assert isinstance(scores, Picked)
    assert scores.part(slice(1, 2))(outputs()[1:]).tolist() == expected[1:]


def test_output_that_is_one_number_needs_no_target() -> None:
    scores = scores_for(None, 3, NumpyArrays(), lambda: np.arange(3.0))  # type: ignore[arg-type]
    assert scores(np.arange(3.0)).tolist() == [0, 1, 2]


def test_target_of_another_rank_says_what_it_should_be() -> None:
    scores = scores_for(1, 2, NumpyArrays(), outputs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(2, 2, 3\).*a tuple of 2 indices; got \[1\]"):
        scores(outputs())


def test_backend_without_arrays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        name = "bare"

    monkeypatch.setattr("relurules._apply.backend_for", lambda *_: Bare())
    for ask in (
        lambda: relurules.attribute(object(), np.ones((1, 2)), 0),
        lambda: relurules.occlusion(object(), np.ones((1, 2)), 0, window=(1,)),
    ):
        with pytest.raises(relurules.UnsupportedModelError, match="'bare' offers no arrays"):
            ask()
