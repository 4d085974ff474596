"""One rule behind one model: when it is entered, and what is judged when it is left.

The rule is in force while the model runs and at no other time: the doors of the model (`_doors`)
enter the interceptor and leave it. So other models, other threads and the code around the model
never see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from relurules.backend import Plan, Report, State, judge, judge_gates, recognise
from relurules_torch import _messages, _stack
from relurules_torch._audit import audit
from relurules_torch._callers import is_called_for, run_as
from relurules_torch._doors import Door, Hook, build_doors, remove_doors
from relurules_torch._graph import boundary_of
from relurules_torch._here import Here
from relurules_torch._interceptor import Interceptor
from relurules_torch._ledger import Ledger
from relurules_torch._script import hidden_activations

_FAST_PATHS = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


class TorchAttachment:
    """One rule behind one Torch model.

    Attributes:
        model: What the user calls.
        depth: How many forwards of the model are running, one inside the other.
    """

    def __init__(self, model: nn.Module, plan: Plan, state: State) -> None:
        self.model = model
        self.depth = 0
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._plan = plan
        self._state = state
        self._here = Here()
        self._root_calls = 0
        self._part_calls: dict[str, int] = {}
        self._called_elsewhere: set[str] = set()
        self._ledger = Ledger(self._root, plan)
        self._mode = Interceptor(plan, self._ledger)
        self._running: list[frozenset[Any] | None] = []
        self._gates_told = False
        self._has_fast_path = any(isinstance(m, _FAST_PATHS) for m in self._ledger.paths)
        self._handles: list[Any] = []
        if model is not self._root or model._forward_hooks or model._forward_pre_hooks:
            self._hook_root()
        recognised = self._scan()
        self._doors = build_doors(self, self._root, self._ledger.paths, recognised)
        state.watch(self._refresh)

    @property
    def calls(self) -> int:
        """How often the model ran; a call of a part counts if any met an activation."""
        self._note_compiled()
        met = self._ledger.has("replaced", "overruled", "missed", "opaque")
        return self._root_calls + (sum(self._part_calls.values()) if met else 0)

    @property
    def hint(self) -> str:
        """What to do where the model was never called."""
        return _messages.hint(self._part_calls, self._called_elsewhere)

    @property
    def elsewhere(self) -> str:
        """Why a call of the model would run without the rule here, or ""."""
        reason = self._here.reason
        return _messages.called_elsewhere(reason) if reason else ""

    def report(self) -> Report:
        """Return what was reached and what was not, so far."""
        self._note_compiled()
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
        remove_doors(self._doors)
        self.abandon()
        self._here.leave()

    def abandon(self) -> None:
        """Leave every forward that has begun."""
        while self._running:
            self._leave_mode()

    def _hook_root(self) -> None:
        """Reach further than the door of `forward`: what a user hooked is part of the model.

        And the hooks of a compiled model run outside what is compiled, where a look at the
        autograd graph is possible. Elsewhere they would be guarded by Dynamo, one by one.
        """
        enter, leave = _Enter(self), _Leave(self)
        self._handles += [
            self.model.register_forward_pre_hook(enter, with_kwargs=True),
            self.model.register_forward_hook(leave, always_call=True),
        ]

    # --- Entering and leaving -----------------------------------------------------------------

    def enter_root(self, inputs: Any) -> None:
        """Begin a call of the root module."""
        if self._is_here():
            self._root_calls += 1
            self._enter(inputs)

    def leave(self, output: Any, *, part: bool = False) -> None:
        """End a call, and judge what the rule reached in it."""
        if not self._here.in_thread or not self._running:
            return
        boundary = self._leave_mode()
        if output is None or (boundary is None and self._state.paused):
            return
        if boundary is None:  # no gradient was wanted; a model may switch it on by itself
            audit(self._ledger, output, frozenset())
            if self._ledger.has("missed", "opaque"):
                self._judge()
            return
        self._note_compiled()
        audit(self._ledger, output, boundary)
        if not part or self._ledger.has("missed", "opaque"):
            self._judge()

    def through(self, door: Door, args: Any, kwargs: Any, /) -> Any:
        """Run a method of the model that was called while the model was not running."""
        if torch.compiler.is_compiling():
            return self._trace(door, args, kwargs)
        if not self._is_here() or not self._is_ours(door):
            return door.inner(*args, **kwargs)
        self._count(door)
        self._enter((args, kwargs))
        output = None
        try:
            output = run_as(door.module, door.inner, args, kwargs)
        finally:
            self.leave(output, part=not self._is_forward(door))
        return output

    def replicate(self, module: nn.Module, /) -> None:
        """Refuse, since replicas run in threads of their own."""
        if self._is_here():
            self._ledger.found("opaque", "DataParallel", "replica", _messages.REPLICA)
            self._judge()

    def recognised(self, module: nn.Module, bounds: Any, inputs: Any, output: Any) -> Any:
        """Put the rule behind a module that a plugin recognised as an activation."""
        if not self._here.in_thread:
            return output
        place = (module, type(module).forward.__code__, -1)
        if self._running:
            ruled = self._running[-1] is not None
            return self._mode.behind(inputs[0], place, bounds, output) if ruled else output
        if not self._is_here() or not is_called_for(self._root, self._ledger.paths):
            return output
        name = self._ledger.paths[module]
        self._part_calls[name] = self._part_calls.get(name, 0) + 1
        return output if self._state.paused else self._behind(inputs[0], place, bounds, output)

    def _behind(self, x: Any, place: Any, bounds: Any, output: Any) -> Any:
        self._refresh()
        return self._mode.behind(x, place, bounds, output)

    def _is_here(self) -> bool:
        reason = self._here.reason
        if reason:
            self._called_elsewhere.add(reason)
        return not reason

    def _is_ours(self, door: Door) -> bool:
        return door.module is self._root or is_called_for(self._root, self._ledger.paths)

    def _is_forward(self, door: Door) -> bool:
        return door.module is self._root and door.name == "forward"

    def _count(self, door: Door) -> None:
        if self._is_forward(door):
            self._root_calls += 1
        else:
            path = self._ledger.paths[door.module]
            name = ".".join(part for part in (path, door.name) if part)
            self._part_calls[name] = self._part_calls.get(name, 0) + 1

    def _enter(self, inputs: Any) -> None:
        self.depth += 1
        if self._state.paused or not self._is_differentiated():
            self._running.append(None)
            return
        self._refresh()
        self._running.append(boundary_of(inputs))
        _stack.enter(self._mode, self._holds)

    def _leave_mode(self) -> frozenset[Any] | None:
        self.depth -= 1
        boundary = self._running.pop()
        if boundary is not None:
            _stack.leave(self._mode)
        return boundary

    def _holds(self, mode: Any) -> bool:
        """Return whether `mode` is that of a rule on a part of this model."""
        inner = getattr(mode, "root", None)
        return inner is not self._root and inner in self._ledger.paths

    def _refresh(self) -> None:
        if self._here.in_thread:
            active = self._plan.schedule.active(self._state.step)
            self._mode.active = active if isinstance(active, torch.Tensor) else bool(active)

    def _is_differentiated(self) -> bool:
        """Return False only where a fused inference path would be lost for no gradient at all.

        A mode switches Torch's transformer fast path off, which changes the forward by 4e-7.
        """
        return torch.is_grad_enabled() or not self._has_fast_path

    # --- Under Dynamo ---------------------------------------------------------------------------

    def _trace(self, door: Door, args: Any, kwargs: Any) -> Any:
        """Do what a door does, in a form that Dynamo can trace and guard.

        Nothing here may differ from one `apply` to the next, such as a counter or an identity:
        each would be one more compilation.
        """
        if not hasattr(self._here.thread, "on") or self._state.paused:
            return door.inner(*args, **kwargs)
        self.depth = 1
        self._mode.__enter__()
        try:
            return door.inner(*args, **kwargs)
        finally:
            self._mode.__exit__(None, None, None)
            self.depth = 0

    def _note_compiled(self) -> None:
        if self._mode.has_compiled:
            self._mode.has_compiled = False
            self._ledger.found("replaced", "compiled region", "torch.compile", self._plan.rule_name)
            self._part_calls["compiled region"] = self._part_calls.get("compiled region", 0) + 1

    # --- Judging --------------------------------------------------------------------------------

    def _judge(self) -> None:
        if self._ledger.is_fine or not self._ledger.changed:
            return
        report = self.report()
        judge(report, self._plan)
        if self._plan.missing != "ignore" and not self._gates_told:
            self._gates_told = judge_gates(report)
        self._ledger.changed = False

    def _scan(self) -> set[nn.Module]:
        """Note what cannot be looked into, and hook what a plugin recognises."""
        recognised = set()
        for module, path in self._ledger.paths.items():
            if isinstance(module, torch.jit.ScriptModule):
                if detail := hidden_activations(module):
                    self._ledger.found("opaque", path, "TorchScript", detail)
            elif not type(module).__module__.startswith("torch."):
                bounds = recognise("torch", module)
                if bounds is not None:
                    recognised.add(module)
                    hook = _Recognised(self, bounds)
                    self._handles.append(module.register_forward_hook(hook))
        return recognised


class _Enter(Hook):
    """A hook that can be pickled with its model: a plain object, no closure."""

    def __init__(self, attachment: TorchAttachment) -> None:
        self._attachment = attachment

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling():  # there the door of `forward` does it
            self._attachment.enter_root((args, kwargs))


class _Leave(Hook):
    def __init__(self, attachment: TorchAttachment) -> None:
        self._attachment = attachment

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            self._attachment.leave(output)


class _Recognised(Hook):
    def __init__(self, attachment: TorchAttachment, bounds: Any) -> None:
        self._attachment = attachment
        self._bounds = bounds

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        return self._attachment.recognised(module, self._bounds, args, output)
