"""JAX as the conformance kit sees it: functions, and the ways to take a gradient of one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import numpy.typing as npt

import relurules_jax
from relurules.backend import Bounds
from relurules.testing import KnownFailure, Mode, Pull
from relurules_jax._scopes import unscoped

Array = npt.NDArray[Any]
Function = Callable[[Any], Any]

_RELU: Bounds = (0.0, math.inf)
_RELU6: Bounds = (0.0, 6.0)
_HARD_TANH: Bounds = (-1.0, 1.0)

_SPELLINGS: dict[str, tuple[Bounds, Function]] = {
    "jax.nn.relu": (_RELU, jax.nn.relu),
    "functools.partial(jax.nn.relu)": (_RELU, functools.partial(jax.nn.relu)),
    "jax.nn.relu(x=x)": (_RELU, lambda x: jax.nn.relu(x=x)),
    "jax.jit(jax.nn.relu)": (_RELU, jax.jit(jax.nn.relu)),
    "jax.checkpoint(jax.nn.relu)": (_RELU, jax.checkpoint(jax.nn.relu)),
    "jax.nn.relu6": (_RELU6, jax.nn.relu6),
    "jax.nn.hard_tanh": (_HARD_TANH, jax.nn.hard_tanh),
    "relurules_jax.activation": (
        (-2.0, 2.0),
        relurules_jax.activation(lambda x: jnp.clip(x, -2.0, 2.0), bounds=(-2.0, 2.0)),
    ),
}


def case() -> JaxCase:
    """Return what the kit needs to test this backend; switches JAX to 64 bits."""
    jax.config.update("jax_enable_x64", True)
    return JaxCase()


class JaxCase:
    """The adapter of `relurules_jax`."""

    name = "jax"
    dtypes: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64")
    modes: tuple[Mode, ...] = ("eager", "compiled", "vmap")  # eager is jax.vjp already
    versions: Mapping[str, str] = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    spellings: Mapping[str, Bounds] = {name: bounds for name, (bounds, _) in _SPELLINGS.items()}
    known_failures: tuple[KnownFailure, ...] = ()

    def model(self, *bounds: Bounds) -> Function:
        """Return a function that calls one activation after the other."""
        activations = [_activation(lo, hi) for lo, hi in bounds]

        def model(x: Any) -> Any:
            for activation in activations:
                x = activation(x)
            return x

        return model

    def spelled(self, spelling: str, /) -> Function:
        """Return a function that writes its activation in this way."""
        return _SPELLINGS[spelling][1]

    def scalar(self, step: int, /) -> Any:
        """Return the step as an array of rank 0."""
        return jnp.asarray(step)

    def value(self, fn: Function, x: Array, /) -> Array:
        """Run `fn` and return its value."""
        return np.asarray(fn(jax.device_put(x)))

    def pullback(self, fn: Function, x: Array, /, *, mode: Mode) -> tuple[Array, Pull]:
        """Run `fn` and return its value and its pullback."""
        y, pull = _MODES[mode](fn, jax.device_put(x))  # jnp.asarray compiles a program, each time
        return np.asarray(y), lambda g: np.asarray(pull(jax.device_put(g)))


@functools.cache  # the same function again is not traced again
def _activation(lo: float, hi: float) -> Function:
    known: dict[Bounds, Function] = {
        _RELU: jax.nn.relu,
        _RELU6: jax.nn.relu6,
        _HARD_TANH: jax.nn.hard_tanh,
    }
    if (lo, hi) in known:
        return known[lo, hi]

    def clip(x: Any) -> Any:
        with unscoped():  # compiled once, and not once for each rule that a trial applies
            return jnp.clip(x, lo, hi)

    declared: Function = relurules_jax.activation(clip, bounds=(lo, hi))
    return declared


def _vjp(fn: Function, x: Any) -> tuple[Any, Function]:
    """Run op by op: what jax.grad does, with a cotangent that the kit gives."""
    y, pull = jax.vjp(fn, x)
    return y, lambda g: pull(g)[0]


def _compiled(fn: Function, x: Any) -> tuple[Any, Function]:
    y, pull = jax.vjp(jax.jit(fn), x)
    return y, lambda g: _pulled(pull, g)


@jax.jit
def _pulled(pull: Function, g: Any) -> Any:
    return pull(g)[0]


def _vmap(fn: Function, x: Any) -> tuple[Any, Function]:
    return jax.vmap(fn)(x), lambda g: jax.vmap(lambda x, g: jax.vjp(fn, x)[1](g)[0])(x, g)


_MODES = {"eager": _vjp, "compiled": _compiled, "vmap": _vmap}
