"""What happens at each Torch function while the model's forward runs.

A `TorchFunctionMode` sees every spelling of an activation, also one bound to a name long ago,
and none outside the forward, because it is entered and left there. Whatever it does not know
it passes on.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from relurules.backend import Bounds, Plan, Rule
from relurules_torch._callers import Place, place
from relurules_torch._function import RuleCall, Run, apply_rule, apply_simply, new_call
from relurules_torch._graph import boundary_of, leave_alone
from relurules_torch._kernels import Tensor, kernel_of
from relurules_torch._ledger import Entry, Ledger
from relurules_torch._operations import (
    OPERATIONS,
    Operation,
    call_with_input,
    input_of,
    looks_like_gate,
    tensors_of,
)
from relurules_torch._quantised import in_integers, is_observer
from relurules_torch._smooth import Smooth
from relurules_torch._traced import Traced

_DETAILS = {
    "site": "its bounds are no two numbers lo < hi, so it is no clip(x, lo, hi).",
    "gate": "match='structural' takes it",
    "other": "has no rule",
    "smooth": "has no rule",
}
_TAKES_SMOOTH = "smooth_activations='incoming', 'outgoing' or 'gate' takes it"
_REPORTED = {"site": "missed", "smooth": "other"}


class Interceptor(TorchFunctionMode):
    """Puts the rule behind each activation that runs inside this mode."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        super().__init__()
        self._plan = plan
        self._ledger = ledger
        self._known: dict[tuple[Any, Place], Entry] = {}
        self._calls: dict[Any, RuleCall] = {}
        self._smooth = Smooth(plan)
        self.traced = Traced(plan, self._smooth)
        self._details = _DETAILS | ({"smooth": _TAKES_SMOOTH} if plan.may_take_smooth else {})
        self.root = next(iter(ledger.paths))
        self.active: Any = True

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run `func`, with the rule behind it where it is an activation of the model."""
        operation = OPERATIONS.get(func)
        if operation is None:
            return func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return self.traced.run(func, operation, args, kwargs or {}, self.active)
        where = place(self._ledger.paths, 1)
        if where is None:  # not this model's: a mode left behind by a KeyboardInterrupt
            return func(*args, **(kwargs or {}))
        entry = self._known.get((func, where))
        if entry is None:
            return self._meet(func, operation, where, args, kwargs or {})
        entry.calls += 1
        call = entry.prepared
        if call is None or call.active is not self.active or not _is_simple(call, args, kwargs):
            return self._run(entry, func, operation, args, kwargs or {})
        return apply_simply(args[0], operation.plain, call)

    def behind(self, x: Tensor, where: Place, bounds: Bounds, output: Tensor) -> Tensor | None:
        """Put the rule behind an activation that ran already, or return None if it takes none."""
        entry = self._ledger.site(where, type(where[0]).__name__, bounds)
        entry.calls += 1
        if entry.decision.rule is None:
            return None
        if not _is_differentiated(x):
            return output
        value = output.detach()
        return apply_rule(x, lambda _: value, self._prepare(x, entry))

    def _meet(self, func: Any, operation: Operation, where: Place, args: Any, kwargs: Any) -> Any:
        if operation.status == "smooth" and self._smooth.is_wanted:
            return self._run_smooth(func, operation, where, args, kwargs)
        if getattr(input_of(args, kwargs), "is_quantized", False):
            operation = in_integers(operation)
        bounds = operation.bounds(args, kwargs)
        wanted = operation.status == "site" or self._plan.match == "structural"
        if bounds is None or not wanted:
            return self._pass_by(func, operation, where, args, kwargs)
        entry = self._ledger.site(where, operation.name, bounds)
        entry.calls += 1
        if operation.has_fixed_bounds:
            self._known[func, where] = entry
        return self._run(entry, func, operation, args, kwargs)

    def _run(self, entry: Entry, func: Any, operation: Operation, args: Any, kwargs: Any) -> Any:
        x = input_of(args, kwargs)
        if entry.decision.rule is None or not isinstance(x, torch.Tensor):
            return _alone(func, args, kwargs)
        inplace = operation.is_inplace(args, kwargs)
        run = operation.plain
        if run is None or inplace:
            run = functools.partial(call_with_input, func, args, kwargs)
        if torch._C._len_torch_function_stack():
            _tell_outer(operation)
            run = _unseen(run)
        if not _is_differentiated(x):
            return run(x)
        call = self._prepare(x, entry, inplace=inplace, saves_output=operation.saves_output)
        return apply_rule(x, run, call)

    def _run_smooth(
        self, func: Any, operation: Operation, where: Place, args: Any, kwargs: Any
    ) -> Any:
        entry = self._ledger.site(where, operation.name, None)
        entry.calls += 1
        if entry.decision.rule is None:
            return func(*args, **kwargs)
        run: Run = functools.partial(call_with_input, func, args, kwargs)
        if torch._C._len_torch_function_stack():
            _tell_outer(operation)
            run = _unseen(run)
        x = input_of(args, kwargs)
        if self.active is False or not any(map(_is_differentiated, tensors_of(args, kwargs))):
            return run(x)
        return self._smooth.run(x, run, self.active, operation.is_inplace(args, kwargs))

    def _prepare(
        self, x: Tensor, entry: Entry, *, inplace: bool = False, saves_output: bool = False
    ) -> RuleCall:
        call = entry.prepared
        if call is None or call.active is not self.active or call.inplace is not inplace:
            call = entry.prepared = self._describe(entry, inplace, saves_output)
        if call.rule.scope == "sample":
            _check_samples(x, call.rule, call.batch_axis)
        return call

    def _describe(self, entry: Entry, inplace: bool, saves_output: bool) -> RuleCall:
        rule = entry.decision.rule or self._plan.standard
        if self.active is False:
            rule = rule.after or self._plan.standard
        key = (id(rule), cast(Bounds, entry.bounds), inplace, saves_output)
        call = self._calls.get(key)
        if call is None or call.active is not self.active:
            kernel = kernel_of(rule) if isinstance(self.active, bool) else None
            call = self._calls[key] = new_call(
                self._plan,
                rule,
                kernel,
                bounds=key[1],
                inplace=inplace,
                saves_output=saves_output,
                active=self.active,
            )
            call.is_simple = saves_output and not inplace and rule.scope == "element"
        return call

    def overruled(self, operation: Operation) -> None:
        """Note that a rule applied later took an activation of this model."""
        if (where := place(self._ledger.paths, 1)) is not None:
            self._ledger.note(where, "overruled", operation.name, "an inner rule took it")

    def _pass_by(
        self, func: Any, operation: Operation, where: Place, args: Any, kwargs: Any
    ) -> Any:
        if operation.status == "gate" and (
            is_observer(where[0]) or not looks_like_gate(operation, args, kwargs)
        ):
            return func(*args, **kwargs)
        status = _REPORTED.get(operation.status, operation.status)
        detail = operation.detail or self._details[operation.status]
        line = self._ledger.note(where, status, operation.name, detail)
        if line.status == "excluded":
            return _alone(func, args, kwargs)
        return func(*args, **kwargs)


def _is_simple(call: RuleCall, args: Any, kwargs: Any) -> bool:
    """Return whether a call that was met before asks for nothing special, as most do."""
    return bool(
        call.is_simple
        and len(args) == 1
        and not (kwargs and kwargs.get("inplace"))
        and not torch._C._len_torch_function_stack()
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._functorch.is_functorch_wrapped_tensor(args[0])
        and torch.is_grad_enabled()
        and args[0].requires_grad
    )


def _alone(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an activation that keeps its own gradient on purpose, and mark its node as such."""
    boundary = boundary_of((args, kwargs))  # before, since the call may change its input
    output = func(*args, **kwargs)
    leave_alone(output, boundary)
    return output


