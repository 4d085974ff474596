"""One rule behind one model: when it is entered, and what is judged when it is left.

The rule is in force while the model runs and at no other time: the doors of the model (`_doors`)
enter the interceptor and leave it. So other models, other threads and the code around the model
never see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from relurules.backend import Bounds, Plan, Report, State, judge, judge_gates, recognise
from relurules_torch import _messages, _stack
from relurules_torch._audit import audit
from relurules_torch._callers import is_called_for, run_as
from relurules_torch._doors import Door, Hook, build_doors, remove_doors
from relurules_torch._dynamo import show_all_spellings
from relurules_torch._graph import boundary_of, tensors
from relurules_torch._here import Here
from relurules_torch._interceptor import Interceptor
from relurules_torch._ledger import Ledger
from relurules_torch._script import hidden_activations
from relurules_torch._special import FUSED, Fused, LeftAlone, Recognised, Special


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
        self._steps_aside = 0
        self._was_aside = False
        self._handles: list[Any] = []
        if model is not self._root or model._forward_hooks or model._forward_pre_hooks:
            self._hook_root()
        self._special: dict[nn.Module, Special] = dict(self._scan())
        self._doors = build_doors(self, self._root, self._ledger.paths, self._special)
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
        if output is None or boundary is None:
            return
        self._note_compiled()
        audit(self._ledger, output, boundary)
        if self._ledger.has("missed", "opaque") or not (part or self._wanted_none(output)):
            self._judge()

    def _wanted_none(self, output: Any) -> bool:
        """Return whether no gradient can be taken of a call in which the rule stepped aside."""
        was_aside, self._was_aside = self._was_aside, False
        return was_aside and not any(tensor.requires_grad for tensor in tensors(output))

    def through(self, door: Door, args: Any, kwargs: Any, /) -> Any:
        """Run a method of the model that was called while the model was not running."""
        if torch.compiler.is_compiling():
            return self._trace(door, args, kwargs)
        if not self._is_here() or not self._is_ours(door):
            return door.inner(*args, **kwargs)
        if not self._steps_aside:
            self._count(door)
        self._enter((args, kwargs))
        output = None
        try:
            output = self._run(door, args, kwargs)
        finally:
            self.leave(output, part=not self._is_forward(door))
        return output

    def replicate(self, module: nn.Module, /) -> None:
        """Refuse, since replicas run in threads of their own."""
        if self._is_here():
            self._ledger.found("opaque", "DataParallel", "replica", _messages.REPLICA)
            self._judge()

    def within(self, door: Door, args: Any, kwargs: Any, /) -> Any:
        """Run the forward of a module that may be a special one, while the model runs."""
        if torch.compiler.is_compiling():
            return self._trace_within(door, args, kwargs)
        if not self._here.in_thread or not self._running or self._running[-1] is None:
            return door.inner(*args, **kwargs)
        return self._run(door, args, kwargs)

    @contextmanager
    def aside(self, door: Door, /, *, opens: bool, watched: bool) -> Iterator[None]:
        """Take the rule out of force while a special module runs."""
        depth, self._steps_aside = self.depth, self._steps_aside + 1
        self._was_aside = True
        if opens:
            self.depth = 0
        watch = self._watched(door) if watched else nullcontext()
        try:
            with _stack.without(self._mode), watch:
                yield
        finally:
            self.depth, self._steps_aside = depth, self._steps_aside - 1

    def behind(self, door: Door, bounds: Bounds, x: Any, output: Any, /) -> Any:
        """Put the rule behind a module that a plugin recognised as an activation."""
        place = (door.module, type(door.module).forward.__code__, -1)
        return self._mode.behind(x, place, bounds, output)

    def refuse(self, door: Door, reason: str, output: Any, /) -> Any:
        """Note that a module cannot take the rule, and return its output."""
        name, kind = self._ledger.paths[door.module], type(door.module).__name__
        self._ledger.found("opaque", name, kind, reason)
        return output

    def _run(self, door: Door, args: Any, kwargs: Any) -> Any:
        special = self._special.get(door.module) if door.name == "forward" else None
        if special is not None:
            return special(door, args, kwargs)
        return run_as(door.module, door.inner, args, kwargs)

    def _watched(self, door: Door) -> AbstractContextManager[Any]:
        """Note if anything is kept for a backward pass while no door of a part is open."""

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if self.depth else self.refuse(door, _messages.OWN_GRAPH, tensor)

        hooks: AbstractContextManager[Any] = torch.autograd.graph.saved_tensors_hooks(
            keep, lambda tensor: tensor
        )
        return hooks

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
        if self._state.paused:
            self._running.append(None)
            return
        self._refresh()
        show_all_spellings()
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

    # --- Under Dynamo ---------------------------------------------------------------------------

    def _trace(self, door: Door, args: Any, kwargs: Any) -> Any:
        """Do what a door does, in a form that Dynamo can trace and guard.

        Nothing here may differ from one `apply` to the next, such as a counter or an identity:
        each would be one more compilation.
        """
        if not hasattr(self._here.thread, "on") or self._state.paused:
            return door.inner(*args, **kwargs)
        show_all_spellings()
        self.depth = 1
        self._mode.__enter__()
        try:
            return door.inner(*args, **kwargs)
        finally:
            self._mode.__exit__(None, None, None)
            self.depth = 0

    def _trace_within(self, door: Door, args: Any, kwargs: Any) -> Any:
        special = self._special.get(door.module)
        if not isinstance(special, Recognised):
            return door.inner(*args, **kwargs)
        self._mode.__exit__(None, None, None)
        try:
            output = door.inner(*args, **kwargs)
        finally:
            self._mode.__enter__()
        x, active = (*args, *kwargs.values())[0], self._mode.active
        return self._mode.traced.behind(x, special.bounds, output, active)

    def _note_compiled(self) -> None:
        if self._mode.traced.has_met:
            self._mode.traced.has_met = False
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

    def _scan(self) -> Iterator[tuple[nn.Module, Special]]:
        """Find the special modules, and note what cannot be looked into."""
        for module, path in self._ledger.paths.items():
            if isinstance(module, torch.jit.ScriptModule):
                if detail := hidden_activations(module):
                    self._ledger.found("opaque", path, "TorchScript", detail)
                    if self._plan.excludes(path):
                        yield module, LeftAlone()
            elif isinstance(module, FUSED):
                yield module, Fused(self)
            elif not type(module).__module__.startswith("torch."):
                bounds = recognise("torch", module)
                if bounds is not None:
                    yield module, Recognised(self, bounds)


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
