"""Which pictures go into which file, settled before anything is computed.

A folder of photographs may be explained into the folder where it lies. No photograph may be
lost by that, and of two with the same name neither may hide the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relurules.explain._errors import ExplainError

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
        ExplainError: `out` is neither, a page would replace a photograph or another page, or
            there are too many photographs for one.
    """
    found = _one(images, out) if is_png(out) else _each(images, out)
    files = [page.out.resolve() for page in found]
    for image in images:
        if image.resolve() in files:
            raise ExplainError(f"{str(image)!r} would be replaced by its own maps; change --out.")
    return found


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
