"""Who calls: which of a model's code is running, and on whose behalf.

A function such as `relu` does not know which module calls it, and hooks on every module would
slow each call and leak into other models that share one. The Python frames know it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator
from types import CodeType, FrameType
from typing import Any, TypeAlias

from torch import nn

Place: TypeAlias = tuple[nn.Module, CodeType, int]


def place(modules: Container[nn.Module], depth: int) -> Place | None:
    """Return which code of `modules` is running, or None where none of it is.

    It is the innermost frame whose first argument is one of them. Where a forward names its
    module otherwise than `self`, the frame of `torch.nn.Module._call_impl` around it still does.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        code = frame.f_code
        if code.co_varnames[:1] == ("self",):  # asked first, since f_locals builds a dict
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and owner in modules:
                return owner, code, frame.f_lasti
        frame = frame.f_back
    return None


def is_called_for(root: nn.Module, modules: Container[nn.Module]) -> bool:
    """Return whether a part of `root` that runs now runs for it, and not for another model.

    A part that two models share is called by the one whose frame is outermost. One that no
    model's frame surrounds was called by the user, who has put a rule behind it.
    """
    outermost = None
    for module in _surrounding():
        outermost = module
    return outermost is None or outermost in modules or _holds(outermost, root)


def _surrounding() -> Iterator[nn.Module]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",):
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                yield owner
        frame = frame.f_back


def _holds(outer: nn.Module, root: nn.Module) -> bool:
    """Return whether `outer` is a wrapper of `root`, such as a trainer or an explainer."""
    held = (*vars(outer).values(), *outer.modules())
    return any(one is root for one in held)


def run_as(self: nn.Module, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a method so that `place` finds its module, also where it is a static method."""
    return method(*args, **kwargs)
