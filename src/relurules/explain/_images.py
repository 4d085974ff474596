"""Photographs by path, folder or name, as the pixels that a network is shown.

The samples are the files that scikit-image carries in its package. They are read as files:
its loader functions look for a download where a file is not there, and nothing here may.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from relurules.errors import did_you_mean
from relurules.explain._errors import ExplainError

_SAMPLES = frozenset({".png", ".jpg"})

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
"""Which files of a folder are taken for pictures, in lower case."""

_EIGHT_BIT = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
"""Modes whose colours survive a conversion to RGB; of 16 bits it would keep the lowest eight."""


def load_image(source: str | Path, *, size: int = 224) -> Tensor:
    """Load the largest centred square of a picture, scaled to `size`.

    Args:
        source: The path of a picture, or the name of a sample of scikit-image (`"chelsea"`).
        size: Height and width in pixels.

    Returns:
        Shape `(3, size, size)`, red, green and blue in [0, 1].

    Raises:
        ExplainError: There is no such file or sample, or it is no picture of 8 bits a colour.

    Example:
        >>> from relurules.explain import load_image
        >>> load_image("chelsea").shape
        torch.Size([3, 224, 224])
    """
    picture = ImageOps.fit(_open(_find(source)), (size, size), method=Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


def find_images(sources: Iterable[str | Path]) -> list[Path]:
    """Return the files that are meant: pictures, samples, and all pictures of a folder, sorted.

    Raises:
        ExplainError: There is no such file or sample, or no picture in a folder.

    Example:
        >>> from relurules.explain import find_images
        >>> [path.name for path in find_images(["chelsea", "coffee"])]
        ['chelsea.png', 'coffee.png']
    """
    found = (_find(source) for source in sources)
    return [path for each in found for path in (_inside(each) if each.is_dir() else [each])]


def samples() -> dict[str, Path]:
    """Return the pictures that scikit-image carries, by name."""
    folder = Path(str(files("skimage.data")))
    found = (path for path in folder.iterdir() if path.suffix in _SAMPLES)
    return {path.stem: path for path in sorted(found)}


def _inside(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if found:
        return found
    kinds = ", ".join(sorted(SUFFIXES))
    raise ExplainError(f"The folder {str(folder)!r} has no picture in it: no file ends in {kinds}.")


def _find(source: str | Path) -> Path:
    path, known = Path(source), samples()
    if path.exists():
        return path
    if str(source) in known:
        return known[str(source)]
    hint = did_you_mean(str(source), known)
    raise ExplainError(
        f"There is no file {str(source)!r}, and no sample of that name{hint}; "
        f"give a path, or one of: {', '.join(known)}"
    )


def _open(path: Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            upright = ImageOps.exif_transpose(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ExplainError(
            f"{str(path)!r} cannot be read as a picture ({error}); give a PNG or JPEG file."
        ) from error
    if upright.mode in _EIGHT_BIT:
        return upright.convert("RGB")
    raise ExplainError(
        f"{str(path)!r} has pixels of the kind {upright.mode!r}; convert it to 8 bits a colour."
    )
