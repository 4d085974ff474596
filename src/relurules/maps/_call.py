"""How a map calls a model: once, in batches, with or without a sample axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from relurules import _apply
from relurules._backend import Arrays
from relurules.errors import UnsupportedModelError
from relurules.maps._target import Array, Picked, Scores, shape_of

T = TypeVar("T")

Call: TypeAlias = Callable[..., Any]
Progress: TypeAlias = Callable[[Sequence[Any]], Iterable[Any]]
Inputs: TypeAlias = tuple[Any, ...]

ELEMENTS = 2**20
"""So many numbers in a batch keep two cores busy and leave the caches of neither."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Calls a model on inputs whose axis 0 is samples, whether or not the model has that axis.

    Attributes:
        model: The model.
        arrays: The framework's arrays.
        batched: Whether the model itself takes that axis; else it gets one sample.
        call: How to call the model, or None for `model(*inputs)`.
    """

    model: Any
    arrays: Arrays
    batched: bool
    call: Call | None

    def scores(self, scores: Scores, *inputs: Any) -> Any:
        """Return one score for each sample."""
        outputs, rows = self._outputs(*inputs), len(inputs[0])
        if isinstance(scores, Picked):
            return scores(self._with_samples(outputs, rows))
        found = scores(outputs)
        return _checked(found if self.batched else found[None], rows)

    def evaluate(self, scores: Scores, *inputs: Any) -> Array:
        """Return one score for each sample as numbers, taken without a gradient."""
        found = self.arrays.evaluate(lambda *xs: self.scores(scores, *xs), inputs)
        return self.arrays.to_numpy(found)

    def outputs(self, inputs: Inputs, size: int) -> Array:
        """Return the model's outputs as numbers, of at most `size` samples at once."""
        found = []
        for rows in spans(samples_of(inputs), size):
            part = tuple(x[rows] for x in inputs)
            outputs = self.arrays.evaluate(self._outputs, part)
            found.append(self.arrays.to_numpy(self._with_samples(outputs, len(part[0]))))
        return np.concatenate(found)

    def _outputs(self, *inputs: Any) -> Any:
        inputs = inputs if self.batched else tuple(x[0] for x in inputs)
        return self.call(self.model, *inputs) if self.call else self.model(*inputs)

    def _with_samples(self, outputs: Any, rows: int) -> Any:
        shape = shape_of(outputs)
        if not self.batched:
            return outputs[None]
        if shape[:1] != (rows,):
            raise ValueError(
                f"The model gave outputs of shape {shape} for {rows} samples; axis 0 must "
                "separate the samples. Pass call=, such as lambda model, x: "
                "model(x).reshape(len(x), -1), or batched=False where the model takes one sample."
            )
        return outputs


def arrays_of(model: Any, name: str | None) -> Arrays:
    """Return the arrays of the backend of this model.

    Raises:
        UnsupportedModelError: The backend has none, or there is no backend.
    """
    backend = _apply.backend_for(model, name)
    arrays = getattr(backend, "arrays", None)
    if arrays is None:
        raise UnsupportedModelError(
            f"The backend {backend.name!r} offers no arrays (relurules.backend.Arrays), which "
            "maps need; differentiate with the framework's own tools under relurules.apply."
        )
    return cast(Arrays, arrays)


def samples_of(inputs: Inputs) -> int:
    """Return how many samples the inputs hold.

    Raises:
        TypeError: One is no array.
        ValueError: They have no samples, or not the same number.
    """
    for x in inputs:
        if not hasattr(x, "shape"):
            raise TypeError(
                f"Each input is an array of the model's framework, several in a tuple; got a "
                f"{type(x).__name__}."
            )
    shapes = [tuple(x.shape) for x in inputs]
    sizes = {shape[0] if shape else 0 for shape in shapes}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"Axis 0 of each input separates samples, one at least; got shapes {shapes}. Where "
            "the model takes a single sample, pass batched=False."
        )
    return int(sizes.pop())


def spans(count: int, size: int) -> list[slice]:
    """Cut `count` things into parts of at most `size`, as even as can be.

    Even parts have at most two lengths, so that a compiled model is compiled twice at most.

    >>> spans(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    parts = -(-count // size)
    short, longer = divmod(count, parts)
    stops = [short * (i + 1) + min(i + 1, longer) for i in range(parts)]
    return [slice(stop - short - (i < longer), stop) for i, stop in enumerate(stops)]


def _checked(scores: Any, rows: int) -> Any:
    shape = shape_of(scores)
    if shape != (rows,):
        raise ValueError(
            f"The target gave scores of shape {shape} for {rows} samples; one number for each "
            "sample was expected, such as lambda scores: scores[:, 3]. Samples may come in parts, "
            "or several times over, so a target must work on any number of rows."
        )
    return scores


def each(progress: Progress, batches: Sequence[T]) -> Iterator[T]:
    """Yield the batches as `progress` does, which must leave none out.

    Raises:
        RuntimeError: It left some out, so that a map of the others would be wrong.
    """
    seen = 0
    for seen, batch in enumerate(progress(batches), start=1):  # noqa: B007 - used below
        yield batch
    if seen != len(batches):
        raise RuntimeError(
            f"progress= gave {seen} of {len(batches)} batches; it must return them all, as "
            "tqdm.tqdm does."
        )


def check_count(name: str, value: int | None, *, least: int) -> None:
    """Raise unless `value` is None or an int of at least `least`."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int; got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be {least} or more; got {value}.")
