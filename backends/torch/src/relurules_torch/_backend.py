"""Putting a rule behind a Torch model: hooks on the root, and a mode while it runs.

The hooks are on the root module alone. They enter the interceptor before its forward and leave
it after, so that other models, other threads and the code around the model never see it, and
they cost nothing per layer. `prepend=False` makes the rule applied last the innermost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from relurules.backend import Attachment, Plan, Report, State, judge, judge_gates, recognise
from relurules.errors import UncoveredActivationError
from relurules_torch._audit import audit
from relurules_torch._graph import boundary_of
from relurules_torch._interceptor import Interceptor
from relurules_torch._ledger import Ledger
from relurules_torch._script import hidden_activations
from relurules_torch._stack import leave

_FAST_PATHS = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


class TorchBackend:
    """The backend for `torch.nn.Module`."""

    name = "torch"

    def attach(self, model: nn.Module, plan: Plan, state: State, /) -> Attachment:
        """Put the plan's rules behind the model's activations."""
        if isinstance(model, torch.jit.ScriptModule):
            raise UncoveredActivationError(
                f"{type(model).__name__} is TorchScript, which runs below Python: no rule can be "
                "put behind its activations. Apply the rule to the module it was scripted or "
                "traced from."
            )
        return TorchAttachment(model, plan, state)


class TorchAttachment:
    """One rule behind one Torch model."""

    def __init__(self, model: nn.Module, plan: Plan, state: State) -> None:
        self.model = model
        self.calls = 0
        self._plan = plan
        self._state = state
        self._thread = threading.get_ident()
        self._calls_elsewhere = 0
        self._ledger = Ledger(model, plan)
        self._mode = Interceptor(plan, self._ledger)
        self._running: list[frozenset[Any] | None] = []
        self._gates_told = False
        self._has_fast_path = any(isinstance(m, _FAST_PATHS) for m in self._ledger.paths)
        self._handles: list[Any] = [
            model.register_forward_pre_hook(_Enter(self), with_kwargs=True),
            model.register_forward_hook(_Leave(self), always_call=True),
        ]
        self._scan()

    @property
    def hint(self) -> str:
        """What to do where the model was never called."""
        if self._calls_elsewhere:
            return (
                f"It was called {self._calls_elsewhere} times in other threads, which a rule never "
                "touches: call relurules.apply in the thread that calls the model."
            )
        return (
            "Only a call of the module itself runs the rule. If you call one of its methods or "
            "submodules, apply the rule to what you call, or call the module."
        )

    def report(self) -> Report:
        """Return what was reached and what was not, so far."""
        return self._ledger.report()

    def follow(self, optimizer: Any, advance: Callable[[], None], /) -> None:
        """Call `advance` after each step of `optimizer`."""
        register = getattr(optimizer, "register_step_post_hook", None)
        if register is None:
            raise TypeError(
                f"follow() takes a torch.optim.Optimizer, which tells when it has stepped; got "
                f"{type(optimizer).__name__}. Call advance() yourself instead."
            )
        self._handles.append(register(lambda *_: advance()))

    def remove(self) -> None:
        """Restore the model."""
        while self._handles:
            self._handles.pop().remove()
        while self._running:
            self._leave_mode()

    def enter(self, inputs: Any) -> None:
        """Begin a forward of the root module."""
        if threading.get_ident() != self._thread:
            self._calls_elsewhere += 1
            return
        self.calls += 1
        if self._state.paused or not self._is_differentiated(inputs):
            self._running.append(None)
            return
        active = self._plan.schedule.active(self._state.step)
        self._mode.active = active if isinstance(active, torch.Tensor) else bool(active)
        self._running.append(boundary_of(inputs))
        self._mode.__enter__()

    def leave(self, output: Any) -> None:
        """End a forward, and judge what the rule reached in it."""
        if threading.get_ident() != self._thread or not self._running:
            return
        boundary = self._leave_mode()
        if boundary is None or output is None:
            return
        audit(self._ledger, output, boundary)
        self._judge()

    def recognised(self, module: nn.Module, bounds: Any, inputs: Any, output: Any) -> Any:
        """Put the rule behind a module that a plugin recognised as an activation."""
        if threading.get_ident() != self._thread or not self._running or self._running[-1] is None:
            return output
        place = (module, type(module).forward.__code__, -1)
        return self._mode.behind(inputs[0], place, bounds, output)

    def _leave_mode(self) -> frozenset[Any] | None:
        boundary = self._running.pop()
        if boundary is not None:
            leave(self._mode)
        return boundary

    def _judge(self) -> None:
        if self._ledger.is_fine or not self._ledger.changed:
            return
        report = self.report()
        judge(report, self._plan)
        if self._plan.missing != "ignore" and not self._gates_told:
            self._gates_told = judge_gates(report)
        self._ledger.changed = False

    def _is_differentiated(self, inputs: Any) -> bool:
        """Return False only where a fused inference path would be lost for no gradient at all.

        A mode switches Torch's transformer fast path off, which changes the forward by 4e-7.
        """
        return torch.is_grad_enabled() or not self._has_fast_path

    def _scan(self) -> None:
        for module, path in self._ledger.paths.items():
            if isinstance(module, torch.jit.ScriptModule):
                if detail := hidden_activations(module):
                    self._ledger.found("opaque", path, "TorchScript", detail)
            elif not type(module).__module__.startswith("torch."):
                bounds = recognise("torch", module)
                if bounds is not None:
                    hook = _Recognised(self, bounds)
                    self._handles.append(module.register_forward_hook(hook))


class _Enter:
    """A hook that can be pickled with its model: a plain object, no closure."""

    def __init__(self, attachment: TorchAttachment) -> None:
        self._attachment = attachment

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._attachment.enter((args, kwargs))


class _Leave:
    def __init__(self, attachment: TorchAttachment) -> None:
        self._attachment = attachment

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self._attachment.leave(output)


class _Recognised:
    def __init__(self, attachment: TorchAttachment, bounds: Any) -> None:
        self._attachment = attachment
        self._bounds = bounds

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        return self._attachment.recognised(module, self._bounds, args, output)
