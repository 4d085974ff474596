"""How the numbers of a map become colours: three ways, on NumPy arrays alone.

A few pixels hold values far above the rest, so a map is scaled by a percentile of its sizes
and not by its largest: at the largest a guided map is an even grey, and the eyes in it are
lost. Maps of different rules differ in scale by orders of magnitude, so each has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_SIGNED = 99.5
_MAGNITUDE = 99.0

# How bright red, green and blue seem (ITU-R BT.601).
_LUMA = np.array([0.299, 0.587, 0.114])


def signed(values: Any, *, percentile: float = _SIGNED) -> Array:
    """Return colours that keep the sign: 0 is mid grey, the largest are full or none.

    Args:
        values: Shape `(height, width, 1 or 3)`, finite.
        percentile: The share of the sizes, in percent, that is not clipped.

    Returns:
        Shape `(height, width, 3)`, float64 in [0, 1]. The colours of `-values` are the
        complements of those of `values`.

    Raises:
        ValueError: The percentile is not above 0 and up to 100.

    Example:
        >>> from relurules.pictures import signed
        >>> signed([[[-2.0], [0.0], [2.0]]], percentile=100)[0, :, 0].tolist()
        [0.0, 0.5, 1.0]
    """
    values = np.asarray(values, np.float64)
    shares = np.clip(values / _scale(np.abs(values), percentile), -1, 1)
    return _three(0.5 + 0.5 * shares)


def magnitude(values: Any, *, percentile: float = _MAGNITUDE) -> Array:
    """Return greys that tell how much each pixel matters: the sizes summed over colours.

    Args:
        values: Shape `(height, width, 1 or 3)`, finite.
        percentile: The share of the pixels, in percent, that is not clipped.

    Returns:
        Shape `(height, width, 3)`, float64 in [0, 1]; 0 is black.

    Raises:
        ValueError: The percentile is not above 0 and up to 100.

    Example:
        >>> from relurules.pictures import magnitude
        >>> magnitude([[[-2.0], [0.0], [1.0]]], percentile=100)[0, :, 0].tolist()
        [1.0, 0.0, 0.5]
    """
    return _three(_heights(values, percentile)[:, :, None])


def overlay(values: Any, image: Any, *, percentile: float = _MAGNITUDE) -> Array:
    """Return the magnitude as heat over the greyed photograph.

    Args:
        values: Shape `(height, width, 1 or 3)`, finite.
        image: The photograph, shape `(height, width, 1 or 3)`, in [0, 1].
        percentile: The share of the pixels, in percent, that is not clipped.

    Returns:
        Shape `(height, width, 3)`, float64 in [0, 1]: the grey photograph where the map is 0,
        from there over red to yellow where it is largest.

    Raises:
        ValueError: The percentile is not above 0 and up to 100.

    Example:
        >>> from relurules.pictures import overlay
        >>> overlay([[[0.0], [1.0]]], [[[0.5], [0.5]]], percentile=100)[0].round(6).tolist()
        [[0.5, 0.5, 0.5], [1.0, 1.0, 0.0]]
    """
    heights = _heights(values, percentile)[:, :, None]
    grey = _three(_three(np.asarray(image, np.float64)) @ _LUMA[:, None])
    heat = np.concatenate([np.ones_like(heights), heights, np.zeros_like(heights)], axis=-1)
    mixed: Array = (1 - heights) * grey + heights * heat
    return mixed


@dataclass(frozen=True, kw_only=True)
class Style:
    """A way to draw a map.

    Attributes:
        paint: From a map, the photograph and the percentile to colours, as those above.
        percentile: What is not clipped unless it is said.
        on_image: Whether it needs the photograph.
    """

    paint: Callable[[Array, Array | None, float], Array]
    percentile: float
    on_image: bool = False


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "signed": Style(
            paint=lambda values, image, percentile: signed(values, percentile=percentile),
            percentile=_SIGNED,
        ),
        "magnitude": Style(
            paint=lambda values, image, percentile: magnitude(values, percentile=percentile),
            percentile=_MAGNITUDE,
        ),
        "overlay": Style(
            paint=lambda values, image, percentile: overlay(values, image, percentile=percentile),
            percentile=_MAGNITUDE,
            on_image=True,
        ),
    }
)
"""The styles that `show` knows, by name."""


def _heights(values: Any, percentile: float) -> Array:
    sizes = np.abs(np.asarray(values, np.float64)).sum(axis=-1)
    heights: Array = np.clip(sizes / _scale(sizes, percentile), 0, 1)
    return heights


def _scale(sizes: Array, percentile: float) -> float:
    """Return the size that gets the full colour: where nearly all are 0, the largest."""
    if not 0 < percentile <= 100:
        raise ValueError(f"percentile must be above 0 and up to 100; got {percentile!r}.")
    return float(np.percentile(sizes, percentile)) or float(sizes.max()) or 1.0


def _three(colours: Array) -> Array:
    return np.broadcast_to(colours, (*colours.shape[:-1], 3))
