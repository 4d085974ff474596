"""From an array of any framework, in either layout, to images with colours last.

No framework is imported: what an array offers (`detach`, `cpu`, `__array__`) is asked of it.
Which axis holds the colours is read off the shape, and where the shape allows two readings it
is an error, since the wrong one still draws a picture.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_COLOURS = (1, 3)
_REAL = "fiubV"  # V is how NumPy sees the bfloat16 of ml_dtypes


def to_numpy(values: Any) -> Array:
    """Return an array of any framework, on any device, as NumPy's.

    Raises:
        TypeError: It is no array of real numbers.
    """
    found = np.asarray(_on_the_host(values))
    if found.dtype.kind in _REAL and found.dtype.names is None:
        return found
    raise TypeError(
        f"An array of real numbers was expected; got {type(values).__name__} of dtype "
        f"{found.dtype}."
    )


def images_of(values: Any, *, channel_axis: int | None, name: str) -> Array:
    """Return images of shape `(N, H, W, C)` in float64, C being 1 or 3.

    Args:
        values: Shape `(H, W)`, or with an axis of colours, or with that and samples on axis 0.
        channel_axis: Which axis holds the colours; None reads it off the shape.
        name: What to call it in an error.

    Raises:
        TypeError: It is no array of real numbers.
        ValueError: Its shape is none of these, or could be two; a value is NaN or infinite.
    """
    found = to_numpy(values).astype(np.float64)
    _check_shape(found.shape, name)
    _check_finite(found, name)
    if found.ndim == 2:
        return found[None, :, :, None]
    axis = _channel_axis(found.shape, channel_axis, name)
    last = np.moveaxis(found, axis, -1)
    return last if last.ndim == 4 else last[None]


def colour_axes(shape: tuple[int, ...]) -> list[int]:
    """Return which axes could hold the colours, first or last of an image.

    >>> colour_axes((3, 8, 8)), colour_axes((5, 8, 8, 1)), colour_axes((8, 8))
    ([0], [3], [])
    """
    rank = len(shape)
    return [axis for axis in (rank - 3, rank - 1) if rank > 2 and shape[axis] in _COLOURS]


def _on_the_host(values: Any) -> Any:
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    # Torch's bfloat16 has no NumPy counterpart; complex must stay so, to be refused.
    return values.double() if values.is_floating_point() else values


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if len(shape) not in (2, 3, 4) or 0 in shape:
        raise ValueError(
            f"The shape of {name} is {shape}; expected (height, width), with an axis of 1 or 3 "
            "colours if there are colours, and then an axis 0 of samples if there are samples."
        )


def _check_finite(values: Array, name: str) -> None:
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise ValueError(
            f"{bad} of the {values.size} values of {name} are NaN or infinite, and have no "
            "colour; look at what made them, or replace them with numpy.nan_to_num."
        )


def _channel_axis(shape: tuple[int, ...], given: int | None, name: str) -> int:
    if given is not None:
        return _given(shape, given, name)
    candidates = colour_axes(shape)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ValueError(
            f"The shape of {name} is {shape}, so the colours may be on axis {candidates[0]} or "
            f"{candidates[1]}; say which with channel_axis=."
        )
    raise ValueError(
        f"The shape of {name} is {shape}, and neither axis {len(shape) - 3} nor the last has the "
        "size 1 or 3 of an axis of colours. Sum over channels that are no colours, and give "
        "samples without colours an axis of size 1."
    )


def _given(shape: tuple[int, ...], given: int, name: str) -> int:
    rank = len(shape)
    axis = given + rank if given < 0 else given
    if rank - 3 <= axis < rank and shape[axis] in _COLOURS:
        return axis
    raise ValueError(
        f"channel_axis={given} does not fit {name} of shape {shape}: that axis must be one of the "
        "last three and have size 1 or 3."
    )
