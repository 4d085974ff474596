"""Somebody's custom_vjp or custom_jvp: its backward may run long after the model has returned.

If it calls `jax.vjp` of a block with an activation, that call must meet the rule too. So the
functions of such a custom gradient take the rules in force along, to wherever JAX runs them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from jax.extend import linear_util

from relurules_jax._frames import Frame, only
from relurules_jax._here import inside


def functions_of(args: Any, params: Any) -> list[Any]:
    """Return the functions of a custom gradient, the primal first."""
    return [one for one in (*params.get("subfuns", ()), *args) if _is_function(one)]


def taking_along(in_force: tuple[Frame, ...], owner: str, args: Any, params: Any) -> Any:
    """Return the arguments of a bind whose functions run under the rules in force now."""

    def wrapped(value: Any) -> Any:
        return _under(value, in_force, owner) if _is_function(value) else value

    subfuns = params.get("subfuns")
    changed = {} if subfuns is None else {"subfuns": tuple(map(wrapped, subfuns))}
    return tuple(map(wrapped, args)), params | changed


def _is_function(value: Any) -> bool:
    return isinstance(value, linear_util.WrappedFun)


@linear_util.transformation2
def _under(function: Any, in_force: tuple[Frame, ...], owner: str, *args: Any) -> Any:
    with ExitStack() as stack:
        stack.enter_context(only(in_force))
        stack.enter_context(inside(owner))
        return function(*args)
