"""What a jaxpr holds: sites, gates, other nonlinearities, and regions that stay closed.

One table says what each primitive means. It serves a call that is being made, whose arguments
may be numbers, and an equation of a jaxpr that was traced earlier, whose arguments may be
literals, so that a function compiled long ago is reported like one that is traced now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from relurules.backend import Rule, Site
from relurules_jax._names import is_normalisation, is_own_functions, scope
from relurules_jax._vehicle import site_called

Constants: TypeAlias = Sequence[float | None]

_EXPORTED = "_export.py"
_MISSED = (
    "it was traced to a jaxpr outside the rule, which is run as it is. Apply the rule to the "
    "function itself, or use match='structural', which rewrites jaxprs."
)
_CLOSED = (
    "an exported function runs compiled code, in which no rule can act. Apply the rule before "
    "exporting: jax.export.export(jax.jit(applied.model))."
)
OWN_RULE = (
    "a custom_vjp or custom_jvp with an activation's max inside computes its own gradient. If "
    "that is what you want, exclude it by this name."
)
_GATE = "match='structural' takes it"
_OTHER = "has no rule"

OTHERS = frozenset(
    [
        "celu",
        "elu",
        "gelu",
        "glu",
        "hard_sigmoid",
        "hard_silu",
        "hard_swish",
        "leaky_relu",
        "log_sigmoid",
        "logistic",
        "mish",
        "relu_squared",
        "selu",
        "sigmoid",
        "silu",
        "soft_sign",
        "softplus",
        "sparse_plus",
        "sparse_sigmoid",
        "squareplus",
        "swish",
        "tanh",
    ]
)

_ALIASES = {"logistic": "sigmoid"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing met in a jaxpr: a row of the report to be, or a site that took a rule."""

    status: str
    kind: str
    detail: str
    name: str = ""
    shape: str = ""
    site: tuple[Site, Rule | None] | None = None


def findings(jaxpr: Any) -> Iterator[Finding]:
    """Yield everything of interest in a jaxpr, in order, and in the jaxprs inside it."""
    for eqn in jaxpr.eqns:
        name = scope(eqn.source_info.name_stack)
        if eqn.primitive.name in SKIPPED or is_normalisation(name):
            continue
        shape = str(eqn.invars[0].aval.str_short()) if eqn.invars else ""
        found = inspect(eqn.primitive.name, eqn.params, _literals(eqn.invars), _is_float(eqn))
        if found is None:
            for inner in core.jaxprs_in_params(eqn.params):
                yield from findings(inner)
        else:
            yield from (replace(f, name=f.name or name, shape=f.shape or shape) for f in found)


def inspect(
    primitive: str, params: dict[str, Any], constants: Constants, floats: bool
) -> list[Finding] | None:
    """Return what one call means, or None where the answer is inside its jaxprs."""
    if primitive in ("custom_jvp_call", "custom_vjp_call"):
        return _custom(params)
    if primitive in ("call_exported",):
        return [Finding("opaque", "exported", _CLOSED)]
    if primitive in ("jit", "pjit"):
        return _jitted(params, constants, floats)
    if floats and primitive in GATES and GATES[primitive](constants):
        return [Finding("gate", primitive, _GATE)]
    return (
        [Finding("other", _ALIASES.get(primitive, primitive), _OTHER)]
        if (primitive in OTHERS)
        else None
    )


def of_custom_rule(where: str, name: str) -> list[Finding] | None:
    """Return what a custom_jvp or custom_vjp is by its name and source, or None if unknown."""
    if (known := site_called(name)) is not None:
        return [Finding("site", known[0].kind, "", known[0].name, site=known)]
    if is_own_functions(where) and name in ("relu", "relu6"):
        return [Finding("missed", name, _MISSED)]
    if _EXPORTED in where:
        return [Finding("opaque", "exported", _CLOSED)]
    return [] if is_own_functions(where) else None


def _custom(params: dict[str, Any]) -> list[Finding] | None:
    closed: Any = params.get("call_jaxpr") or params.get("fun_jaxpr")
    info = closed.jaxpr.debug_info
    known = of_custom_rule(info.func_src_info or "", info.func_name)
    if known is not None:
        return known
    inner = list(findings(closed.jaxpr))
    return [_hidden(f, info.func_name) for f in inner]


def _hidden(found: Finding, owner: str) -> Finding:
    if found.status != "gate":
        return found
    return Finding("opaque", "custom gradient", OWN_RULE, owner)


def _jitted(params: dict[str, Any], constants: Constants, floats: bool) -> list[Finding] | None:
    name, where = params["name"], params["jaxpr"].jaxpr.debug_info.func_src_info or ""
    if name in JITTED_GATES and "jax" in where:
        is_gate = floats and JITTED_GATES[name](constants)
        return [Finding("gate", name, _GATE)] if is_gate else []
    if not is_own_functions(where):
        return None
    if name == "hard_tanh":
        return [Finding("missed", "hardtanh", _MISSED)]
    if name in ("relu", "relu6"):  # the activation object under jit, or what it computes
        inner = findings(params["jaxpr"].jaxpr)
        return [found for found in inner if found.status != "gate"]
    return [Finding("other", name, _OTHER)] if name in OTHERS else None


def _has_zero(constants: Constants) -> bool:
    return 0.0 in constants and None in constants


def _is_clip(constants: Constants) -> bool:
    return any(c is not None for c in constants[1:]) and constants[0] is None


def _is_clamp(constants: Constants) -> bool:
    return constants[1] is None and constants[0] is not None


def _is_where(constants: Constants) -> bool:
    return (
        constants[0] is None
        and sorted(c is None for c in constants[1:]) == [False, True]
        and (0.0 in constants[1:])
    )


GATES: dict[str, Callable[[Constants], bool]] = {
    "max": _has_zero,
    "min": _has_zero,
    "clamp": _is_clamp,
    "select_n": _is_where,
}
JITTED_GATES: dict[str, Callable[[Constants], bool]] = {
    "maximum": _has_zero,
    "minimum": _has_zero,
    "clip": _is_clip,
    "_where": _is_where,
}
SKIPPED = frozenset({"threefry2x32", "random_bits", "random_seed", "random_wrap", "random_unwrap"})


def constant(value: Any) -> float | None:
    """Return the number that an argument is, or None where it is none or is not known yet."""
    if isinstance(value, jax.core.Tracer) or np.size(value) != 1:
        return None
    if not jnp.issubdtype(getattr(value, "dtype", type(value)), np.number):
        return None
    return float(np.asarray(value).reshape(()).real)


def _literals(invars: Sequence[Any]) -> Constants:
    return [constant(v.val) if isinstance(v, core.Literal) else None for v in invars]


def _is_float(eqn: Any) -> bool:
    dtypes = (getattr(v.aval, "dtype", None) for v in eqn.outvars)
    return any(d is not None and jnp.issubdtype(d, jnp.floating) for d in dtypes)
