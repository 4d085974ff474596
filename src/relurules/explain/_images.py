"""Photographs by path or by name, as the pixels that a network is shown.

The samples are the files that scikit-image carries in its package. They are read as files:
its loader functions look for a download where a file is not there, and nothing here may.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from relurules.errors import did_you_mean
from relurules.explain._errors import ExplainError

_SUFFIXES = frozenset({".png", ".jpg"})


def load_image(source: str | Path, *, size: int = 224) -> Tensor:
    """Load the largest centred square of a picture, scaled to `size`.

    Args:
        source: The path of a picture, or the name of a sample of scikit-image (`"chelsea"`).
        size: Height and width in pixels.

    Returns:
        Shape `(3, size, size)`, red, green and blue in [0, 1].

    Raises:
        ExplainError: There is no such file or sample, or it is no picture.

    Example:
        >>> from relurules.explain import load_image
        >>> load_image("chelsea").shape
        torch.Size([3, 224, 224])
    """
    picture = ImageOps.fit(_open(_find(source)), (size, size), method=Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


def samples() -> dict[str, Path]:
    """Return the pictures that scikit-image carries, by name."""
    folder = Path(str(files("skimage.data")))
    found = (path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    return {path.stem: path for path in sorted(found)}


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
            return ImageOps.exif_transpose(picture).convert("RGB")
    except OSError as error:
        raise ExplainError(
            f"{str(path)!r} cannot be read as a picture ({error}); give a PNG or JPEG file."
        ) from error
