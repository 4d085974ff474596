"""The doors of a model: every call by which a user's code can get inside it.

A rule must stand behind `model(x)` and just as well behind `model.forward(x)`,
`model.encode_image(x)` and `model.layer1(x)`, or the one that was forgotten gives the plain
gradient without a word. So while a rule is applied, those methods are doors: objects in the
instance's own `__dict__`, which Python finds before the class's, and so does Dynamo, whose
guards on that dict compile a model anew that was warm before. The class, the type and the
state dict stay as they are. A door that is passed while its model runs costs one call; layers
of `torch.nn` that hold no activation have none.

Three more instance attributes keep the copies of a model clean: what pickles, copies or
replicates it takes a plain model, never a door that leads back to the original.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import nn

_WITHOUT_PARAMETERS = (nn.ReLU, nn.Hardtanh, nn.Threshold)
_ACTIVATIONS = (*_WITHOUT_PARAMETERS, nn.RNNBase, nn.RNNCellBase)
_RELU = nn.ReLU.forward
_TRANSFORMER = "torch.nn.modules.transformer"  # whose methods run an activation by its function
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_HOOK_NOTES = ("_with_kwargs", "_always_called")
Plan: TypeAlias = tuple[tuple[str, FunctionType], ...]
_known: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()

_lock = threading.RLock()  # two threads may build and remove the doors of one module


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603 - a fork may have been made while another thread held it
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Hook:
    """A forward hook of ours, so that copies of a model can be told from what a user hooked."""


class Watch(Protocol):
    """What stands behind a door."""

    depth: int

    def through(self, door: Door, args: Any, kwargs: Any, /) -> Any:
        """Run a call of the door that may come from outside the model."""

    def within(self, door: Door, args: Any, kwargs: Any, /) -> Any:
        """Run a call from inside the model, of a module that may be a special one."""

    def replicate(self, module: nn.Module, /) -> None:
        """Refuse to be replicated, where that would lose the rule."""

    def abandon(self) -> None:
        """Forget every forward that has begun and will not end."""


class Door:
    """One method of one module, as long as a rule is applied to the model.

    Attributes:
        watch: What to ask where the model is not running.
        module: The module.
        name: The method's name.
        inner: The method itself, or the passage of the next door to it.
        was_set: Whether the instance had this method in its own dict before any rule.
    """

    __slots__ = ("inner", "module", "name", "was_set", "watch")

    def __init__(
        self,
        watch: Watch,
        module: nn.Module,
        name: str,
        inner: Any,
        was_set: bool,
    ) -> None:
        self.watch = watch
        self.module = module
        self.name = name
        self.inner = inner
        self.was_set = was_set

    def __reduce__(self) -> Any:
        """A copy of the module has the method and no door."""
        return getattr, (self.module, self.name)


def _pass(door: Door, /, *args: Any, **kwargs: Any) -> Any:
    """Run the door's method, under the rule if the call comes from outside."""
    if door.watch.depth:
        return door.inner(*args, **kwargs)
    return door.watch.through(door, args, kwargs)


def _pass_special(door: Door, /, *args: Any, **kwargs: Any) -> Any:
    """Run the forward of a module that is not simply run under the rule."""
    if door.watch.depth:
        return door.watch.within(door, args, kwargs)
    return door.watch.through(door, args, kwargs)


def _pass_root(door: Door, /, *args: Any, **kwargs: Any) -> Any:
    """Run the root's own forward, and see an interrupt, which skips forward hooks."""
    try:
        if door.watch.depth:
            return door.watch.within(door, args, kwargs)
        return door.watch.through(door, args, kwargs)
    except (KeyboardInterrupt, SystemExit):
        door.watch.abandon()
        raise


def _pass_relu(door: Door, /, input: Any) -> Any:  # noqa: A002 - the name it has in Torch
    """Run `nn.ReLU.forward` by a function that reaches a mode without a layer of Python.

    `F.relu` does it through `torch.overrides.handle_torch_function`, which costs an eighth of a
    gradient of 200 thin layers.
    """
    if not door.watch.depth:
        return door.watch.through(door, (input,), {})
    if type(input) is not torch.Tensor or torch.compiler.is_compiling():
        return door.inner(input)
    if getattr(door.inner, "__func__", None) is not _RELU:  # another door, or a user's own method
        return door.inner(input)
    return torch.relu_(input) if door.module.inplace else torch.relu(input)


def _state(door: Door, /) -> Any:
    """Stand for `__getstate__`, by which copy, pickle and torch.save take a module apart."""
    return without_doors(door.inner())


def _replicate(door: Door, /) -> nn.Module:
    """Stand for `_replicate_for_data_parallel`, which makes shallow copies."""
    door.watch.replicate(door.module)
    replica: nn.Module = door.inner()
    clean = without_doors(vars(replica))
    vars(replica).clear()
    vars(replica).update(clean)
    return replica


_passages: WeakKeyDictionary[type, dict[Any, Any]] = WeakKeyDictionary()


def _new_passage(method: Any, name: str, how: Any) -> FunctionType:
    """Return the function of which a door's passage is a bound method.

    Dynamo guards the function of a bound method and ignores what it is bound to. There is one
    for each method of each class, with the method's own signature and with a code object of its
    own, since Dynamo also limits how often it compiles each code.
    """
    function = getattr(method, "__func__", method)
    code = how.__code__.replace(co_name=getattr(function, "__name__", name))
    passage = FunctionType(code, how.__globals__)
    functools.update_wrapper(passage, function)
    return passage


