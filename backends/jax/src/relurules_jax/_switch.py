"""What happens when an activation of JAX is called.

`jax.nn.relu` and `jax.nn.relu6` are objects. Each is given, once, a subclass of its own class
whose call reads which rules are in force. Since the object stays the same, every alias is caught:
flax's, Keras's, the default argument of somebody's layer, a name bound before this import.
`jax.nn.hard_tanh` is a jitted function and has no class of its own; the primitive that every
jitted call goes through recognises it (see `_observe`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relurules.backend import Bounds, Site
from relurules_jax._bits import Array
from relurules_jax._frames import frames
from relurules_jax._intercept import intercept
from relurules_jax._names import frames_above, is_own_functions
from relurules_jax._scopes import unscoped
from relurules_jax._vehicle import run_left_alone

_ACTIVATIONS: dict[str, tuple[Bounds, Callable[[Array], Array]]] = {
    "relu": ((0.0, math.inf), lambda x: x > 0),
    "relu6": ((0.0, 6.0), lambda x: (x > 0) & (x < 6)),
}
"""The bounds of JAX's activations, and where their own derivative is 1."""


class Switch(jax.custom_jvp):
    """An activation that asks which rules are in force."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the activation, with a rule behind it where one is in force."""
        in_force = frames()
        if not in_force or len(args) + len(kwargs) != 1:
            return super().__call__(*args, **kwargs)
        (x,) = (*args, *kwargs.values())
        op = self.__name__
        bounds, derivative = _ACTIVATIONS[op]
        own = _own_derivative(self.fun, derivative)
        if _is_inside_a_gate():
            return run_left_alone(x, Site("gate", op, bounds), self.fun, own)
        return intercept(x, op, bounds, functools.partial(_own, self.fun), own)


class Declared:
    """A function that its author declared to be an activation."""

    def __init__(self, function: Callable[[Array], Array], bounds: Bounds) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._bounds = (float(bounds[0]), float(bounds[1]))

    def __call__(self, x: Any) -> Any:
        """Run the activation, with a rule behind it where one is in force."""
        if not frames():
            return self._function(x)
        name = getattr(self._function, "__name__", type(self._function).__name__)
        op = name.strip("<>")
        return intercept(x, op, self._bounds, self._function, self._derivative)

    def _derivative(self, primals: Any, tangents: Any) -> Any:
        return jax.jvp(self._function, primals, tangents)


def install() -> None:
    """Give JAX's activations the class that asks; harmless when done already."""
    for activation in (jax.nn.relu, jax.nn.relu6):
        activation.__class__ = Switch


def _own(fun: Callable[[Array], Array], x: Array) -> Array:
    with unscoped():
        return fun(x)


def _own_derivative(
    fun: Callable[[Array], Array], passes: Callable[[Array], Array]
) -> Callable[[Any, Any], Any]:
    """Return JAX's own jvp rule, which calls no activation again as the object's does."""

    def derivative(primals: Any, tangents: Any) -> Any:
        (x,), (tangent,) = primals, tangents
        return fun(x), lax.select(passes(jnp.asarray(x)), tangent, lax.full_like(tangent, 0))

    return derivative


def _is_inside_a_gate() -> bool:
    """Return whether jax.nn itself calls: hard_sigmoid and hard_silu are gates made of relu6."""
    above = (frame.f_code for frame in frames_above())
    return any(is_own_functions(code.co_filename) for code in above if code.co_name[:5] == "hard_")
