"""Occlusion: how much a score falls when a part of the input is covered.

Zeiler, Fergus: Visualizing and Understanding Convolutional Networks (2014), section 4.2. It
asks for no gradient, so no rule is involved, and it is what a gradient's map can be held
against. Only a score for each position is kept; the map is drawn from them in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relurules._backend import Arrays
from relurules.maps._call import (
    ELEMENTS,
    Call,
    Caller,
    Progress,
    arrays_of,
    check_count,
    each,
    samples_of,
    spans,
)
from relurules.maps._target import Array, Scores, Target, part_of, scores_for, shape_of

Place: TypeAlias = tuple[slice, ...]

_INT = int | np.integer


def occlusion(
    model: Any,
    inputs: Any,
    target: Target = None,
    *,
    window: Sequence[int | None],
    stride: int | Sequence[int] = 1,
    baseline: Any = 0.0,
    batch_size: int | None = None,
    batched: bool = True,
    call: Call | None = None,
    progress: Progress = iter,
    backend: str | None = None,
) -> Any:
    """Return how much an output falls where a window covers the input.

    The window starts in the first corner and moves by `stride` until it has reached the end of
    each axis, beyond which it is cut off. An element's value is the mean, over the windows that
    covered it, of the score without a window minus the score with it: positive where the
    output rests on it.

    Args:
        model: A model of any framework with a backend, called without a gradient. Put it into
            evaluation mode yourself: in training mode dropout is drawn and batch norm learns.
        inputs: An array of the framework, axis 0 separating samples.
        target: Which output, as in `relurules.attribute`; a callable must return one score for
            each sample.
        window: How far the window reaches along each axis of a sample, None being all of it:
            `(None, 32, 32)` covers 32 x 32 pixels of all colours where colour is first.
        stride: How far it moves, for all axes or each; at most the window.
        baseline: What it covers with: a number, or an array that broadcasts to a sample.
        batch_size: How many covered samples go through the model at once; None finds it by the
            input's size.
        batched: False if the model takes one sample, without axis 0; `inputs` then has none.
        call: How to call the model, where it is not `model(inputs)`.
        progress: Wraps the list of batches to show how far it is, such as `tqdm.tqdm`.
        backend: A backend's name, where more than one could own the model.

    Returns:
        An array of the shape and dtype of `inputs`.

    Raises:
        IndexError: The target is out of range.
        ValueError: The window or stride does not fit the input.
        TypeError: The input is not of floating point, or the model returned no single array.
        UnsupportedModelError: The backend has no arrays.

    Example:
        >>> import torch, relurules
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
        >>> image = torch.ones(1, 1, 4, 4)
        >>> relurules.occlusion(net, image, 0, window=(None, 2, 2), stride=2).shape
        torch.Size([1, 1, 4, 4])
    """
    check_count("batch_size", batch_size, least=1)
    arrays = arrays_of(model, backend)
    x = inputs if batched else inputs[None]
    caller = Caller(model=model, arrays=arrays, batched=batched, call=call)
    samples = samples_of((x,))
    values = arrays.to_numpy(x)
    if values.dtype.kind != "f":
        raise TypeError(
            f"A map of fractions has no place in an input of {values.dtype}; pass floating point "
            "and convert in call=, such as lambda model, x: model(x.long())."
        )
    size = (batch_size if batched else 1) or max(1, ELEMENTS // max(1, values[0].size))
    work = _Work(
        values=values,
        places=_places(shape_of(x)[1:], window, stride),
        baseline=_cover(baseline, values.shape[1:], arrays),
        scores=scores_for(target, samples, arrays, lambda: caller.outputs((x,), size)),
        evaluate=lambda scores, rows: caller.evaluate(scores, arrays.from_numpy(rows, like=x)),
    )
    falls = work.falls(size, progress)
    found = arrays.from_numpy(_spread(falls, work.places, values.shape), like=x)
    return found if batched else found[0]


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What is to be covered, where, and how the model is asked for scores."""

    values: Array
    places: list[Place]
    baseline: Array
    scores: Scores
    evaluate: Callable[[Scores, Array], Array]

    def falls(self, size: int, progress: Progress) -> Array:
        """Return how far each sample's score falls at each place, `(places, samples)`."""
        after = np.empty((len(self.places), len(self.values)))
        for rows, part in each(progress, self._batches(size)):
            after[part, rows] = self._scores(self._covered(rows, part), rows)
        before = [self._scores(self.values[rows], rows) for rows in self._spans(size)]
        return np.concatenate(before, axis=1) - after

    def _batches(self, size: int) -> list[tuple[slice, slice]]:
        copies = max(1, size // len(self.values))
        parts = spans(len(self.places), copies)
        return [(rows, part) for rows in self._spans(size) for part in parts]

    def _spans(self, size: int) -> list[slice]:
        return spans(len(self.values), size)

    def _covered(self, rows: slice, part: slice) -> Array:
        """Return samples covered at each place, one place after the other."""
        places = self.places[part]
        copies = np.repeat(self.values[rows][None], len(places), axis=0)
        for copy, place in zip(copies, places, strict=True):
            copy[:, *place] = self.baseline[place]
        return copies.reshape(-1, *self.values.shape[1:])

    def _scores(self, values: Array, rows: slice) -> Array:
        """Return the scores of copies of some samples, `(copies, samples)`."""
        found = self.evaluate(part_of(self.scores, rows), values)
        return found.astype(np.float64).reshape(-1, rows.stop - rows.start)


def _cover(baseline: Any, shape: tuple[int, ...], arrays: Arrays) -> Array:
    """Return what a sample looks like where it is covered."""
    is_foreign = hasattr(baseline, "shape") and not isinstance(baseline, np.ndarray | np.generic)
    cover = arrays.to_numpy(baseline) if is_foreign else np.asarray(baseline)
    if cover.dtype.kind not in "fiu" or not np.isfinite(cover).all():
        raise ValueError(f"baseline must be finite real numbers; got {baseline!r}.")
    if cover.ndim > len(shape) or any(
        ours not in (1, theirs)
        for ours, theirs in zip(cover.shape[::-1], shape[::-1], strict=False)
    ):
        raise ValueError(
            f"baseline has shape {cover.shape}, which does not broadcast to a sample, {shape}."
        )
    return np.broadcast_to(cover, shape)


def _places(
    shape: tuple[int, ...], window: Sequence[int | None], stride: int | Sequence[int]
) -> list[Place]:
    """Return every place of the window, the last axis moving fastest."""
    strides = (int(stride),) * len(shape) if isinstance(stride, _INT) else tuple(stride)
    if isinstance(window, _INT) or not len(window) == len(strides) == len(shape):
        raise ValueError(
            f"window and stride need one number for each axis of a sample, whose shape is "
            f"{shape}; got window={window}, stride={strides}. None in window is all of "
            "an axis."
        )
    axes = zip(shape, window, strides, strict=True)
    return list(itertools.product(*(_along(*axis) for axis in axes)))


def _along(length: int, window: int | None, stride: int) -> list[slice]:
    if window is None:
        return [slice(0, length)]
    if not 1 <= stride <= window <= length:
        raise ValueError(
            f"Along an axis of {length} the window must be from 1 to {length}, and the stride "
            f"from 1 to the window, so that nothing stays uncovered; got window {window} and "
            f"stride {stride}."
        )
    starts = range(0, length - window + stride, stride)
    return [slice(start, min(start + window, length)) for start in starts]


def _spread(falls: Array, places: Sequence[Place], shape: tuple[int, ...]) -> Array:
    """Return for each element the mean fall of the windows that covered it."""
    total, times = np.zeros(shape), np.zeros(shape[1:])
    for fall, place in zip(falls, places, strict=True):
        total[:, *place] += fall.reshape(-1, *(1,) * len(place))
        times[place] += 1
    found: Array = total / times
    return found
