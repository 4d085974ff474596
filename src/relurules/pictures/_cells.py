"""Which pictures a figure has, and what stands above each, before anything is drawn.

One row is one sample and one column one map, so that the same place of an image under two
rules is at the same height, which is how maps are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from relurules.errors import did_you_mean
from relurules.pictures._arrays import Array, colour_axes, images_of, to_numpy
from relurules.pictures._colours import STYLES

Maps: TypeAlias = Mapping[str, Any] | Any

_BYTE = 255


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One picture of the grid.

    Attributes:
        pixels: Shape `(height, width, 3)`, in [0, 1].
        title: What stands above it.
    """

    pixels: Array
    title: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What is to be drawn, checked.

    Attributes:
        maps: By title, each of shape `(N, H, W, 1 or 3)`.
        images: The photographs of the same shape, if there are any.
        styles: Names out of `STYLES`.
        percentile: What is not clipped; None is each style's own.
        titles: What each of the N samples is, or "".
    """

    maps: Mapping[str, Array]
    images: Array | None
    styles: Sequence[str]
    percentile: float | None
    titles: Sequence[str]

    def rows(self) -> list[list[Cell]]:
        """Return the pictures, a row for each sample."""
        return [self._row(sample, title) for sample, title in enumerate(self.titles)]

    def _row(self, sample: int, title: str) -> list[Cell]:
        painted = list(self._painted(sample))
        if self.images is not None:
            return [Cell(pixels=self.images[sample], title=title), *painted]
        first = ": ".join(filter(None, (title, painted[0].title)))
        return [replace(painted[0], title=first), *painted[1:]]

    def _painted(self, sample: int) -> Iterator[Cell]:
        image = None if self.images is None else self.images[sample]
        for name, maps in self.maps.items():
            for style in self.styles:
                yield Cell(
                    pixels=self._paint(style, maps[sample], image), title=self._title(name, style)
                )

    def _paint(self, style: str, values: Array, image: Array | None) -> Array:
        how = STYLES[style]
        percentile = how.percentile if self.percentile is None else self.percentile
        return how.paint(values, image, percentile)

    def _title(self, name: str, style: str) -> str:
        parts = (name, style if len(self.styles) > 1 or not name else "")
        return ", ".join(filter(None, parts))


def sheet(
    maps: Maps,
    *,
    image: Any,
    style: str | Sequence[str],
    percentile: float | None,
    titles: Sequence[str] | None,
    channel_axis: int | None,
) -> Sheet:
    """Check what `show` was given; see there."""
    styles = (style,) if isinstance(style, str) else tuple(style)
    _check_styles(styles, with_image=image is not None)
    named = _named(maps, channel_axis)
    shape = next(iter(named.values())).shape
    return Sheet(
        maps=named,
        images=None if image is None else _photographs(image, channel_axis, shape),
        styles=styles,
        percentile=percentile,
        titles=_titles(titles, shape[0]),
    )


def _check_styles(styles: Sequence[str], *, with_image: bool) -> None:
    if not styles:
        raise ValueError(f"There is no style to draw in; there is: {', '.join(STYLES)}.")
    for name in styles:
        if name not in STYLES:
            hint = did_you_mean(name, STYLES)
            raise ValueError(f"No style is named {name!r}{hint}; there is: {', '.join(STYLES)}.")
        if STYLES[name].on_image and not with_image:
            raise ValueError(f"The style {name!r} is drawn on the image; pass image=.")


def _named(maps: Maps, channel_axis: int | None) -> dict[str, Array]:
    given = maps if isinstance(maps, Mapping) else {"": maps}
    if not given:
        raise ValueError("There is no map to draw: the mapping is empty.")
    named = {
        name: images_of(
            values, channel_axis=channel_axis, name=f"the map {name!r}" if name else "the map"
        )
        for name, values in given.items()
    }
    shapes = {name: images.shape[:3] for name, images in named.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"The maps differ in (samples, height, width): {shapes}.")
    return named


def _photographs(image: Any, channel_axis: int | None, shape: tuple[int, ...]) -> Array:
    given = to_numpy(image)
    axis = channel_axis if len(colour_axes(given.shape)) > 1 else None
    found = images_of(given, channel_axis=axis, name="the image")
    if found.shape[:3] != shape[:3]:
        raise ValueError(
            "The image and the maps differ in (samples, height, width): "
            f"{found.shape[:3]} and {shape[:3]}."
        )
    found = found / (_BYTE if given.dtype.kind in "iu" else 1)
    if found.min() < 0 or found.max() > 1:
        raise ValueError(
            f"The image has values from {found.min():.3g} to {found.max():.3g}; expected integers "
            "from 0 to 255 or floating point in [0, 1]. Pass the pixels from before "
            "normalisation, or clip them."
        )
    return np.broadcast_to(found, (*found.shape[:3], 3))


def _titles(titles: Sequence[str] | None, samples: int) -> Sequence[str]:
    if titles is None:
        return ("",) * samples
    found = (titles,) if isinstance(titles, str) else tuple(titles)
    if len(found) != samples:
        raise ValueError(f"There are {len(found)} titles for {samples} samples.")
    return found
