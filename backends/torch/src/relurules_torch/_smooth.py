"""Guided on an activation that is no clip, in the variant that the user chose.

For a function f other than a clip three different gradients are called guided
(https://arxiv.org/abs/1412.6806 defines only that of a ReLU). None of them needs to know f's
derivative: f keeps its own node in the autograd graph, and a variant is where filters are put,
after it, before it, or instead of it. So one table covers every f, parameters (prelu) and
randomness (rrelu) included.

These nodes define no `jvp`, with which Dynamo would not trace them
(https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0144.html): forward mode is refused
by Torch itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

import relurules
from relurules.backend import Bounds, Plan, Rule
from relurules_torch._function import RuleCall, Run
from relurules_torch._kernels import Kernel, Tensor, kernel_of, traceable_kernel_of

_GATE: Bounds = (0.0, math.inf)
_BLOCK_ALL = Rule(name="block_all", fn=lambda x, g, *, bounds, xp: xp.zeros_like(g))
_IDENTITY = relurules.rule("identity")

# what acts while the schedule runs, and what follows it
_POSITIVE = relurules.rule("deconv").then(_IDENTITY)
_AS_RELU = relurules.rule("guided").then(_BLOCK_ALL)
_UNLESS_GATED = _BLOCK_ALL.then(_IDENTITY)

_KERNELS: dict[str, tuple[Kernel | None, Kernel | None]] = {
    rule.name: (kernel_of(rule), traceable_kernel_of(rule))
    for rule in map(relurules.rule, ("deconv", "guided"))
}


class Filter(torch.autograd.Function):
    """Passes a tensor on, and what a rule lets pass of its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, call: RuleCall) -> Tensor:
        """Return a tensor that code after this may change in place, as a view could not be."""
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep nothing: these rules look at the gradient alone."""
        ctx.call = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        """Let the rule pass the gradient."""
        return ctx.call.backward(grad_outputs[0], grad_outputs[0]), None


class Detour(torch.autograd.Function):
    """Passes f's output on, and the gradient to f's input directly as well as to f."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, call: RuleCall) -> Tensor:
        """Return f's output."""
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep f's input, whose sign is the gate."""
        ctx.save_for_backward(inputs[0])
        ctx.call = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        """Let the rule pass the gradient to the input; autocast may have widened it."""
        (x,) = ctx.saved_tensors
        return ctx.call.backward(grad_outputs[0].to(x.dtype), x), grad_outputs[0], None


NewCall: TypeAlias = Callable[[Rule], RuleCall]
Variant: TypeAlias = Callable[[Tensor, Run, Any, NewCall], Tensor]


def _incoming(x: Tensor, run: Run, active: Any, call: NewCall) -> Tensor:
    """Give f'(x) max(g, 0)."""
    y: Tensor = Filter.apply(run(x), call(_POSITIVE))
    return y


def _outgoing(x: Tensor, run: Run, active: Any, call: NewCall) -> Tensor:
    """Give max(f'(x) g, 0)."""
    return run(Filter.apply(x, call(_POSITIVE)))


def _gate(x: Tensor, run: Run, active: Any, call: NewCall) -> Tensor:
    """Give g where x > 0 and g > 0; parameters of f keep their own gradient."""
    alone = x.detach().clone() if active is True else Filter.apply(x, call(_UNLESS_GATED))
    y: Tensor = Detour.apply(x, run(alone), call(_AS_RELU))
    return y


_VARIANTS: dict[str, Variant] = {"incoming": _incoming, "outgoing": _outgoing, "gate": _gate}
VARIANTS = tuple(_VARIANTS)
"""What `apply(smooth_activations=)` takes here."""


class Smooth:
    """What a plan asks for on smooth activations."""

    def __init__(self, plan: Plan) -> None:
        self._variant = _VARIANTS[plan.smooth_activations or VARIANTS[0]]
        self._gradient_of = plan.gradient_of
        self.is_wanted = plan.smooth_activations is not None

    def run(self, x: Tensor, run: Run, active: Any, inplace: bool) -> Tensor:
        """Run an activation so that the variant stands behind it; returns its output."""

        def call(rule: Rule) -> RuleCall:
            return _new_call(rule, active, self._gradient_of)

        if not inplace:
            return self._variant(x, run, active, call)
        # the variants want f's input and output apart: change a copy, and write it back
        return x.copy_(self._variant(x.clone(), run, active, call))


def _new_call(rule: Rule, active: Any, gradient_of: Any) -> RuleCall:
    kernels = _KERNELS.get(rule.name) if isinstance(active, bool) else None
    return RuleCall(
        rule=rule,
        bounds=_GATE,
        inplace=False,
        keep_output=False,
        kernel=kernels[torch.compiler.is_compiling()] if kernels else None,
        batch_axis=None,
        gradient_of=gradient_of,
        active=active,
    )
