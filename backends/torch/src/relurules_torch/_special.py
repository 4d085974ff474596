"""Modules whose forward is not simply run under the rule, and what is done instead.

Each is a small callable that runs the module's own forward for a door:

- `Fused`: Torch's transformer layers run as one fused kernel where no gradient is wanted, and
  look for a Torch function mode to decide. The forward must keep its bits, so there the rule
  steps aside.
- `Recognised`: a plugin says that the module is an activation. Whatever it runs inside is its
  own business, and the rule stands behind its output.
- `LeftAlone`: TorchScript that the user excluded by name. What is in its graph stays.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from relurules.backend import Bounds
from relurules_torch import _messages
from relurules_torch._audit import took_a_rule
from relurules_torch._doors import Door
from relurules_torch._graph import boundary_of, leave_alone, tensors

Special: TypeAlias = Callable[[Door, Any, Any], Any]

FUSED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
_FUSED_FORWARDS = frozenset(cls.forward for cls in FUSED)


class Watch(Protocol):
    """What a special module asks of the rule it is under."""

    def aside(self, door: Door, /, *, opens: bool, watched: bool) -> AbstractContextManager[None]:
        """Return a context without the rule.

        Args:
            door: Whose module runs inside.
            opens: Whether the module's parts are under the rule all the same.
            watched: Whether a gradient that is recorded without the rule is noted.
        """
        ...

    def behind(self, door: Door, bounds: Bounds, x: Any, output: Any, /) -> Any:
        """Put the rule behind a module that ran already, or return None if it takes none."""
        ...

    def refuse(self, door: Door, reason: str, output: Any, /) -> Any:
        """Note that a module cannot take the rule, and return its output."""
        ...


class Fused:
    """A layer of Torch's that has a fused form for inference."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, door: Door, args: Any, kwargs: Any) -> Any:
        """Run it as it would run without the rule, where it wants no gradient."""
        module = door.module
        is_own = type(module).forward in _FUSED_FORWARDS and not door.was_set
        asked = _asked(module) if is_own else module
        if not _may_be_fused(module) or _wants_gradient(asked, args, kwargs):
            return door.inner(*args, **kwargs)
        with self._watch.aside(door, opens=True, watched=not is_own):
            return door.inner(*args, **kwargs)


def _may_be_fused(module: nn.Module) -> bool:
    if torch._C._are_functorch_transforms_active() or torch.is_autocast_enabled():
        return False
    return bool(getattr(module, "activation_relu_or_gelu", True))


def _asked(module: nn.Module) -> nn.Module:
    """Return the module whose parameters Torch asks: an encoder looks at its first layer."""
    first: nn.Module = module.layers[0] if isinstance(module, nn.TransformerEncoder) else module
    return first


def _wants_gradient(module: nn.Module, args: Any, kwargs: Any) -> bool:
    if not torch.is_grad_enabled():
        return False
    given = any(tensor.requires_grad for tensor in tensors((args, kwargs)))
    return given or any(parameter.requires_grad for parameter in module.parameters())


class Recognised:
    """A module that a plugin knows as an activation."""

    def __init__(self, watch: Watch, bounds: Bounds) -> None:
        self._watch = watch
        self.bounds = bounds

    def __call__(self, door: Door, args: Any, kwargs: Any) -> Any:
        """Run it with its own gradient, and put the rule in the place of that."""
        x = (*args, *kwargs.values())[0]
        boundary, version = boundary_of((args, kwargs)), x._version
        with self._watch.aside(door, opens=False, watched=False):
            output = door.inner(*args, **kwargs)
        if took_a_rule(output):  # one that was applied later
            return output
        if x._version != version:
            return self._watch.refuse(door, _messages.CHANGES_INPUT, output)
        ruled = self._watch.behind(door, self.bounds, x, output)
        if ruled is None:
            leave_alone(output, boundary)
        return output if ruled is None else ruled


class LeftAlone:
    """TorchScript that was excluded by name."""

    def __call__(self, door: Door, args: Any, kwargs: Any) -> Any:
        """Run it, and mark what it recorded as kept on purpose."""
        boundary = boundary_of((args, kwargs))
        output = door.inner(*args, **kwargs)
        leave_alone(output, boundary)
        return output
