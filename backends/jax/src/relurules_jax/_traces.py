"""What JAX is doing around a call: nothing, differentiating, or recording a program.

Recording matters twice. A step that is read while a program is recorded would be baked in, and
a user's custom gradient is then run only after the model has returned, out of a rule's reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core

_RECORDING = "DynamicJaxprTrace"
_DIFFERENTIATING = ("JVPTrace", "LinearizeTrace")


def is_clean() -> bool:
    """Return whether no transformation is under way, so that no gradient can be taken."""
    return all(name == "EvalTrace" for name in _names())


def is_recording() -> bool:
    """Return whether some program is being recorded, as by jit or scan."""
    return _RECORDING in _names()


def is_differentiated() -> bool:
    """Return whether derivatives are taken while the model runs, and not of its record."""
    for name in _names():
        if name in (*_DIFFERENTIATING, _RECORDING):
            return name != _RECORDING
    return False


def _names() -> list[str]:
    return [type(trace).__name__ for trace in _stack()]


def _stack() -> Iterator[Any]:
    """Yield the traces under way, the innermost first."""
    with _take_current_trace() as innermost:
        trace = innermost
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


# Public in jax.core up to 0.9, and in jax.extend.core from 0.8.2 on.
_take_current_trace: Any = (
    core.take_current_trace if hasattr(core, "take_current_trace") else jax.core.take_current_trace
)
