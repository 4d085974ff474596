"""Maps as pictures, of any framework's arrays: `show` in a notebook, `save` in a file.

A gradient has no colour of its own, and how it is given one decides what is seen in it. So the
colours are plain functions of NumPy arrays (`signed`, `magnitude`, `overlay`), which a test can
check and a person can call, and only the figure around them needs matplotlib, which is imported
when the first figure is made.
"""

from __future__ import annotations

from relurules.pictures._colours import STYLES, Style, magnitude, overlay, signed
from relurules.pictures._show import save, show

__all__ = ["STYLES", "Style", "magnitude", "overlay", "save", "show", "signed"]
