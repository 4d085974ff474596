"""A picture as something that gradient ascent can draw on, and the views of it that are judged.

Ascent on pixels ends in high-frequency noise that a network likes and nobody recognises. Two
published remedies are used (Olah, Mordvintsev, Schubert: Feature Visualization, 2017). The
picture is a spectrum whose coefficients are scaled by 1/frequency, in axes along which the
colours of photographs are uncorrelated, so that one step size suits all of them. And each
step judges a randomly shifted, turned and zoomed view, so that only what survives this is
drawn. All chance comes from one generator: a seed gives the same picture again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# Ohta, Kanade, Sakai 1980: intensity, red against blue, and green against both are nearly the
# principal axes of colour in photographs. The lengths are how much each varies.
_COLOUR_AXES = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 2.0, -1.0]])
_COLOUR_SPREAD = torch.tensor([1.7, 0.46, 0.23])
_COLOURS = functional.normalize(_COLOUR_AXES) * _COLOUR_SPREAD[:, None]

_START_SPREAD = 0.01
_CONTRAST = 0.25


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """A square picture, held as its scaled spectrum.

    Attributes:
        spectrum: What to optimise: a leaf of shape `(3, size, size // 2 + 1, 2)`.
        size: Height and width in pixels.
    """

    spectrum: Tensor
    size: int

    @classmethod
    def random(cls, *, size: int, generator: torch.Generator) -> Canvas:
        """Return a canvas of faint coloured noise around grey."""
        noise = torch.randn(3, size, size // 2 + 1, 2, generator=generator)
        return cls(spectrum=(noise * _START_SPREAD).requires_grad_(), size=size)

    def pixels(self) -> Tensor:
        """Return the picture, shape `(3, size, size)`, in [0, 1]."""
        waves = torch.view_as_complex(self.spectrum) / _frequencies(self.size)
        planes = torch.fft.irfft2(waves, s=(self.size, self.size), norm="ortho")
        return torch.einsum("ahw,ac->chw", planes * _CONTRAST, _COLOURS).sigmoid()


@dataclass(frozen=True, kw_only=True)
class View:
    """A random look at a picture on a grey ground: shifted, turned and zoomed.

    Attributes:
        margin: Grey border in pixels.
        shift: Largest shift in pixels.
        turn: Largest turn in degrees.
        zoom: Largest relative change of size.
    """

    margin: int = 12
    shift: float = 6.0
    turn: float = 5.0
    zoom: float = 0.1

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Return one view, shape `(3, size + 2 * margin, size + 2 * margin)`."""
        framed = functional.pad(pixels - 0.5, (self.margin,) * 4)[None]
        motion = self._motion(framed.shape[-1], generator)[None]
        grid = functional.affine_grid(motion, list(framed.shape), align_corners=False)
        return functional.grid_sample(framed, grid, align_corners=False)[0] + 0.5

    def _motion(self, size: int, generator: torch.Generator) -> Tensor:
        down, right, turn, zoom = (2 * torch.rand(4, generator=generator) - 1).tolist()
        angle, scale = math.radians(self.turn * turn), 1 / (1 + self.zoom * zoom)
        cos, sin, step = scale * math.cos(angle), scale * math.sin(angle), 2 * self.shift / size
        return torch.tensor([[cos, -sin, step * right], [sin, cos, step * down]])


def _frequencies(size: int) -> Tensor:
    """Return each wave's frequency in cycles per pixel, the constant's as that of the next."""
    rows, columns = torch.fft.fftfreq(size), torch.fft.rfftfreq(size)
    return torch.hypot(rows[:, None], columns[None, :]).clamp_min(1 / size)
