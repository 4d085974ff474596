"""`match="structural"`: the model is traced to a jaxpr, and hand-written ReLUs in it are swapped.

What takes an activation's place has its shape and dtype, so the jaxprs inside jit, scan, while,
cond, checkpoint and shard_map are rewritten without knowing those primitives. A model that is
traced this way must be a pure function of arrays; that is why it is done on request only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core

from relurules_jax._frames import outside
from relurules_jax._here import quiet
from relurules_jax._intercept import intercept
from relurules_jax._models import Call
from relurules_jax._names import scope
from relurules_jax._patterns import Match, match
from relurules_jax._walker import of_custom_rule

_LEAVE = ("custom_vjp_call",)


def call_rewritten(function: Call, args: Any, kwargs: Any, note: Callable[[Any], None]) -> Any:
    """Call a pure function with its hand-written activations under the rules in force."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    is_array = [_is_array(leaf) for leaf in leaves]
    arrays = [leaf for leaf, yes in zip(leaves, is_array, strict=True) if yes]

    def on_arrays(*values: Any) -> Any:
        left = iter(values)
        full = [next(left) if yes else v for v, yes in zip(leaves, is_array, strict=True)]
        full_args, full_kwargs = jax.tree.unflatten(tree, full)
        return function(*full_args, **full_kwargs)

    with quiet():
        closed, shape = jax.make_jaxpr(on_arrays, return_shape=True)(*arrays)
        rewritten = core.ClosedJaxpr(_rewritten(closed.jaxpr), closed.consts)
    note(rewritten.jaxpr)
    with outside():
        outputs = core.jaxpr_as_fun(rewritten)(*arrays)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def _rewritten(jaxpr: Any) -> Any:
    matches = _matches(jaxpr)
    parts = _parts(jaxpr, matches)
    return jaxpr.replace(
        eqns=[
            _swapped(eqn, matches[id(eqn)]) if id(eqn) in matches else _inside(eqn)
            for eqn in jaxpr.eqns
            if id(eqn) not in parts
        ]
    )


def _matches(jaxpr: Any) -> dict[int, Match]:
    makers: dict[Any, Any] = {}
    matches = {}
    for eqn in jaxpr.eqns:
        if (found := match(eqn, makers)) is not None:
            matches[id(eqn)] = found
        makers.update((var, eqn) for var in eqn.outvars)
    return matches


def _parts(jaxpr: Any, matches: dict[int, Match]) -> set[int]:
    """Return the equations that serve one larger match only, as the max in min(max(x, 0), 6)."""
    atoms = [*jaxpr.outvars, *(atom for eqn in jaxpr.eqns for atom in eqn.invars)]
    uses = Counter(id(atom) for atom in atoms)
    parts = [part for found in matches.values() for part in found.eqns[:-1]]
    return {id(part) for part in parts if uses[id(part.outvars[0])] == 1}


def _inside(eqn: Any) -> Any:
    """Return an equation with the jaxprs in its parameters rewritten."""
    if eqn.primitive.name in _LEAVE:
        return eqn
    if eqn.primitive.name == "custom_jvp_call":
        return _custom(eqn)
    return eqn.replace(params={k: _value(v) for k, v in eqn.params.items()})


def _value(value: Any) -> Any:
    if isinstance(value, core.ClosedJaxpr):
        return core.ClosedJaxpr(_rewritten(value.jaxpr), value.consts)
    if isinstance(value, core.Jaxpr):
        return _rewritten(value)
    if isinstance(value, tuple) and any(isinstance(one, core.ClosedJaxpr) for one in value):
        return tuple(map(_value, value))
    return value


def _custom(eqn: Any) -> Any:
    """Return a relu that was traced outside the rule under it, and any other as it is."""
    closed = eqn.params["call_jaxpr"]
    info = closed.jaxpr.debug_info
    found = of_custom_rule(info.func_src_info or "", info.func_name)
    if not found or found[0].status != "missed":
        return eqn
    high = 6.0 if info.func_name == "relu6" else float("inf")
    return _swapped(eqn, Match(info.func_name, eqn.invars[0], (0.0, high), (eqn,)))


def _swapped(eqn: Any, found: Match) -> Any:
    base = _computing(found.x, found.eqns)

    def activation(x: Any) -> Any:
        def derivative(primals: Any, tangents: Any) -> Any:
            return jax.jvp(base, primals, tangents)

        name = scope(eqn.source_info.name_stack)
        return intercept(x, found.op, found.bounds, base, derivative, base_name=name)

    aval = found.x.aval
    spec = jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    jitted = jax.make_jaxpr(jax.jit(activation))(spec).eqns[0]
    return jitted.replace(invars=[found.x], outvars=eqn.outvars, source_info=eqn.source_info)


def _computing(x: Any, eqns: Sequence[Any]) -> Callable[[Any], Any]:
    last = eqns[-1]
    info = core.DebugInfo("relurules", "hand-written activation", ("x",), ("y",))
    closed = core.ClosedJaxpr(core.Jaxpr([], [x], last.outvars, list(eqns), debug_info=info), [])
    return lambda value: core.jaxpr_as_fun(closed)(value)[0]


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | float | complex) or hasattr(leaf, "__array__")
