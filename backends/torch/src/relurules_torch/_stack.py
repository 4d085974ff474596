"""Entering and leaving a Torch function mode that need not be the innermost one.

Torch pushes on top and pops whatever is there. But a rule on a submodule stays inside one on the
whole model, whichever is entered first, and after an interrupt that skipped the forward hooks
(https://github.com/pytorch/pytorch/blob/v2.9.0/torch/nn/modules/module.py catches `Exception`
only) ours may lie below others, and theirs must stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)


def enter(mode: TorchFunctionMode, stays_inside: Callable[[TorchFunctionMode], bool]) -> None:
    """Put `mode` on this thread's stack, below the innermost ones that stay inside it."""
    above = []
    while (stack := _get_current_function_mode_stack()) and stays_inside(stack[-1]):
        above.append(_pop_mode())
    _push_all([mode, *reversed(above)])


def leave(mode: TorchFunctionMode) -> None:
    """Take the innermost occurrence of `mode` off this thread's stack, and nothing else."""
    if mode not in _get_current_function_mode_stack():
        return
    above = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    _push_all(list(reversed(above)))


@contextmanager
def without(mode: TorchFunctionMode) -> Iterator[None]:
    """Take `mode` off this thread's stack, and put it back where it was."""
    before = _get_current_function_mode_stack()
    leave(mode)
    try:
        yield
    finally:
        if mode in before:
            last = len(before) - 1 - before[::-1].index(mode)
            _insert(mode, last)


def _insert(mode: TorchFunctionMode, position: int) -> None:
    above = []
    while len(_get_current_function_mode_stack()) > position:
        above.append(_pop_mode())
    _push_all([mode, *reversed(above)])


def _push_all(modes: list[TorchFunctionMode]) -> None:
    for mode in modes:
        _push_mode(mode)
