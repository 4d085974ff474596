"""The autograd node that stands where an activation's own node would stand.

It keeps for the backward pass exactly what Torch itself would keep for this call (relu its
output, hardtanh its input, an in-place hardtanh a copy of it). So memory is that of the plain
gradient, code that changes an output in place works or fails as before, and non-reentrant
checkpointing finds the tensors it expects even if it recomputes them outside the rule. Only a
rule without such a kernel needs the input always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import torch

from relurules.backend import Bounds, GradientOf, Plan, Rule, flips
from relurules_torch._kernels import EXACT, Kernel, Tensor, rounded, run_rule

Run: TypeAlias = Callable[[Tensor], Tensor]
Backward: TypeAlias = Callable[[Tensor, Tensor], Tensor]


_MARK = torch.empty(0)
"""Kept beside an input that stands where Torch's own node keeps an output of the same shape.

Non-reentrant checkpointing puts what it recomputed in the place of what was kept. Where it
recomputes outside the rule it would so put an output in the place of an input, and a redirected
gradient would be wrong without a word. With one tensor more the count differs, and it raises.
"""


@dataclass(slots=True, kw_only=True)
class RuleCall:
    """How the backward of one activation runs: everything its node needs but tensors.

    Attributes:
        rule: The rule in force.
        bounds: `(lo, hi)` of the activation.
        inplace: Whether the activation changes its input.
        keep_output: Whether the node keeps the output, and not the input.
        kernel: The rule's native kernel, or None to run its own function.
        batch_axis: The axis that separates samples, or None.
        gradient_of: What the user differentiates, or None.
        active: Whether the schedule is running: a bool or a boolean tensor.
        is_marked: Whether the node keeps the input where Torch's own would keep the output.
        is_simple: Whether it is a relu, out of place, under a rule that looks at no samples.
        backward: Returns the gradient that passes, from the incoming one and what was kept.
    """

    rule: Rule
    bounds: Bounds
    inplace: bool
    keep_output: bool
    kernel: Kernel | None
    batch_axis: int | None
    gradient_of: GradientOf | None
    active: Any
    is_marked: bool = False
    is_simple: bool = False
    backward: Backward = field(init=False)

    def __post_init__(self) -> None:
        self.backward = self._choose()

    def _choose(self) -> Backward:
        if self.kernel is None:
            return self._run_rule
        if flips(self.rule, self.gradient_of) or not EXACT.issuperset(self.bounds):
            return self._run_kernel
        # the common case, in which nothing is left to decide per call
        return partial(self.kernel.run, bounds=self.bounds, batch_axis=self.batch_axis)

    def _run_kernel(self, g: Tensor, z: Tensor) -> Tensor:
        kernel = cast(Kernel, self.kernel).run
        bounds = rounded(self.bounds, g.dtype)
        if flips(self.rule, self.gradient_of):
            return -kernel(-g, z, bounds=bounds, batch_axis=self.batch_axis)
        return kernel(g, z, bounds=bounds, batch_axis=self.batch_axis)

    def _run_rule(self, g: Tensor, x: Tensor) -> Tensor:
        return run_rule(
            self.rule,
            x,
            g,
            bounds=rounded(self.bounds, g.dtype),
            batch_axis=self.batch_axis,
            gradient_of=self.gradient_of,
            active=self.active if self.active is not False else True,
        )


def new_call(
    plan: Plan,
    rule: Rule,
    kernel: Kernel | None,
    *,
    bounds: Bounds,
    inplace: bool = False,
    saves_output: bool = False,
    active: Any,
) -> RuleCall:
    """Return how the backward of an activation runs that keeps its output or input in Torch."""
    keeps = saves_output and kernel is not None and kernel.takes_output
    return RuleCall(
        rule=rule,
        bounds=bounds,
        inplace=inplace,
        keep_output=keeps,
        kernel=kernel,
        batch_axis=plan.batch_axis,
        gradient_of=plan.gradient_of,
        active=active,
        is_marked=saves_output and not keeps and not torch.compiler.is_compiling(),
    )


class RuleFunction(torch.autograd.Function):
    """The node for eager mode: the cheapest form, which torch.func does not accept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Run, call: RuleCall) -> Tensor:
        """Run the activation and keep what its backward needs."""
        kept = x.clone() if call.inplace and not call.keep_output else x
        y = run(x)
        if call.inplace:
            ctx.mark_dirty(x)
        if call.is_marked:
            ctx.save_for_backward(kept, _MARK)
        else:
            ctx.save_for_backward(y if call.keep_output else kept)
        ctx.call = call
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        """Let the rule pass the gradient."""
        return ctx.call.backward(grad_outputs[0], ctx.saved_tensors[0]), None, None


class TransformableRuleFunction(torch.autograd.Function):
    """The node for torch.func, which wants forward and setup apart; it costs twice as much."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, run: Run, call: RuleCall) -> Tensor:
        """Run the activation."""
        return run(x.clone() if call.inplace else x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the backward needs."""
        x, _, call = inputs
        ctx.save_for_backward(output if call.keep_output else x)
        ctx.call = call

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        """Let the rule pass the gradient."""
        return ctx.call.backward(grad_outputs[0], ctx.saved_tensors[0]), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Refuse forward mode, in which a rule has no meaning."""
        raise NotImplementedError(
            "A gradient rule is not a derivative and has no forward mode. Use reverse mode "
            "(torch.func.grad, vjp or jacrev), or applied.paused() for the plain tangent."
        )


def apply_rule(x: Tensor, run: Run, call: RuleCall) -> Tensor:
    """Run an activation so that `call.rule` stands behind it; returns the activation's output."""
    if not torch._C._are_functorch_transforms_active():
        result: Tensor = RuleFunction.apply(x, run, call)
        return result
    if not call.inplace:
        y: Tensor = TransformableRuleFunction.apply(x, run, call)
        return y
    # torch.func wants pure functions, so change a copy and write it back.
    return x.copy_(TransformableRuleFunction.apply(x.clone(), run, call))


apply_simply: Callable[[Tensor, Any, RuleCall], Tensor] = super(
    torch.autograd.Function, RuleFunction
).apply
"""`RuleFunction.apply` for what no transform wraps, without the layer that unwraps it."""
