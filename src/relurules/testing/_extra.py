"""What the kit needs beyond NumPy, imported only when a check asks for it.

relurules itself depends on NumPy and pluggy. A backend's author installs the extra `test`, and
whoever does not should be told so and not be shown an ImportError of a stranger.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import numpy as np

NATIVE = ("float16", "float32", "float64")


def require(module: str, /) -> Any:
    """Import a module of the extra `test`.

    Raises:
        ImportError: It is not installed; the message has the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ImportError(
            f"The conformance kit needs {error.name}. Run: pip install 'relurules[test]'"
        ) from error


@functools.cache
def dtype_of(name: str, /) -> np.dtype[Any]:
    """Return the NumPy dtype of one of `relurules.spec.DTYPES`; bfloat16 is ml_dtypes's."""
    if name in NATIVE:
        return np.dtype(name)
    found: np.dtype[Any] = np.dtype(getattr(require("ml_dtypes"), name))
    return found
