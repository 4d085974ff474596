"""The two functions a person calls. Both take the same, so that what is seen can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from relurules.pictures._cells import Maps, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Options(TypedDict, total=False):
    """Those arguments of `show` that `save` passes on."""

    image: Any
    style: str | Sequence[str]
    percentile: float | None
    titles: Sequence[str] | None
    channel_axis: int | None
    heading: str
    note: str


def show(
    maps: Maps,
    *,
    image: Any = None,
    style: str | Sequence[str] = "signed",
    percentile: float | None = None,
    titles: Sequence[str] | None = None,
    channel_axis: int | None = None,
    heading: str = "",
    note: str = "",
) -> Figure:
    """Return a figure of one or more maps, which a notebook displays by itself.

    Each sample is a row: its photograph, if there is one, then each map in each style. Each
    map of each sample is scaled by itself, so brightness does not compare between pictures. A
    pixel of a map is one or more whole pixels of the figure, so nothing is blurred.

    Args:
        maps: An array of any framework, or a mapping from a title, such as a rule's name, to
            one. Shape `(height, width)`, `(colours, height, width)`, `(height, width, colours)`,
            or one of the latter two with samples on axis 0; colours being 1 or 3.
        image: What the maps explain, in the same shapes: integers from 0 to 255 or floating
            point in [0, 1], and not what normalisation made of it.
        style: `"signed"`, where 0 is mid grey; `"magnitude"`, where 0 is black; `"overlay"`,
            the magnitude as heat over the greyed image; or a sequence, a column for each.
        percentile: The share of a map's sizes, in percent, that is not clipped; None is 99.5
            for signed and 99 for the others.
        titles: What each sample is, one for each.
        channel_axis: Which axis of the maps holds the colours. Needed where two could; decides
            for the image, too, where two of its axes could.
        heading: A line above the figure.
        note: Text below it.

    Returns:
        A `matplotlib.figure.Figure`. It belongs to no window and need not be closed.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        TypeError: What was given is no array of real numbers.
        ValueError: A shape or an option does not fit, the axis of colours is ambiguous, or a
            value is NaN or infinite: it has no colour, and grey would hide it.

    Example:
        >>> import numpy as np
        >>> from relurules.pictures import show
        >>> figure = show({"standard": np.eye(8), "guided": -np.eye(8)}, style="magnitude")
        >>> [axes.get_title() for axes in figure.axes]
        ['standard', 'guided']
    """
    rows = sheet(
        maps,
        image=image,
        style=style,
        percentile=percentile,
        titles=titles,
        channel_axis=channel_axis,
    ).rows()
    figure: Figure = _drawing().grid(rows, heading=heading, note=note)
    return figure


def save(path: str | Path, maps: Maps, **options: Unpack[Options]) -> Path:
    """Write the figure of `show` to a file, and return its path.

    Args:
        path: Its suffix names the format, such as `.png`. What is there is replaced.
        maps: As in `show`.
        **options: As in `show`.

    Raises:
        FileNotFoundError: There is no such folder.
        ModuleNotFoundError: As for `show`.
        TypeError: As for `show`.
        ValueError: As for `show`, the path has no suffix, or matplotlib does not write this one.

    Example:
        >>> import numpy as np, tempfile
        >>> from relurules.pictures import save
        >>> save(Path(tempfile.mkdtemp()) / "eye.png", np.eye(8), style="magnitude").name
        'eye.png'
    """
    path = Path(path)
    if not path.suffix:
        raise ValueError(f"{str(path)!r} has no suffix, which names the format, such as .png.")
    show(maps, **options).savefig(path)
    return path


def _drawing() -> Any:
    try:
        return import_module("relurules.pictures._figure")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"There is no module {error.name!r}, which pictures need; install it with:  "
            "pip install 'relurules[explain]'",
            name=error.name,
        ) from error
