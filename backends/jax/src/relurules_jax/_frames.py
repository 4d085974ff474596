"""Which rules are in force here: a value that JAX counts among the keys of its caches.

`jax.make_user_context` is public, local to the thread, part of the key under which jit finds
what it compiled, and part of the key of every trace. So a function that was jitted before a
rule, inside it or after it finds what was traced under the same rules and nothing else; no
cache is ever cleared.

Two applied rules that decide alike are equal keys, so that applying a rule anew for each image
compiles nothing anew.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any

import jax

from relurules import Always
from relurules.backend import Plan
from relurules_jax._ledger import Ledger

_context = jax.make_user_context(None)


class Traced:
    """A traced truth value; equal to itself alone, so that no cache hands it to another trace."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One applied rule while its model runs.

    Attributes:
        plan: What to decide by, without what does not change the computation.
        active: Whether the schedule is running: a bool, or a traced one.
        reduce_axes: Mesh axes over which features are sharded; None is unknown.
        ledger: Where to note what is met; no part of the key.
    """

    plan: Plan
    active: bool | Traced
    reduce_axes: tuple[str, ...] | None
    ledger: Ledger = dataclasses.field(compare=False)


def frames() -> tuple[Frame, ...]:
    """Return the applied rules in force on this thread, the outermost first."""
    return _context.value or ()


def inside(*added: Frame) -> AbstractContextManager[None]:
    """Return a context in which these rules are in force too."""
    return _context((*frames(), *added))  # type: ignore[no-any-return]


def only(in_force: tuple[Frame, ...]) -> AbstractContextManager[None]:
    """Return a context in which these rules are in force and no others."""
    return _context(in_force)  # type: ignore[no-any-return]


def outside() -> AbstractContextManager[None]:
    """Return a context in which no rule is in force."""
    return _context(None)  # type: ignore[no-any-return]


def key_of(plan: Plan) -> Plan:
    """Return the part of a plan that changes what is computed."""
    return dataclasses.replace(plan, schedule=Always(), missing="error")
