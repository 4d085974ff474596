"""The figure around the pictures: where each stands, to the pixel.

matplotlib's own layouts give an image a size in inches, so that 224 pixels of a map may become
331 of a file: some are doubled, some not, and a fine grid turns into a coarse one that is not
there. Here a pixel of a map is a whole number of pixels of the figure. No window is opened and
no global state of matplotlib is read or changed.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relurules.pictures._arrays import Array
from relurules.pictures._cells import Cell

_DPI = 100
_SETTINGS = {"savefig.dpi": "figure", "savefig.bbox": None}
_LEAST = 224
"""A picture is at least so wide or high; a smaller one is enlarged by a whole number."""

_GAP = 8
_LINE = 19
_FONT = 9
_CHARACTER = 7.5
"""The height of a line and the width of a character of that font, in pixels."""


class Picture(Figure):
    """A figure that a notebook displays, whether or not pyplot was ever imported."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure as it was laid out, whatever the user's settings of matplotlib are."""
        with mpl.rc_context(_SETTINGS):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def grid(rows: Sequence[Sequence[Cell]], *, heading: str, note: str) -> Picture:
    """Return a figure of rows of equally many pictures of one size."""
    plan = _Plan.of(rows, heading=heading, note=note)
    figure = Picture(figsize=(plan.width / _DPI, plan.height / _DPI), dpi=_DPI)
    FigureCanvasAgg(figure)
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            _draw(figure, cell.pixels, plan.titles[row][column], plan.box(row, column))
    for lines, y, alignment in plan.texts():
        figure.text(0.5, y, "\n".join(lines), ha="center", va=alignment, fontsize=_FONT)
    return figure


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Sizes in pixels, from the top left corner.

    Attributes:
        cell: Height and width of a picture.
        titles: The lines above each.
        heading: The lines above all.
        note: The lines below all.
    """

    cell: tuple[int, int]
    titles: Sequence[Sequence[Sequence[str]]]
    heading: Sequence[str]
    note: Sequence[str]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Cell]], *, heading: str, note: str) -> _Plan:
        height, width = rows[0][0].pixels.shape[:2]
        zoom = max(1, _LEAST // max(height, width))
        whole = len(rows[0]) * (width * zoom + _GAP)
        return cls(
            cell=(height * zoom, width * zoom),
            titles=[[_wrapped(cell.title, width * zoom) for cell in row] for row in rows],
            heading=_wrapped(heading, whole),
            note=_wrapped(note, whole),
        )

    @property
    def width(self) -> int:
        return _GAP + len(self.titles[0]) * (self.cell[1] + _GAP)

    @property
    def height(self) -> int:
        below = _LINE * len(self.note) + _GAP * bool(self.note)
        return self._top(len(self.titles)) + _GAP + below

    def box(self, row: int, column: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height as shares of the figure."""
        left = _GAP + column * (self.cell[1] + _GAP)
        bottom = self.height - self._top(row) - self._above(row) - self.cell[0]
        return (
            left / self.width,
            bottom / self.height,
            self.cell[1] / self.width,
            self.cell[0] / self.height,
        )

    def texts(self) -> list[tuple[Sequence[str], float, str]]:
        """Return the lines, the height as a share and the alignment of each text."""
        top, bottom = 1 - _GAP / self.height, _GAP / self.height
        found = [(self.heading, top, "top"), (self.note, bottom, "bottom")]
        return [text for text in found if text[0]]

    def _top(self, row: int) -> int:
        above = sum(self._above(each) + self.cell[0] for each in range(row))
        return _GAP + _LINE * len(self.heading) + above

    def _above(self, row: int) -> int:
        return _GAP + _LINE * max(len(lines) for lines in self.titles[row])


def _draw(
    figure: Picture, pixels: Array, title: Sequence[str], box: tuple[float, float, float, float]
) -> None:
    axes = figure.add_axes(box)
    # As bytes, so that what is seen is what was rounded here, and -x is the complement of x.
    colours = np.rint(pixels * 255).astype(np.uint8)
    axes.imshow(colours, interpolation="nearest", aspect="auto", origin="upper")
    axes.set_title("\n".join(title), fontsize=_FONT, pad=3)
    axes.set_axis_off()


def _wrapped(text: str, width: int) -> list[str]:
    characters = max(8, int(width / _CHARACTER))
    return [line for part in text.splitlines() for line in textwrap.wrap(part, characters)]
