"""A look at what JAX runs while a rule is in force: everything that is no named activation.

Python calls of `jax.nn.relu` are seen by `_switch`. A hand-written `jnp.maximum(x, 0)`, a
function that was jitted and traced earlier, an exported function or somebody's custom gradient
are seen only where JAX binds a primitive. So the few primitives that matter are given, once, a
subclass of their own class that notes the call and passes it on unchanged. The model is not traced
a second time, which would run side effects twice and break stateful modules.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, jaxprs_in_params, primitives

from relurules.backend import Decision
from relurules_jax._custom import functions_of, taking_along
from relurules_jax._frames import Frame, frames
from relurules_jax._here import below, inside, is_below, is_quiet, owner_in_force
from relurules_jax._intercept import intercept
from relurules_jax._names import frames_above, is_normalisation, is_own_functions, place_name
from relurules_jax._scopes import unscoped
from relurules_jax._vehicle import site_called
from relurules_jax._walker import OWN_RULE, Finding, constant, findings, inspect, of_custom_rule

_OBSERVED = [
    "jit_p",
    "pjit_p",
    "custom_jvp_call_p",
    "custom_vjp_call_p",
    "max_p",
    "min_p",
    "clamp_p",
    "select_n_p",
    "tanh_p",
    "logistic_p",
    "scan_p",
    "while_p",
    "cond_p",
    "remat_p",
    "closed_call_p",
]
_OWN_BIND = "relurules_own_bind"


class Observer:
    """Notes each bind of a primitive while a rule is in force."""

    name: str

    def bind(self, *args: Any, **params: Any) -> Any:
        """Note the call, and pass it on."""
        in_force = frames()
        if not in_force or is_below():
            return self._pass_on(*args, **params)
        if self.name.startswith("custom_"):
            return self._bind_custom(in_force, args, params)
        if _is_hard_tanh(self.name, params):
            return [_hard_tanh(args[0], functools.partial(self._run_alike, params))]
        _note(in_force, self.name, args, params)
        with below():
            return self._pass_on(*args, **params)

    def _pass_on(self, *args: Any, **params: Any) -> Any:
        own = vars(self).get(_OWN_BIND)  # checkpoint's primitive has a bind on the object
        if own is not None:
            return own(*args, **params)
        return super().bind(*args, **params)  # type: ignore[misc]

    def _run_alike(self, params: dict[str, Any], x: Any) -> Any:
        """Run a program of JAX's own, compiled as without a rule, and once for all rules.

        Run op by op it would keep the subnormals that XLA flushes where it fuses the ops.
        """
        closed = params["jaxpr"]
        rest = frozenset((key, value) for key, value in params.items() if key != "jaxpr")
        with unscoped():
            return self._pass_on(x, **params | {"jaxpr": _first(_Program(closed, rest))})

    def _bind_custom(self, in_force: tuple[Frame, ...], args: Any, params: Any) -> Any:
        info = functions_of(args, params)[0].debug_info
        owner = info.func_name
        if _note_custom(in_force, info.func_src_info or "", owner):
            with below():
                return self._pass_on(*args, **params)
        args, params = taking_along(in_force, owner, args, params)
        with inside(owner):
            return self._pass_on(*args, **params)


def install() -> None:
    """Let the primitives that matter be observed; harmless when done already."""
    for primitive in (*(getattr(primitives, name, None) for name in _OBSERVED), *_unnamed()):
        if isinstance(primitive, Primitive) and not isinstance(primitive, Observer):
            own = type(primitive)
            if "bind" in vars(primitive):
                setattr(primitive, _OWN_BIND, vars(primitive).pop("bind"))
            primitive.__class__ = type(
                own.__name__, (Observer, own), {"__module__": own.__module__}
            )


def _note_custom(in_force: tuple[Frame, ...], where: str, name: str) -> bool:
    """Note a custom gradient, and return whether nothing of interest runs inside it."""
    if site_called(name) is not None:  # noted by the switch already
        return True
    found = of_custom_rule(where, name)
    for one in found or ():
        _record(in_force, one, traced_earlier=False)
    return found is not None


@functools.cache
def _unnamed() -> tuple[Any, ...]:
    """Return primitives that no public module names, as they stand in a jaxpr."""
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("one",))
    whole = jax.sharding.PartitionSpec()
    mapped = jax.shard_map(lambda x: x, mesh=mesh, in_specs=whole, out_specs=whole)
    traced = (jax.make_jaxpr(one)(0.0) for one in (jax.checkpoint(lambda x: x), mapped))
    return tuple(eqn.primitive for jaxpr in traced for eqn in jaxpr.eqns)


def note_jaxpr(in_force: tuple[Frame, ...], jaxpr: Any) -> None:
    """Note what a jaxpr holds."""
    for found in findings(jaxpr):
        _record(in_force, found, traced_earlier=True)


def _is_hard_tanh(primitive: str, params: Any) -> bool:
    if primitive not in ("jit", "pjit") or params["name"] != "hard_tanh":
        return False
    closed = params["jaxpr"]
    if len(closed.in_avals) != 1 or len(closed.out_avals) != 1:  # its derivative has that name too
        return False
    return is_own_functions(closed.jaxpr.debug_info.func_src_info or "")


class _Program:
    """A jaxpr, equal to one that was traced later under another rule from the same function."""

    __slots__ = ("closed", "key")

    def __init__(self, closed: Any, rest: frozenset[Any]) -> None:
        self.closed = closed
        self.key = (tuple(closed.in_avals), rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=256)
def _first(program: _Program) -> Any:
    """Return the jaxpr of the equal program that was met first, which is compiled already."""
    return program.closed


def _hard_tanh(x: Any, run: Any) -> Any:
    def base(x: Any) -> Any:
        return run(x)[0]

    def derivative(primals: Any, tangents: Any) -> Any:
        return jax.jvp(base, primals, tangents)

    return intercept(x, "hard_tanh", (-1.0, 1.0), base, derivative)


def _note(in_force: tuple[Frame, ...], primitive: str, args: Any, params: Any) -> None:
    floats = any(_is_floating(a) for a in args)
    direct = inspect(primitive, params, [constant(a) for a in args], floats)
    inner = (
        []
        if direct is not None
        else [found for jaxpr in jaxprs_in_params(params) for found in findings(jaxpr)]
    )
    if (direct or inner) and not _is_internal():
        for one in direct or inner:
            _record(in_force, one, traced_earlier=bool(inner))


def _record(in_force: tuple[Frame, ...], found: Finding, *, traced_earlier: bool) -> None:
    """Note a finding; one in a jaxpr only if it is new, since its tracing was noted already."""
    name = found.name or place_name(found.kind)
    if is_quiet() or (found.status == "gate" and is_normalisation(name)):
        return
    for frame in in_force:
        if found.site is not None:
            site, rule = found.site
            decision = Decision(rule, rule.name if rule else "left alone")
            frame.ledger.site(site, decision, found.shape, only_new=True)
        elif found.status == "gate" and owner_in_force():
            frame.ledger.note("opaque", owner_in_force(), "custom gradient", OWN_RULE)
        else:
            frame.ledger.note(found.status, name, found.kind, found.detail, traced_earlier)


def _is_internal() -> bool:
    files = [frame.f_code.co_filename for frame in frames_above()]
    return any(is_own_functions(file) or is_normalisation(file) for file in files)


def _is_floating(value: Any) -> bool:
    return bool(jnp.issubdtype(getattr(value, "dtype", type(value)), jnp.floating))
