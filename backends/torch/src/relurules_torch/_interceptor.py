"""What happens at each Torch function while the model's forward runs.

A `TorchFunctionMode` sees every spelling of an activation, also one bound to a name long ago,
and none outside the forward, because it is entered and left there. Whatever it does not know
it passes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from relurules.backend import Bounds, Plan, Rule
from torch.overrides import TorchFunctionMode

from relurules_torch._function import RuleCall, apply_rule
from relurules_torch._kernels import Kernel, Tensor, kernel_of
from relurules_torch._ledger import Ledger, Place
from relurules_torch._operations import OPERATIONS, Operation, is_inplace, looks_like_gate

LEFT_ALONE = "relurules_left_alone"
"""Marks the autograd node of an activation that keeps its own gradient on purpose."""

_DETAILS = {
    "site": "its bounds are no two numbers lo < hi, so it is no clip(x, lo, hi).",
    "gate": "match='structural' takes it",
    "other": "has no rule",
    "opaque": "a fused kernel with a ReLU inside. Write the cell with torch.relu, or exclude it.",
}


class Interceptor(TorchFunctionMode):  # type: ignore[misc]
    """Puts the rule behind each activation that runs inside this mode."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        super().__init__()
        self._plan = plan
        self._ledger = ledger
        self._kernels: dict[Rule, Kernel | None] = {}
        self.active: Any = True

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run `func`, with the rule behind it where it is an activation of the model."""
        kwargs = kwargs or {}
        operation = OPERATIONS.get(func)
        if operation is None:
            return func(*args, **kwargs)
        place = self._ledger.place(2)
        if place is None:  # not this model's: a mode left behind by a KeyboardInterrupt
            return func(*args, **kwargs)
        return self._intercept(func, operation, place, args, kwargs)

    def behind(self, x: Tensor, place: Place, bounds: Bounds, output: Tensor, op: str) -> Tensor:
        """Put the rule behind an activation that ran already and gave `output`."""
        entry = self._ledger.site(place, op, bounds)
        if entry.decision is None or entry.decision.rule is None:
            return output
        value = output.detach()
        return apply_rule(x, self._call(entry.decision.rule, bounds, lambda _: value))

    def _intercept(
        self, func: Any, operation: Operation, place: Place, args: Any, kwargs: Any
    ) -> Any:
        arguments = operation.arguments(args, kwargs)
        bounds = operation.bounds(arguments)
        wanted = operation.status == "site" or self._plan.match == "structural"
        if bounds is None or not wanted:
            self._note(place, operation, arguments)
            return func(*args, **kwargs)
        entry = self._ledger.site(place, operation.name, bounds)
        x = arguments["input"]
        if entry.decision is None or entry.decision.rule is None or not isinstance(x, Tensor):
            return _left_alone(func(*args, **kwargs))
        run = _quietly(func, args, kwargs)
        if not _is_differentiated(x):
            return run(x)
        call = self._call(
            entry.decision.rule,
            bounds,
            run,
            inplace=is_inplace(func, arguments),
            saves_output=operation.saves_output,
        )
        return apply_rule(x, self._checked(x, call))

    def _call(
        self,
        rule: Rule,
        bounds: Bounds,
        run: Callable[[Tensor], Tensor],
        *,
        inplace: bool = False,
        saves_output: bool = False,
    ) -> RuleCall:
        if isinstance(self.active, bool) and not self.active:
            rule = rule.after or self._plan.standard
        kernel = self._kernel(rule) if isinstance(self.active, bool) else None
        return RuleCall(
            run=run,
            rule=rule,
            bounds=bounds,
            inplace=inplace,
            keep_output=saves_output and kernel is not None and kernel.takes_output,
            kernel=kernel,
            batch_axis=self._plan.batch_axis,
            gradient_of=self._plan.gradient_of,
            active=True if isinstance(self.active, bool) else self.active,
        )

    def _kernel(self, rule: Rule) -> Kernel | None:
        if rule not in self._kernels:
            self._kernels[rule] = kernel_of(rule)
        return self._kernels[rule]

    def _checked(self, x: Tensor, call: RuleCall) -> RuleCall:
        call.rule.check_rank(x.dim(), call.batch_axis)
        if call.rule.scope == "sample" and call.batch_axis is not None and _is_mapped(x):
            raise ValueError(
                f"Rule {call.rule.name!r} looks at whole samples, and inside torch.func.vmap "
                f"axis {call.batch_axis} of an activation is no batch. Pass batch_axis=None to "
                "relurules.apply, which makes each mapped example one sample."
            )
        return call

    def _note(self, place: Place, operation: Operation, arguments: dict[str, Any]) -> None:
        if operation.status == "gate" and not looks_like_gate(operation, arguments):
            return
        status = "missed" if operation.status == "site" else operation.status
        self._ledger.note(place, status, operation.name, _DETAILS[operation.status])


def _left_alone(output: Any) -> Any:
    node = getattr(output, "grad_fn", None)
    if node is not None:
        node.metadata[LEFT_ALONE] = True
    return output


def _is_differentiated(x: Tensor) -> bool:
    if torch._C._are_functorch_transforms_active():
        return True
    return bool(torch.is_grad_enabled() and x.requires_grad)


def _is_mapped(x: Tensor) -> bool:
    functorch = torch._C._functorch
    while functorch.is_gradtrackingtensor(x):
        x = functorch.get_unwrapped(x)
    return bool(functorch.is_batchedtensor(x))


def _quietly(func: Any, args: Any, kwargs: Any) -> Callable[[Tensor], Tensor]:
    """Return `func` as a function of its input that no outer rule sees: this one has won."""

    def run(x: Tensor) -> Tensor:
        named = {k: x if k in ("input", "self") else v for k, v in kwargs.items()}
        positional = (x, *args[1:]) if args else ()
        if type(x) is not Tensor:  # a subclass keeps its type only by its own __torch_function__
            result: Tensor = func(*positional, **named)
            return result
        with torch._C.DisableTorchFunction():
            result = func(*positional, **named)
        return result

    return run
