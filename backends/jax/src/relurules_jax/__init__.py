"""The JAX backend of relurules, as a plugin.

This module is imported whenever plugins are discovered, so it imports no JAX: it only says
which models are JAX's, and imports the rest when one is met.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from relurules import Applied
from relurules.backend import Backend, BackendInfo
from relurules.hookspecs import hookimpl

__all__ = ["activation", "apply"]

RELURULES_API = 1

_FOREIGN = (("torch.nn", "Module"), ("tensorflow", "Module"), ("keras", "Layer"))
_FOREIGN_HOMES = ("torch", "tensorflow", "tf_keras")
_MODELS = (
    ("flax.linen", "Module"),
    ("flax.nnx", "Module"),
    ("equinox", "Module"),
    ("haiku", "Transformed"),
    ("haiku", "TransformedWithState"),
    ("jax.stages", "Compiled"),
)


@hookimpl
def relurules_register_backends() -> Iterable[BackendInfo]:
    """Register this backend."""
    return [BackendInfo(name="jax", framework="jax", owns=_owns, load=_load, requires="jax>=0.7.2")]


def apply(
    model: Any, rule: Any, *, reduce_axes: Iterable[str] | None = None, **options: Any
) -> Applied:
    """Do what `relurules.apply` does, for code that runs inside shard_map or pmap.

    Args:
        model: A JAX function or model.
        rule: As `relurules.apply`.
        reduce_axes: The mesh or pmap axes over which the *features* of a sample are sharded.
            A rule that looks at whole samples, such as redirected, needs them, or it would
            take each shard for a sample. An empty tuple says that no feature is sharded.
        **options: As `relurules.apply`.

    Returns:
        The applied rule.

    Example:
        >>> import jax, relurules_jax
        >>> with relurules_jax.apply(jax.nn.relu, "identity", reduce_axes=()) as ruled:
        ...     float(jax.grad(ruled)(-1.0))
        1.0
    """
    from relurules_jax._backend import apply_reduced  # noqa: PLC0415 - imports jax

    return apply_reduced(model, rule, reduce_axes=reduce_axes, **options)


def activation(function: Any, *, bounds: tuple[float, float]) -> Any:
    """Say that a function of yours is an activation that computes `clip(x, lo, hi)`.

    Args:
        function: A function of one array.
        bounds: `(lo, hi)`.

    Returns:
        The function, behind which rules are put as behind `jax.nn.relu`.

    Example:
        >>> import jax, jax.numpy as jnp, relurules, relurules_jax
        >>> clipped = relurules_jax.activation(lambda x: jnp.clip(x, -2, 2), bounds=(-2, 2))
        >>> with relurules.apply(clipped, "identity") as ruled:
        ...     float(jax.grad(ruled)(3.0))
        1.0
    """
    from relurules_jax._switch import Declared  # noqa: PLC0415 - imports jax

    return Declared(function, bounds)


def _owns(model: Any) -> bool:
    if any(isinstance(model, one) for one in _loaded(_MODELS)):
        return True
    if _is_keras_on_jax(model):
        return True
    if type(model).__module__.partition(".")[0] in _FOREIGN_HOMES:
        return False
    return callable(model) and not any(isinstance(model, one) for one in _loaded(_FOREIGN))


def _is_keras_on_jax(model: Any) -> bool:
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, getattr(keras, "Layer", ())):
        return False
    return bool(keras.config.backend() == "jax")


def _loaded(names: Iterable[tuple[str, str]]) -> list[type]:
    found = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return [one for one in found if isinstance(one, type)]


def _load() -> Backend:
    from relurules_jax._backend import JaxBackend  # noqa: PLC0415 - imports jax

    return JaxBackend()
