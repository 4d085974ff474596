"""Which rule an activation takes that is being called, and the call itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from relurules.backend import Bounds, Decision, Rule, Site
from relurules_jax._bits import Array, on_floats
from relurules_jax._frames import Frame, frames
from relurules_jax._here import owner_in_force
from relurules_jax._names import site_name
from relurules_jax._vehicle import RuleCall, run_left_alone, run_ruled


def intercept(
    x: Any,
    op: str,
    bounds: Bounds,
    base: Callable[[Array], Array],
    jvp: Any,
    *,
    base_name: str | None = None,
) -> Array:
    """Run an activation under the rules in force: the innermost that takes the site wins."""
    name = site_name(op) if base_name is None else "/".join(filter(None, (base_name, op)))
    site = Site(name, op, bounds)
    dtype = jnp.result_type(x)
    if not on_floats(dtype):
        return base(x)
    chosen = _choose(frames(), site, f"{dtype.name}[{','.join(map(str, jnp.shape(x)))}]")
    if chosen is None:
        return run_left_alone(x, site, base, jvp)
    frame, rule = chosen
    return run_ruled(x, _call(frame, rule, site, base, jnp.ndim(x)))


def _choose(in_force: tuple[Frame, ...], site: Site, shape: str) -> tuple[Frame, Rule] | None:
    chosen: tuple[Frame, Rule] | None = None
    for frame in reversed(in_force):
        decision = frame.plan.decide(site)
        if chosen is not None:
            decision = Decision(chosen[1], f"{chosen[1].name}, an inner rule")
        elif decision.rule is not None:
            chosen = frame, decision.rule
        frame.ledger.site(site, decision, shape)
        if (owner := owner_in_force()) and decision.rule is not None:
            frame.ledger.inside(owner)
    return chosen


def _call(
    frame: Frame, rule: Rule, site: Site, base: Callable[[Array], Array], rank: int
) -> RuleCall:
    rule.check_rank(rank, frame.plan.batch_axis)
    return RuleCall(
        site=site,
        base=base,
        rule=rule,
        active=frame.active,
        batch_axis=frame.plan.batch_axis,
        gradient_of=frame.plan.gradient_of,
        reduce_axes=_axes(frame, rule),
    )


def _axes(frame: Frame, rule: Rule) -> tuple[str, ...]:
    if rule.scope == "element":
        return ()
    manual = tuple(jax.sharding.get_abstract_mesh().manual_axes)
    if frame.reduce_axes is None and manual:
        raise ValueError(
            f"Rule {rule.name!r} looks at whole samples, and runs inside shard_map or pmap over "
            f"{manual}, where a sample may be spread over devices. Call "
            "relurules_jax.apply(..., reduce_axes=(names,)) with the axes over which features "
            "are sharded, or reduce_axes=() if none is."
        )
    return frame.reduce_axes or ()
