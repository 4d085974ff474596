"""Leaving a Torch function mode that need not be the innermost one.

Torch pops whatever mode is on top. After a KeyboardInterrupt inside a forward, which skips the
forward hooks (https://github.com/pytorch/pytorch/blob/v2.9.0/torch/nn/modules/module.py catches
`Exception` only), ours may lie below others, and theirs must stay.
"""

from __future__ import annotations

from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)


def leave(mode: TorchFunctionMode) -> None:
    """Take the innermost occurrence of `mode` off this thread's stack, and nothing else."""
    if mode not in _get_current_function_mode_stack():
        return
    above = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_mode(other)
