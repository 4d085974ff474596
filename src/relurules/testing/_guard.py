"""Refusing to judge in a process whose own arithmetic is wrong.

Some libraries switch the processor to read subnormals as zero, for the whole thread. NumPy then
computes the specification wrongly, agrees with a backend that is wrong in the same way, and a
suite passes that should fail. So the kit looks first.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from relurules.errors import RelurulesError

_FAST_MATH = ("gevent", "geventwebsocket", "feapder", "grequests", "pyscf", "pypbc", "meshpy")


class SubnormalsFlushedError(RelurulesError, RuntimeError):
    """Subnormals are zero in this process, so the specification itself would be wrong."""


def lost_subnormals() -> list[str]:
    """Return the operations, as text, that flush subnormals here."""
    tiny = np.array([np.float32(1e-45)])
    kept = {
        "np.float32(1e-45) > 0": bool((tiny > 0)[0]),
        "2.0**-1073 != 0": math.ldexp(1.0, -1073) != 0,
        "2.0**-1000 * 2.0**-73 != 0": bool((np.array([2.0**-1000]) * 2.0**-73)[0] != 0),
        "sum of float32 subnormals > 0": bool(np.full(64, 1e-45, np.float32).sum() > 0),
    }
    return [operation for operation, survives in kept.items() if not survives]


def assert_ieee() -> None:
    """Raise where subnormals are flushed, naming who may have done it.

    Raises:
        SubnormalsFlushedError: They are.
    """
    if lost := lost_subnormals():
        raise SubnormalsFlushedError(
            f"Subnormals are flushed to zero in this process (false here: {'; '.join(lost)}), so "
            f"the specification itself would be wrong. {_culprit()}"
        )


def _culprit() -> str:
    found = [name for name in _FAST_MATH if name in sys.modules]
    if found:
        return f"{', '.join(found)} is known to ship a library built with -ffast-math."
    if "torch" in sys.modules:
        return "Torch is loaded: torch.set_flush_denormal(True) does this; call it with False."
    return "Some imported library was built with -ffast-math, or sets the processor's flags."
