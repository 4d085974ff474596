"""Which Torch functions are activations, which only look like one, and how each is called.

Torch spells a ReLU in some twenty ways (function, method, in-place, aten operator), and all of
them reach a `TorchFunctionMode` as one function object. So one table from that object to how
its arguments are read covers every spelling, and a new spelling is one more name in a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from relurules.backend import Bounds

Status: TypeAlias = Literal["site", "gate", "other", "opaque"]
ReadBounds: TypeAlias = Callable[[dict[str, Any]], Bounds | None]

_INF = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """How one Torch function is called and what it means.

    Attributes:
        name: Its name in reports.
        status: `"site"`, `"gate"` (taken on request), `"other"` or `"opaque"`.
        parameters: The names of its positional parameters, the input first.
        bounds: Reads `(lo, hi)` from its arguments; None where they are no bounds.
        saves_output: Whether autograd keeps its output, and not its input, for the backward.
    """

    name: str
    status: Status
    parameters: tuple[str, ...] = ("input",)
    bounds: ReadBounds = lambda arguments: None
    saves_output: bool = False

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the call's arguments by name; the input is `"input"`."""
        named = dict(zip(self.parameters, args, strict=False)) | kwargs
        if "self" in named:  # the aten operators' name for it
            named["input"] = named.pop("self")
        return named


def _fixed(lo: float, hi: float) -> ReadBounds:
    return lambda arguments: (lo, hi)


def _hardtanh(a: dict[str, Any]) -> Bounds | None:
    return _as_bounds(a.get("min_val", -1.0), a.get("max_val", 1.0))


def _threshold(a: dict[str, Any]) -> Bounds | None:
    threshold, value = a.get("threshold"), a.get("value")
    return _as_bounds(threshold, _INF) if threshold == value else None


def _clamp(a: dict[str, Any]) -> Bounds | None:
    lo, hi = a.get("min"), a.get("max")
    return _as_bounds(-_INF if lo is None else lo, _INF if hi is None else hi)


def _maximum(a: dict[str, Any]) -> Bounds | None:
    return _as_bounds(_constant(a.get("other")), _INF)


def _minimum(a: dict[str, Any]) -> Bounds | None:
    return _as_bounds(-_INF, _constant(a.get("other")))


def _constant(other: Any) -> Any:
    if isinstance(other, torch.Tensor) and other.numel() == 1 and not other.requires_grad:
        return other.item()
    return other


def _as_bounds(lo: Any, hi: Any) -> Bounds | None:
    if isinstance(lo, int | float) and isinstance(hi, int | float) and lo < hi:
        return (float(lo), float(hi))
    return None


_CLAMP = ("input", "min", "max")
_PAIR = ("input", "other")

_OPERATIONS: tuple[Operation, ...] = (
    Operation("relu", "site", ("input", "inplace"), _fixed(0.0, _INF), saves_output=True),
    Operation("relu6", "site", ("input", "inplace"), _fixed(0.0, 6.0)),
    Operation("hardtanh", "site", ("input", "min_val", "max_val", "inplace"), _hardtanh),
    Operation("threshold", "site", ("input", "threshold", "value", "inplace"), _threshold),
    Operation("clamp", "gate", _CLAMP, _clamp),
    Operation("clip", "gate", _CLAMP, _clamp),
    Operation("clamp_min", "gate", ("input", "min"), _clamp),
    Operation("clamp_max", "gate", ("input", "max"), _clamp),
    Operation("maximum", "gate", _PAIR, _maximum),
    Operation("max", "gate", _PAIR, _maximum),
    Operation("fmax", "gate", _PAIR, _maximum),
    Operation("minimum", "gate", _PAIR, _minimum),
    Operation("min", "gate", _PAIR, _minimum),
    Operation("fmin", "gate", _PAIR, _minimum),
    Operation("where", "gate", ("condition", "input", "other")),
    Operation("rnn_relu", "opaque"),
    Operation("rnn_relu_cell", "opaque"),
)

_OTHERS = (
    "celu elu gelu glu hardshrink hardsigmoid hardswish leaky_relu logsigmoid mish prelu rrelu "
    "selu sigmoid silu softplus softshrink softsign tanh tanhshrink"
).split()


def _spellings(name: str) -> Iterator[Any]:
    homes = (torch, torch.Tensor, torch.nn.functional, torch._C._nn, torch.ops.aten)
    for spelling in (name, f"{name}_", f"_{name}"):
        for home in homes:
            if (found := getattr(home, spelling, None)) is not None:
                yield found
                yield from _overloads(found)


def _overloads(found: Any) -> Iterator[Any]:
    if isinstance(found, torch._ops.OpOverloadPacket):
        for overload in found.overloads():
            yield getattr(found, overload)


def _table() -> dict[Any, Operation]:
    others = tuple(Operation(name, "other") for name in _OTHERS)
    return {
        spelling: operation
        for operation in (*_OPERATIONS, *others)
        for spelling in _spellings(operation.name)
    }


OPERATIONS: dict[Any, Operation] = _table()
"""From each function object that a `TorchFunctionMode` may meet to its `Operation`."""


def is_inplace(func: Any, arguments: dict[str, Any]) -> bool:
    """Return whether this call changes its input."""
    name = getattr(func, "__name__", "").partition(".")[0]
    return bool(arguments.get("inplace", False)) or name.endswith("_")


def looks_like_gate(operation: Operation, arguments: dict[str, Any]) -> bool:
    """Return whether a call of a gate could be an activation at all.

    `max(dim)` reduces, `where` selects and `maximum` of two computed tensors merges; only a
    constant bound makes a clip, and only a constant zero makes `where` a ReLU.
    """
    if operation.name == "where":
        return _is_zero(arguments.get("other"))
    return operation.bounds(arguments) is not None


def _is_zero(other: Any) -> bool:
    if isinstance(other, torch.Tensor):
        return other.numel() == 1 and not other.requires_grad and other.item() == 0
    return isinstance(other, int | float) and other == 0
