"""Putting a rule behind a JAX model: a callable that sets the rule while the model runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

import jax

import relurules
from relurules import Always, Applied
from relurules.backend import Attachment, Plan, Report, State, judge, judge_gates
from relurules_jax import _observe, _switch
from relurules_jax._arrays import JaxArrays
from relurules_jax._frames import Frame, Traced, frames, inside, key_of
from relurules_jax._ledger import Ledger
from relurules_jax._models import Call, RuledModel, check, unwrapped
from relurules_jax._scopes import Scopes
from relurules_jax._structural import call_rewritten
from relurules_jax._traces import is_clean, is_differentiated, is_recording

_reduce_axes: ContextVar[tuple[str, ...] | None] = ContextVar("reduce_axes", default=None)

_install_once = threading.Lock()

_FORWARD = (
    "A gradient rule is not a derivative and has no forward mode (jvp, jacfwd, linearize). Use "
    "reverse mode (jax.grad, vjp, jacrev; jacrev(jacrev(f)) for second derivatives), or "
    "applied.paused() for the plain tangent."
)
_BAKED_IN = (
    "The schedule's step was read while JAX records a program (jit, scan, ...), which would bake "
    "it in: the compiled function would never see another step. Pass the step as an argument of "
    "the jitted function and call applied.at(step)(...) inside, which compiles once."
)
_TRACED_STRUCTURAL = (
    "match='structural' rewrites jaxprs, into which a traced step cannot be passed. Give "
    "applied.at() an int, which compiles once while the rule is active and once after."
)


class JaxBackend:
    """The backend for JAX functions and the models of its libraries."""

    name = "jax"
    arrays = JaxArrays()

    def __init__(self) -> None:
        with _install_once:
            _switch.install()
            _observe.install()

    def attach(self, model: Any, plan: Plan, state: State, /) -> Attachment:
        """Put the plan's rules behind the model's activations."""
        check(model)
        return JaxAttachment(model, plan, state, _reduce_axes.get())


def apply_reduced(
    model: Any, rule: Any, *, reduce_axes: Iterable[str] | None, **options: Any
) -> Applied:
    """Apply a rule with the axes over which features are sharded."""
    token = _reduce_axes.set(None if reduce_axes is None else tuple(reduce_axes))
    try:
        return relurules.apply(model, rule, backend="jax", **options)
    finally:
        _reduce_axes.reset(token)


class JaxAttachment:
    """One rule behind one JAX model."""

    def __init__(
        self, model: Any, plan: Plan, state: State, reduce_axes: tuple[str, ...] | None
    ) -> None:
        self.calls = 0
        self._plan = plan
        self._key = key_of(plan)
        self._state = state
        self._scopes = Scopes(state, plan.schedule)
        self._reduce_axes = reduce_axes
        self._ledger = Ledger(plan)
        self._removed = False
        self._gates_told = False
        inner, self._outer = unwrapped(model)
        self.model = RuledModel(inner, self)

    @property
    def hint(self) -> str:
        """What to do where the model was never called."""
        return (
            "JAX functions are not changed: transform and call what `with relurules.apply(...) as "
            "ruled` gives, as in jax.grad(ruled), inside the with block."
        )

    def report(self) -> Report:
        """Return what was reached and what was not, so far."""
        return self._ledger.report("jax")

    def follow(self, optimizer: Any, advance: Callable[[], None], /) -> None:
        """Refuse: JAX's optimisers are functions and cannot tell when they have stepped."""
        raise TypeError(
            f"follow() needs an optimiser that tells when it has stepped, and JAX's are functions; "
            f"got {type(optimizer).__name__}. Pass the step count to applied.at(step), such as "
            "the one that optax keeps in its state, or call applied.advance()."
        )

    def remove(self) -> None:
        """Let the ruled model refuse further calls; the model itself was never changed."""
        self._removed = True

    @property
    def is_removed(self) -> bool:
        """Whether the rule was removed."""
        return self._removed

    def run(self, function: Call, args: Any, kwargs: Any, /) -> Any:
        """Call `function` under the rule, inside the rules that were applied earlier."""
        if self._removed:
            raise RuntimeError(
                "This rule was removed. Call the model itself for its plain gradient, or call "
                "relurules.apply anew."
            )
        outer = self._outer
        if outer is None or outer.is_removed:
            return self._run(function, args, kwargs)
        return outer.run(lambda *a, **k: self._run(function, a, k), args, kwargs)

    def _run(self, function: Call, args: Any, kwargs: Any) -> Any:
        self.calls += 1
        if self._state.paused:
            return function(*args, **kwargs)
        frame = self._frame()
        with inside(frame):
            if self._plan.match == "structural":
                output = call_rewritten(
                    function, args, kwargs, lambda jaxpr: _observe.note_jaxpr(frames(), jaxpr)
                )
            else:
                output = call_model(function, args, kwargs)
        self._settle(frame)
        return output

    def _frame(self) -> Frame:
        return Frame(self._key, self._active(), self._reduce_axes, self._ledger)

    def _active(self) -> bool | Traced:
        if isinstance(self._plan.schedule, Always):
            return True
        step = self._state.step
        is_traced = isinstance(step, jax.core.Tracer)
        if not is_traced and is_recording() and not self._scopes.fixes_step:
            raise RuntimeError(_BAKED_IN)
        if is_traced and self._plan.match == "structural":
            raise TypeError(_TRACED_STRUCTURAL)
        active = self._plan.schedule.active(step)
        return Traced(active) if is_traced else bool(active)

    def _settle(self, frame: Frame) -> None:
        if is_differentiated() or is_recording():
            self._ledger.settle_owners()
        if not self._ledger.changed or self._may_be_hidden(frame):
            return
        report = self.report()
        judge(report, self._plan)
        if self._plan.missing != "ignore" and not self._gates_told:
            self._gates_told = judge_gates(report)
        self._ledger.changed = False

    def _may_be_hidden(self, frame: Frame) -> bool:
        """Return whether compiled code that ran unseen may hold the sites that were not met.

        Outside any transformation JAX runs what it compiled under equal rules without Python. No
        gradient is taken there, so there is nothing to complain about either.
        """
        known = (frame.plan, frame.active)
        seen = known in _seen
        if not isinstance(frame.active, Traced):
            _seen.add(known)
        return seen and is_clean() and not self._ledger.sites()


_seen: set[Any] = set()


def call_model(function: Call, args: Any, kwargs: Any) -> Any:
    """Call the model; where Python frames are walked, they are walked up to here."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if "forward-mode autodiff" in str(error):
            raise TypeError(_FORWARD) from error
        raise
