"""Which pictures go into which file, settled before anything is computed.

A folder of photographs may be explained into the folder where it lies. No photograph may be
lost by that, and of two with the same name neither may hide the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relurules.explain._errors import ExplainError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SOFTWARE = "relurules"

_MOST = 64
"""So many rows are still a picture, and within what matplotlib can write."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A file to write.

    Attributes:
        out: Its path.
        images: The photographs to explain in it.
    """

    out: Path
    images: Sequence[Path]


def pages(images: Sequence[Path], out: Path) -> list[Page]:
    """Return one page for all if `out` ends in .png, else a page for each in that folder.

    Raises:
        ExplainError: `out` is neither, a page would replace a photograph or anything else but
            an earlier picture of ours, or there are too many photographs for one.
    """
    found = _one(images, out) if is_png(out) else _each(images, out)
    files = [page.out.resolve() for page in found]
    for image in images:
        if image.resolve() in files:
            raise ExplainError(f"{str(image)!r} would be replaced by its own maps; change --out.")
    for page in found:
        check_free(page.out)
    return found


def check_free(out: Path) -> None:
    """Raise unless `out` can be written and nothing is lost by that.

    Raises:
        ExplainError: It is there and not a picture of ours, or what should be its folder is none.
    """
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ExplainError(f"{str(out)!r} cannot be written: {str(above)!r} is no folder.")
    if out.exists() and not _is_ours(out):
        raise ExplainError(
            f"{str(out)!r} is there, and not a picture that relurules wrote; change --out, or "
            "remove it."
        )


def write(figure: Figure, out: Path) -> None:
    """Write a figure, marked as ours."""
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Software": _SOFTWARE})


def _is_ours(path: Path) -> bool:
    from PIL import Image  # noqa: PLC0415 - `relurules check` has to do without

    try:
        with Image.open(path) as picture:
            return bool(picture.info.get("Software") == _SOFTWARE)
    except OSError:  # a folder, or no picture
        return False


def is_png(out: Path) -> bool:
    """Return whether the path names a picture, not a folder."""
    return out.suffix.lower() == ".png" and not out.is_dir()


def _one(images: Sequence[Path], out: Path) -> list[Page]:
    if len(images) <= _MOST:
        return [Page(out=out, images=images)]
    raise ExplainError(
        f"One picture holds the maps of {_MOST} photographs, and there are {len(images)}; give a "
        "folder as --out."
    )


def _each(images: Sequence[Path], folder: Path) -> list[Page]:
    if folder.is_file() or (folder.suffix and not folder.is_dir()):
        raise ExplainError(f"--out {folder} is neither a name ending in .png nor a folder.")
    by_name = {f"{image.stem}.png": image for image in images}
    if len(by_name) == len(images):
        return [Page(out=folder / name, images=[image]) for name, image in by_name.items()]
    twice = sorted(str(image) for image in images if image not in by_name.values())
    raise ExplainError(
        f"More than one photograph is named like {', '.join(twice)}, and their maps would "
        "replace each other; rename one, or explain them in two runs."
    )
