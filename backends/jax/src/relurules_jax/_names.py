"""Where a call comes from, in words that a user can write in `only=` and `exclude=`.

JAX keeps a name stack, which flax and haiku fill with module paths. Where it is empty, the
frames of Python know better: the path of a Keras layer or flax nnx module, else the function
that makes the call. The name must be the same each time the same code is traced, since what was
traced once is used again, so equal names are told apart by their place in the code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
from jax.extend import source_info_util

import relurules

_HOMES = (jax.__file__, relurules.__file__, __file__)
_LIBRARIES = tuple(str(Path(file).parent) + os.sep for file in _HOMES)
_NORMALISATION = re.compile(r"[/\\](flax|equinox|haiku|keras)[/\\].*norm\w*\.py$|[Nn]orm\w*$")
_FUNCTIONS = re.compile(r"jax[/\\]_src[/\\]nn[/\\]functions\.py")
_OWNERS = (("keras", "Layer"), ("flax.nnx", "Module"), ("equinox", "Module"))

_places: dict[tuple[CodeType, str], list[int]] = {}


def site_name(op: str) -> str:
    """Return the name of the activation that is being called."""
    frame = _caller()
    base = scope() or _owner() or _function(frame)
    known = _places.setdefault((frame.f_code, op), [])
    if frame.f_lasti not in known:
        known.append(frame.f_lasti)
    count = known.index(frame.f_lasti)
    name = "/".join(filter(None, (base, op)))
    return f"{name}_{count}" if count else name


def scope(stack: Any = None) -> str:
    """Return the scopes of a name stack, without the transformations in it."""
    stack = source_info_util.current_name_stack() if stack is None else stack
    return "/".join(e.name for e in stack.stack if type(e).__name__ == "Scope")


def place_name(op: str) -> str:
    """Return a name for something that is no site."""
    return scope() or _owner() or _function(_caller()) or op


def is_own_functions(where: str) -> bool:
    """Return whether a source location is in the file of jax.nn's functions."""
    return bool(_FUNCTIONS.search(where))


def is_normalisation(place: str) -> bool:
    """Return whether a file or a scope is a library's normalisation layer.

    They bound a variance by `maximum(0, var)`, which is no activation.
    """
    return bool(_NORMALISATION.search(place))


def frames_above() -> Iterator[FrameType]:
    """Yield the Python frames from the caller's outwards, up to the model's own call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "call_model":
        yield frame
        frame = frame.f_back


def _caller() -> FrameType:
    chosen = sys._getframe(1)
    for chosen in frames_above():
        if not chosen.f_code.co_filename.startswith(_LIBRARIES):
            break
    return chosen


def _function(frame: FrameType) -> str:
    name = frame.f_code.co_qualname
    if name.endswith(">") or frame.f_code.co_filename.startswith(_LIBRARIES):
        return ""
    return name.rpartition("<locals>.")[2]


def _owner() -> str:
    classes = tuple(
        one
        for module, name in _OWNERS
        if isinstance(one := getattr(sys.modules.get(module), name, None), type)
    )
    for frame in frames_above():
        names = frame.f_code.co_varnames
        owner = frame.f_locals.get(names[0]) if names else None
        if isinstance(owner, classes):
            return str(getattr(owner, "path", None) or type(owner).__name__)
    return ""
