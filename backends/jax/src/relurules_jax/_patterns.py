"""How a hand-written ReLU looks in a jaxpr.

Each pattern reads one equation, and where needed those that made its operands, and gives the
input, the bounds and the equations that compute the activation from that input. Only constants
that stand in the jaxpr count: a bound that is computed is no activation's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax.extend import core

from relurules.backend import Bounds
from relurules_jax._walker import constant

Eqn: TypeAlias = Any
Makers: TypeAlias = Mapping[Any, Eqn]


@dataclass(frozen=True, slots=True)
class Match:
    """A hand-written activation.

    Attributes:
        op: How it is written.
        x: The variable it is an activation of.
        bounds: `(lo, hi)`.
        eqns: The equations that compute it from `x`, in order.
    """

    op: str
    x: Any
    bounds: Bounds
    eqns: tuple[Eqn, ...]


def match(eqn: Eqn, makers: Makers) -> Match | None:
    """Return the activation that an equation completes, or None."""
    name = eqn.params["name"] if eqn.primitive.name in ("jit", "pjit") else eqn.primitive.name
    reader = _READERS.get(name)
    if reader is None or not _is_floating(eqn.outvars[0]):
        return None
    found = reader(eqn, makers)
    return found if found and found.x.aval.shape == eqn.outvars[0].aval.shape else None


def _maximum(eqn: Eqn, makers: Makers) -> Match | None:
    x, bound = _operand(eqn)
    return Match("maximum", x, (0.0, math.inf), (eqn,)) if bound == 0 else None


def _minimum(eqn: Eqn, makers: Makers) -> Match | None:
    y, high = _operand(eqn)
    below = _maker(y, makers)
    inner = match(below, makers) if below is not None else None
    if inner is None or high is None or inner.op != "maximum" or not high > inner.bounds[0]:
        return None
    return Match("clip", inner.x, (inner.bounds[0], high), (*inner.eqns, eqn))


def _clamp(eqn: Eqn, makers: Makers) -> Match | None:
    low, x, high = eqn.invars
    return _clipped(x, _number(low), _number(high), eqn)


def _clip(eqn: Eqn, makers: Makers) -> Match | None:
    x, *bounds = eqn.invars
    names = [e.primitive.name for e in _flat(eqn.params["jaxpr"].jaxpr)]
    order = [name for name in names if name in ("max", "min")]
    if len(order) != len(bounds):
        return None
    by_name = dict(zip(order, map(_number, bounds), strict=True))
    return _clipped(x, by_name.get("max", -math.inf), by_name.get("min", math.inf), eqn)


def _where(eqn: Eqn, makers: Makers) -> Match | None:
    test, *cases = eqn.invars
    if len(cases) != 2:
        return None
    if eqn.primitive.name == "select_n":  # the case for False comes first
        cases.reverse()
    maker = _maker(test, makers)
    if maker is None or maker.primitive.name not in _PASSES:
        return None
    passes = _PASSES[maker.primitive.name]
    x, zero = cases if passes else reversed(cases)
    left, right = maker.invars
    zeros = [one for one in (_maker(zero, makers),) if one is not None]
    if left is not x or _number(right) != 0 or _value(zero, makers) != 0:
        return None
    return Match("where", x, (0.0, math.inf), (maker, *zeros, eqn))


def _clipped(x: Any, low: float | None, high: float | None, eqn: Eqn) -> Match | None:
    if low is None or high is None or not low < high or isinstance(x, core.Literal):
        return None
    return Match("clip", x, (low, high), (eqn,))


_PASSES = {"gt": True, "ge": True, "lt": False, "le": False}
_READERS: dict[str, Callable[[Eqn, Makers], Match | None]] = {
    "max": _maximum,
    "maximum": _maximum,
    "min": _minimum,
    "minimum": _minimum,
    "clamp": _clamp,
    "clip": _clip,
    "_where": _where,
    "select_n": _where,
}


def _operand(eqn: Eqn) -> tuple[Any, float | None]:
    """Return the variable and the constant of a binary equation, or no constant."""
    left, right = eqn.invars
    pair = (right, _number(left)) if isinstance(left, core.Literal) else (left, _number(right))
    return (pair[0], None) if isinstance(pair[0], core.Literal) else pair


def _maker(atom: Any, makers: Makers) -> Eqn | None:
    return None if isinstance(atom, core.Literal) else makers.get(atom)


def _number(atom: Any) -> float | None:
    return constant(atom.val) if isinstance(atom, core.Literal) else None


def _value(atom: Any, makers: Makers) -> float | None:
    maker = _maker(atom, makers)
    if maker is not None and maker.primitive.name == "broadcast_in_dim":
        return _number(maker.invars[0])
    return _number(atom)


def _flat(jaxpr: Any) -> list[Eqn]:
    inner = [e for eqn in jaxpr.eqns for j in core.jaxprs_in_params(eqn.params) for e in _flat(j)]
    return [*inner, *jaxpr.eqns]


def _is_floating(var: Any) -> bool:
    dtype = getattr(var.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.floating))