def _is_differentiated(x: Tensor) -> bool:
    if torch._C._are_functorch_transforms_active():
        return True
    return bool(x.requires_grad and torch.is_grad_enabled())


def _check_samples(x: Tensor, rule: Rule, batch_axis: int | None) -> None:
    rule.check_rank(x.dim(), batch_axis)
    if batch_axis is not None and _is_mapped(x):
        raise ValueError(
            f"Rule {rule.name!r} looks at whole samples, and inside torch.func.vmap axis "
            f"{batch_axis} of an activation is no batch. Pass batch_axis=None to "
            "relurules.apply, which makes each mapped example one sample."
        )


def _is_mapped(x: Tensor) -> bool:
    functorch = torch._C._functorch
    while functorch.is_gradtrackingtensor(x):
        x = functorch.get_unwrapped(x)
    return bool(functorch.is_batchedtensor(x))


def _tell_outer(operation: Operation) -> None:
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, Interceptor):
            mode.overruled(operation)


def _unseen(run: Run) -> Run:
    """Return `run` as outer rules do not see it: this one has won."""

    def quiet(x: Tensor) -> Tensor:
        if type(x) is not Tensor and not isinstance(x, torch.nn.Parameter):
            return run(x)  # a subclass keeps its type only through its own __torch_function__
        with torch._C.DisableTorchFunction():
            return run(x)

    return quiet