def door_of(value: Any) -> Door | None:
    """Return the door behind a value of a module's dict, or None."""
    door = getattr(value, "__self__", None) if isinstance(value, MethodType) else None
    return door if isinstance(door, Door) else None


def without_doors(state: Any) -> Any:
    """Return a module's state as it was before any rule was applied."""
    if not isinstance(state, dict):
        return state
    clean = {name: value for name, value in state.items() if door_of(value) is None}
    for name in _HOOKS:
        ours = {key for key, hook in state.get(name, {}).items() if isinstance(hook, Hook)}
        for part in (name, *(name + note for note in _HOOK_NOTES)):
            if ours and part in clean:
                clean[part] = _without(clean[part], ours)
    return clean


def _without(hooks: Any, ours: set[Any]) -> Any:
    return type(hooks)((key, hook) for key, hook in hooks.items() if key not in ours)


def build_doors(watch: Watch, root: nn.Module, modules: Any, special: Any) -> list[Door]:
    """Put doors into a model, and return them.

    Args:
        watch: What stands behind them.
        root: The model.
        modules: All its modules.
        special: Those that the watch runs in a way of their own.
    """
    with _lock:
        return _build_all(watch, root, modules, special)


def _build_all(watch: Watch, root: nn.Module, modules: Any, special: Any) -> list[Door]:
    built: list[Door] = []
    plans: dict[Any, Plan] = {}
    for module in modules:
        how = (module is root, module in special)
        plan = plans.get((type(module), how))
        if plan is None:
            plan = plans[type(module), how] = _plan(module, *how)
        if module._modules or any(how) or may_hold_an_activation(type(module)):
            for name, passage in plan:
                built.append(_build(watch, module, name, passage))
    return built


def _plan(module: nn.Module, is_root: bool, is_special: bool) -> Plan:
    known = _passages.setdefault(type(module), {})
    return tuple(
        (name, _passage(module, name, how, known))
        for name, how in _ways(type(module), is_root, is_special)
    )


def _passage(module: nn.Module, name: str, how: Any, known: dict[Any, Any]) -> FunctionType:
    if (name, how) not in known:
        known[name, how] = _new_passage(getattr(module, name), name, how)
    passage: FunctionType = known[name, how]
    return passage


def _ways(cls: type[nn.Module], is_root: bool, is_special: bool) -> Iterator[tuple[str, Any]]:
    inside = _pass_special if is_special else _pass_relu if cls is nn.ReLU else _pass
    yield "forward", _pass_root if is_root else inside
    for name in method_names(cls):
        yield name, _pass
    yield "__getstate__", _state
    if not issubclass(cls, _WITHOUT_PARAMETERS):  # one that has none may be shared by replicas
        yield "_replicate_for_data_parallel", _replicate


def _build(watch: Watch, module: nn.Module, name: str, passage: FunctionType) -> Door:
    attributes = module.__dict__
    if name in attributes:
        return _build_behind(watch, module, name, passage)
    door = Door(watch, module, name, getattr(module, name), False)
    attributes[name] = MethodType(passage, door)
    return door


def _build_behind(watch: Watch, module: nn.Module, name: str, passage: FunctionType) -> Door:
    """Build a door behind those that are there, since the newest rule is the innermost."""
    there = vars(module)[name]
    outer = last = door_of(there)
    while outer is not None:
        last, outer = outer, door_of(outer.inner)
    inner = there if last is None else last.inner
    door = Door(watch, module, name, inner, last is None or last.was_set)
    if last is None:
        vars(module)[name] = MethodType(passage, door)
    else:
        last.inner = MethodType(passage, door)
    return door


def remove_doors(doors: list[Door]) -> None:
    """Take doors out again, in any order, and leave alone what others put there meanwhile."""
    with _lock:
        while doors:
            _remove(doors.pop())


def _remove(door: Door) -> None:
    first = door_of(vars(door.module).get(door.name))
    if first is door:
        _restore(door)
    else:
        _unlink(door, first)


def _restore(door: Door) -> None:
    if door.was_set or door_of(door.inner) is not None:
        vars(door.module)[door.name] = door.inner
    else:
        del vars(door.module)[door.name]


def _unlink(door: Door, outer: Door | None) -> None:
    while outer is not None:
        inner = door_of(outer.inner)
        if inner is door:
            outer.inner = door.inner
        outer = inner


def may_hold_an_activation(cls: type[nn.Module]) -> bool:
    """Return False for the layers of Torch's own that run no activation."""
    return issubclass(cls, _ACTIVATIONS) or not cls.__module__.startswith("torch.nn.modules.")


def method_names(cls: type) -> tuple[str, ...]:
    """Return the methods besides `forward` by which a user may run a module of this class."""
    names = _known.get(cls)
    if names is None:
        names = _known[cls] = tuple(dict.fromkeys(_own_methods(cls)))
    return names


def _own_methods(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        home = base.__module__
        if home == _TRANSFORMER or home.partition(".")[0] not in ("torch", "builtins"):
            for name, value in vars(base).items():
                method = isinstance(value, FunctionType | staticmethod | classmethod)
                if method and not hasattr(nn.Module, name) and not name.startswith("__"):
                    yield name
