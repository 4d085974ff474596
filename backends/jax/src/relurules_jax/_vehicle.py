"""What stands behind an activation: a `jax.custom_vjp` that calls the rule.

It is public API, costs nothing once compiled, and its reverse-over-reverse derivatives are
those of `torch.autograd.Function`, because its forward calls the ruled function itself. Its
name in a jaxpr says which site it is, so that a look at what was traced earlier finds it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from relurules.backend import STANDARD, Bounds, GradientOf, Rule, Site, evaluate, flips, kernel_for
from relurules_jax._bits import Array, Exact, Namespace, plain
from relurules_jax._frames import Traced, frames, outside
from relurules_jax._here import owner_in_force
from relurules_jax._scopes import unscoped
from relurules_jax._traces import is_recording

_SITES: dict[str, tuple[Site, Rule | None]] = {}
_MARKS: dict[tuple[Site, Rule | None], str] = {}
_counter = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCall:
    """One call of an activation under a rule.

    Attributes:
        site: Which activation.
        base: Runs the activation itself.
        rule: The rule in force.
        active: Whether the schedule is running.
        batch_axis: The axis that separates samples, or None.
        gradient_of: What the user differentiates, or None.
        reduce_axes: Mesh axes over which the elements of one sample are spread.
    """

    site: Site
    base: Callable[[Array], Array]
    rule: Rule
    active: bool | Traced = True
    batch_axis: int | None = 0
    gradient_of: GradientOf | None = None
    reduce_axes: tuple[str, ...] = ()

    def backward(self, x: Array, g: Array, active: Any) -> Array:
        """Return the gradient that passes."""
        if not isinstance(x, jax.Array):  # a Python number is kept as it is
            x = jnp.asarray(x)
        if self.rule.scope == "sample" and self.batch_axis is not None:
            x = _unmapped(x)
        if active is None and (kernel := _kernel(self.rule)) is not None:
            return self._native(kernel, x, g)
        if active is not None or self.reduce_axes or is_recording():
            out = _evaluate(
                x,
                g,
                self.active if active is None else active,
                rule=self.rule,
                bounds=rounded(self.site.bounds, x.dtype),
                batch_axis=self.batch_axis,
                gradient_of=self.gradient_of,
                reduce_axes=self.reduce_axes,
            )
        else:
            out = self._at_once(x, g)
        return _checked(out, g, self.rule)

    def _at_once(self, x: Array, g: Array) -> Array:
        """Run the rule in force as one program, the same for all calls that mean the same."""
        rule = self.rule if self.active else self.rule.after or STANDARD
        return _evaluate_at_once(
            x,
            g,
            active=True,
            rule=rule,
            bounds=rounded(self.site.bounds, x.dtype),
            batch_axis=self._samples(rule, x.ndim),
            gradient_of=self.gradient_of if flips(rule, self.gradient_of) else None,
            reduce_axes=(),
        )

    def _samples(self, rule: Rule, rank: int) -> int | None:
        if rule.scope == "element" or self.batch_axis is None:
            return None
        return self.batch_axis % rank

    def _native(self, kernel: Callable[..., Array], x: Array, g: Array) -> Array:
        bounds = rounded(self.site.bounds, x.dtype)
        if flips(self.rule, self.gradient_of):
            return -kernel(-g, x, bounds=bounds, batch_axis=self.batch_axis)
        return kernel(g, x, bounds=bounds, batch_axis=self.batch_axis)


def _evaluate(
    x: Array,
    g: Array,
    active: Any,
    *,
    rule: Rule,
    bounds: Bounds,
    batch_axis: int | None,
    gradient_of: GradientOf | None,
    reduce_axes: tuple[str, ...],
) -> Array:
    """Run a rule on exact comparisons."""
    return plain(
        evaluate(
            rule,
            Exact(x),
            Exact(g),
            bounds=bounds,
            xp=Namespace(reduce_axes),
            batch_axis=batch_axis,
            gradient_of=gradient_of,
            active=active,
            standard=STANDARD,
        )
    )


# Outside a trace JAX compiles each operation by itself for each shape, and a rule has a dozen.
_evaluate_at_once = jax.jit(
    _evaluate,
    static_argnames=("active", "rule", "bounds", "batch_axis", "gradient_of", "reduce_axes"),
)


def run_ruled(x: Array, call: RuleCall) -> Array:
    """Run an activation so that `call.rule` stands behind it."""
    active = call.active.value if isinstance(call.active, Traced) else None

    def primal(x: Array, active: Any) -> Array:
        with outside():
            return call.base(x)

    def forward(x: Array, active: Any) -> tuple[Array, Any]:
        for frame in frames():
            frame.ledger.differentiated(owner_in_force())
        return ruled(x, active), (x, active)

    def backward(kept: Any, g: Array) -> tuple[Array, None]:
        with outside(), unscoped():
            return call.backward(kept[0], g, kept[1]), None

    ruled: Any = jax.custom_vjp(_named(primal, call.site, call.rule))
    ruled.defvjp(forward, backward)
    return ruled(x, active)


def run_left_alone(x: Array, site: Site, base: Callable[[Array], Array], jvp: Any) -> Array:
    """Run an activation with its own gradient, marked as left alone on purpose."""

    def primal(x: Array) -> Array:
        with outside():
            return base(x)

    alone: Any = jax.custom_jvp(_named(primal, site, None))

    def derivative(primals: Any, tangents: Any) -> Any:
        with outside():
            return jvp(primals, tangents)

    alone.defjvp(derivative)
    return alone(x)


def site_called(name: str) -> tuple[Site, Rule | None] | None:
    """Return the site and its rule that a function's name in a jaxpr stands for, or None."""
    return _SITES.get(name)


def rounded(bounds: Bounds, dtype: Any) -> Bounds:
    """Return the bounds in the activation's own precision, as its forward uses them."""
    return _round(bounds[0], jnp.dtype(dtype)), _round(bounds[1], jnp.dtype(dtype))


@functools.cache
def _round(value: float, dtype: Any) -> float:
    return float(np.asarray(value, dtype))


@functools.cache
def _kernel(rule: Rule) -> Callable[..., Array] | None:
    return kernel_for(rule, "jax")


def _named(function: Callable[..., Any], site: Site, rule: Rule | None) -> Callable[..., Any]:
    mark = _MARKS.setdefault((site, rule), f"relurules_{next(_counter)}")
    _SITES[mark] = (site, rule)
    function.__name__ = function.__qualname__ = mark
    return function


@custom_vmap
def _unmapped(x: Array) -> Array:
    """Return x; refuse to be mapped, where axis 0 of what a function sees is no batch."""
    return x


@_unmapped.def_vmap
def _refuse(axis_size: int, in_batched: Any, x: Array) -> Any:
    raise ValueError(
        "A rule that looks at whole samples, such as redirected, met jax.vmap, inside which the "
        "batch axis of an activation is no batch. Pass batch_axis=None to relurules.apply, which "
        "makes each mapped example one sample."
    )


def _checked(out: Array, g: Array, rule: Rule) -> Array:
    shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", type(out).__name__)
    if shape != g.shape or dtype != g.dtype:
        raise TypeError(
            f"Rule {rule.name!r} returned {shape} {dtype} for a gradient of {g.shape} {g.dtype}; a "
            "rule keeps shape and dtype."
        )
    return out
