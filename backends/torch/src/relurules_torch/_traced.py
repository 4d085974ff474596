"""What happens at each Torch function under Dynamo: the same, in a form that it can trace.

Dynamo knows no frames, hence no places and no names, and no entry of a ledger. Nothing here may
differ from one `apply` to the next, such as a counter: each would be one more compilation.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from relurules.backend import Bounds, Plan, Rule, Site, kind_of
from relurules.errors import UncoveredActivationError
from relurules_torch._function import RuleCall, RuleFunction, Run, new_call
from relurules_torch._kernels import Kernel, Tensor, traceable_kernel_of
from relurules_torch._messages import NAMES_IN_COMPILED, in_compiled
from relurules_torch._operations import Operation, call_with_input, input_of, tensors_of
from relurules_torch._smooth import Smooth

_REFUSED = ("site", "opaque")
Choice: TypeAlias = tuple[Rule | None, Kernel | None]


class Traced:
    """Puts a plan's rules behind activations in compiled code.

    Attributes:
        has_met: Whether code that was compiled so has run since this was last set to False.
    """

    def __init__(self, plan: Plan, smooth: Smooth) -> None:
        self._plan = plan
        self._smooth = smooth
        self._by_kind = _rules_by_kind(plan)
        self.has_met = False

    def run(self, func: Any, operation: Operation, args: Any, kwargs: Any, active: Any) -> Any:
        """Run `func`, with the rule behind it where it is an activation."""
        if operation.status == "smooth" and self._smooth.is_wanted:
            return self._run_smooth(func, operation, args, kwargs, active)
        bounds = operation.bounds(args, kwargs)
        wanted = operation.status == "site" or self._plan.match == "structural"
        if bounds is None or not wanted:
            if operation.status in _REFUSED and self._plan.missing == "error":
                raise UncoveredActivationError(in_compiled(operation.name))
            return func(*args, **kwargs)
        x = input_of(args, kwargs)
        call = self._new_call(x, bounds, active, operation.saves_output)
        if call is None:
            return func(*args, **kwargs)
        if not operation.is_inplace(args, kwargs):
            return RuleFunction.apply(x, lambda x: call_with_input(func, args, kwargs, x), call)
        # a compiler wants pure functions too: change a copy of the copy, and write it back
        run = lambda x: call_with_input(func, args, kwargs, x.clone())  # noqa: E731
        return x.copy_(RuleFunction.apply(x.clone(), run, call))

    def behind(self, x: Tensor, bounds: Bounds, output: Tensor, active: Any) -> Tensor:
        """Put the rule behind an activation that ran already and gave `output`."""
        call = self._new_call(x, bounds, active, False)
        if call is None:
            return output
        value = output.detach()
        y: Tensor = RuleFunction.apply(x, lambda _: value.clone(), call)
        return y

    def _run_smooth(
        self, func: Any, operation: Operation, args: Any, kwargs: Any, active: Any
    ) -> Any:
        self._ask_no_names()
        self.has_met = True
        if active is False or not any(t.requires_grad for t in tensors_of(args, kwargs)):
            return func(*args, **kwargs)
        x = input_of(args, kwargs)
        run: Run = lambda x: call_with_input(func, args, kwargs, x)  # noqa: E731
        return self._smooth.run(x, run, active, operation.is_inplace(args, kwargs))

    def _new_call(
        self, x: Tensor, bounds: Bounds, active: Any, saves_output: bool
    ) -> RuleCall | None:
        self._ask_no_names()
        rule, kernel = self._by_kind[kind_of(bounds)][active is not False]
        if rule is None or not x.requires_grad:
            return None
        self.has_met = True
        if rule.scope == "sample":
            rule.check_rank(x.dim(), self._plan.batch_axis)
        kernel = kernel if isinstance(active, bool) else None
        return new_call(
            self._plan, rule, kernel, bounds=bounds, saves_output=saves_output, active=active
        )

    def _ask_no_names(self) -> None:
        if self._plan.asks_names:
            raise UncoveredActivationError(NAMES_IN_COMPILED)


def _rules_by_kind(plan: Plan) -> dict[str, tuple[Choice, Choice]]:
    """Return for each kind of site what follows the schedule, and what it holds for."""
    if plan.asks_names:
        return {}
    sites = (Site("", "", bounds) for bounds in ((0.0, math.inf), (0.0, 6.0), (-1.0, 1.0)))
    return {site.kind: _choices(plan, plan.decide(site).rule) for site in sites}


def _choices(plan: Plan, rule: Rule | None) -> tuple[Choice, Choice]:
    if rule is None:
        return (None, None), (None, None)
    after = rule.after or plan.standard
    return (after, traceable_kernel_of(after)), (rule, traceable_kernel_of(rule))
