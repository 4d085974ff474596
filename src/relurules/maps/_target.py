"""Which output a map explains: from what a user writes to one score for each sample.

A target out of range is an error here and not the framework's affair: JAX clips such an index
and would explain another class without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relurules._backend import Arrays

Array: TypeAlias = np.ndarray[Any, Any]
Target: TypeAlias = int | tuple[int, ...] | Sequence[Any] | Callable[[Any], Any] | Any | None
Scores: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Picked:
    """One output of each sample, by index.

    Attributes:
        index: Integers of shape `(samples, rank of a sample's output)`.
    """

    index: Array

    def __call__(self, outputs: Any) -> Any:
        """Return the scores of one or more copies of the samples, one copy after the other."""
        shape = shape_of(outputs)
        self._check(shape)
        copies = shape[0] // len(self.index)
        columns = np.tile(self.index, (copies, 1)).T
        return outputs[(np.arange(shape[0]), *columns)]

    def part(self, rows: slice) -> Picked:
        """Return the targets of some of the samples."""
        return Picked(self.index[rows])

    def _check(self, shape: tuple[int, ...]) -> None:
        if self.index.shape[1] != len(shape) - 1:
            raise ValueError(
                f"The model gives outputs of shape {shape}, one sample a row, so a target is "
                f"{_described(len(shape) - 1)}; got {self.index[0].tolist()}. Or pass a "
                "callable that takes the outputs and returns one score for each sample."
            )
        if shape[0] % len(self.index):
            raise ValueError(f"There are {len(self.index)} targets for {shape[0]} outputs.")
        sizes = np.asarray(shape[1:], int)
        bad = ((self.index < -sizes) | (self.index >= sizes)).any(axis=1)
        if bad.any():
            raise IndexError(
                f"The target {self.index[bad][0].tolist()} is out of range: each sample has "
                f"outputs of shape {shape[1:]}."
            )


def scores_for(
    target: Target, samples: int, arrays: Arrays, outputs: Callable[[], Array]
) -> Scores:
    """Return the function from the model's outputs to one score for each sample.

    Args:
        target: What the user wrote.
        samples: How many samples there are.
        arrays: The framework's arrays.
        outputs: Runs the model without a gradient; asked only for the largest output.

    Raises:
        ValueError: As many targets as samples were expected, or an output is NaN.
        TypeError: The target is none of the kinds.
    """
    if callable(target):
        return target
    index = _largest(outputs()) if target is None else _indices(target, arrays)
    if index.ndim == 1:  # one target for all
        index = np.tile(index, (samples, 1))
    if len(index) != samples:
        what = "outputs" if target is None else "targets"
        raise ValueError(f"There are {len(index)} {what} for {samples} samples.")
    return Picked(index)


def part_of(scores: Scores, rows: slice) -> Scores:
    """Return the same for some of the samples."""
    return scores.part(rows) if isinstance(scores, Picked) else scores


def shape_of(outputs: Any) -> tuple[int, ...]:
    """Return the shape of the model's outputs, which must be one array.

    Raises:
        TypeError: They are a tuple, a mapping, or another structure.
    """
    shape = getattr(outputs, "shape", None)
    if shape is None:
        raise TypeError(
            f"The model returned a {type(outputs).__name__}, not one array. Pass call=, such as "
            "lambda model, x: model(x)[0], or a callable target, to say which output is meant."
        )
    return tuple(shape)


def _largest(outputs: Array) -> Array:
    flat = outputs.reshape(len(outputs), -1)
    if np.isnan(flat).any():
        raise ValueError("The model's outputs hold NaN, so none is the largest; pass a target.")
    index = np.unravel_index(flat.argmax(axis=1), outputs.shape[1:] or (1,))
    return np.stack(index, axis=1)[:, : outputs.ndim - 1]


def _indices(target: Any, arrays: Arrays) -> Array:
    """Return `(rank,)` for one target for all samples, `(samples, rank)` for one for each."""
    if isinstance(target, tuple):
        return _integers(target).reshape(-1)
    if hasattr(target, "shape") and not isinstance(target, np.ndarray | np.generic):
        target = arrays.to_numpy(target)
    index = _integers(target)
    return index.reshape(1) if index.ndim == 0 else np.atleast_2d(index.T).T


def _integers(target: Any) -> Array:
    index = np.asarray(target, np.int64 if isinstance(target, tuple) and not target else None)
    if index.dtype.kind not in "iu" or index.ndim > 2:
        raise TypeError(
            "target must be an index, a tuple of indices, one of these for each sample, a "
            f"callable, or None for the largest output; got {target!r}."
        )
    return index.astype(np.int64)


def _described(rank: int) -> str:
    return {0: "an empty tuple or None", 1: "one index"}.get(rank, f"a tuple of {rank} indices")
