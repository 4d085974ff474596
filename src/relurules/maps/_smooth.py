"""SmoothGrad: how the noise is drawn and how the maps under it are averaged.

Smilkov, Thorat, Kim, Viégas, Wattenberg: SmoothGrad: removing noise by adding noise (2017);
squared: Hooker, Erhan, Kindermans, Kim: A Benchmark for Interpretability Methods in Deep Neural
Networks (2019). A mean is kept, never the samples, so memory does not grow with their number.
All samples of a batch get the same noise, each scaled by its own range: an image's map is then
the same alone and in a batch, and maps of two images differ by the images alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from relurules.maps._call import ELEMENTS
from relurules.maps._target import Array

Average: TypeAlias = Literal["mean", "squared", "magnitude"]

AVERAGES: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "mean": lambda g: g,
        "squared": lambda g: np.square(g, dtype=np.float64),
        "magnitude": np.abs,
    }
)
"""What is averaged over the noise: the gradient, its square or its size."""

_SHARE = 4
"""A batch holds at most this part of the noise samples, for the sake of memory."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Gaussian noise on one input.

    Attributes:
        values: The input, axis 0 being samples.
        sigma: The standard deviation, or its share of each sample's range.
        relative: Which of the two.
        seed: Of the generator, and the input's position.
    """

    values: Array
    sigma: float
    relative: bool
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.sigma, Real) or not 0 <= self.sigma < math.inf:
            raise ValueError(f"sigma must be a finite number, 0 or more; got {self.sigma!r}.")
        if self.sigma and not np.isfinite(self.values).all():
            raise ValueError(
                "The input holds NaN or infinity, to which no noise can be added; replace them."
            )
        if self.relative and self.sigma and not self.scale.all():
            raise ValueError(
                "A sample is constant, so its range is 0 and so is a share of it: nothing would "
                "be averaged. Pass relative=False and an absolute sigma, or sigma=0 for this "
                "input."
            )

    @functools.cached_property
    def scale(self) -> Array:
        """The standard deviation for each sample, shaped to multiply one."""
        axes = tuple(range(1, self.values.ndim))
        if not self.relative:
            return np.full((1,) * self.values.ndim, self.sigma)
        spread: Array = np.ptp(self.values.astype(np.float64), axis=axes, keepdims=True)
        return self.sigma * spread

    def noisy(self, rows: slice, copies: slice) -> Array:
        """Return some of the samples under some of the noise, one copy after the other."""
        sample = self.values.shape[1:]
        drawn = np.empty((copies.stop - copies.start, *sample), np.float32)
        for place, copy in zip(drawn, range(copies.start, copies.stop), strict=True):
            generator = np.random.default_rng((*self.seed, copy))
            generator.standard_normal(out=place, dtype=np.float32)
        dtype = np.result_type(self.values.dtype, np.float32)
        scale = np.broadcast_to(self.scale.astype(dtype), self.values.shape)
        noisy: Array = drawn[:, None] * scale[rows]
        noisy += self.values[rows]
        return noisy.reshape(-1, *sample)


class Mean:
    """A running mean in float64, of rows that may be at different counts."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.value = np.zeros(shape)
        self._counts = np.zeros((shape[0],) + (1,) * (len(shape) - 1))

    def add(self, rows: slice, values: Array) -> None:
        """Take in more values of some rows, shape `(copies, rows, ...)`."""
        self._counts[rows] += len(values)
        total = values.sum(axis=0, dtype=np.float64)
        self.value[rows] += (total - len(values) * self.value[rows]) / self._counts[rows]


def copies_in_a_batch(smooth: int, elements: int) -> int:
    """Return how many copies of inputs of so many elements go through the model at once."""
    return max(1, min(smooth // _SHARE, ELEMENTS // max(1, elements)))
