"""Which Torch functions are activations, which only look like one, and how each is called.

Torch spells a ReLU in some twenty ways (function, method, in-place, aten operator), and all of
them reach a `TorchFunctionMode` as one function object. So one table from that object to how
its arguments are read covers every spelling, and a new spelling is one more name in a list.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

from relurules.backend import Bounds

Status: TypeAlias = Literal["site", "gate", "smooth", "other", "opaque"]
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
ReadBounds: TypeAlias = Callable[[Args, Kwargs], Bounds | None]

_INF = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """How one Torch function is called and what it means.

    Attributes:
        name: Its name in reports.
        status: `"site"`, `"gate"` and `"smooth"` (taken on request), `"other"` or `"opaque"`.
        bounds: Reads `(lo, hi)` from its arguments; None where they are no bounds.
        inplace_at: The position of the parameter `inplace` of its spelling in
            `torch.nn.functional`; 0 where that has none.
        mutates: Whether this spelling always changes its input.
        saves_output: Whether autograd keeps its output, and not its input, for the backward.
        has_fixed_bounds: Whether its bounds are the same in every call.
        detail: What the report says of it, where that is not the same for all of its status.
        plain: The quickest spelling of it out of place, of the input alone, if there is one.
    """

    name: str
    status: Status
    bounds: ReadBounds = lambda args, kwargs: None
    inplace_at: int = 0
    mutates: bool = False
    saves_output: bool = False
    has_fixed_bounds: bool = False
    detail: str = ""
    plain: Callable[[torch.Tensor], torch.Tensor] | None = None

    def is_inplace(self, args: Args, kwargs: Kwargs) -> bool:
        """Return whether this call changes its input."""
        if self.mutates or not self.inplace_at:
            return self.mutates
        return bool(argument(args, kwargs, self.inplace_at, "inplace", False))


def argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any = None) -> Any:
    """Return an argument given by position or by name."""
    return args[position] if len(args) > position else kwargs.get(name, default)


def input_of(args: Args, kwargs: Kwargs) -> Any:
    """Return the input, which aten operators call `self`."""
    return args[0] if args else kwargs.get("input", kwargs.get("self"))


def tensors_of(args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    """Return the arguments that are tensors."""
    return [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]


def call_with_input(func: Any, args: Args, kwargs: Kwargs, x: torch.Tensor) -> Any:
    """Call a function with another input and the same other arguments."""
    if args:
        return func(x, *args[1:], **kwargs)
    return func(**{key: x if key in ("input", "self") else v for key, v in kwargs.items()})


def _fixed(lo: float, hi: float) -> ReadBounds:
    bounds = (lo, hi)
    return lambda args, kwargs: bounds


_RELU, _RELU6 = _fixed(0.0, _INF), _fixed(0.0, 6.0)


def _hardtanh(args: Args, kwargs: Kwargs) -> Bounds | None:
    lo = argument(args, kwargs, 1, "min_val", -1.0)
    return _as_bounds(lo, argument(args, kwargs, 2, "max_val", 1.0))


def _threshold(args: Args, kwargs: Kwargs) -> Bounds | None:
    threshold, value = argument(args, kwargs, 1, "threshold"), argument(args, kwargs, 2, "value")
    return _as_bounds(threshold, _INF) if threshold == value else None


def _clamp(args: Args, kwargs: Kwargs) -> Bounds | None:
    lo, hi = argument(args, kwargs, 1, "min"), argument(args, kwargs, 2, "max")
    return _as_bounds(-_INF if lo is None else lo, _INF if hi is None else hi)


def _clamp_max(args: Args, kwargs: Kwargs) -> Bounds | None:
    return _as_bounds(-_INF, argument(args, kwargs, 1, "max"))


def _maximum(args: Args, kwargs: Kwargs) -> Bounds | None:
    return _as_bounds(_constant(argument(args, kwargs, 1, "other")), _INF)


def _minimum(args: Args, kwargs: Kwargs) -> Bounds | None:
    return _as_bounds(-_INF, _constant(argument(args, kwargs, 1, "other")))


def _constant(other: Any) -> Any:
    if isinstance(other, torch.Tensor):
        return other.item() if other.numel() == 1 and not other.requires_grad else None
    return None  # max(x, 0) reduces over axis 0


def _as_bounds(lo: Any, hi: Any) -> Bounds | None:
    if isinstance(lo, int | float) and isinstance(hi, int | float) and lo < hi:
        return (float(lo), float(hi))
    return None


FUSED = "a fused kernel with a ReLU inside. Write the cell with torch.relu, or exclude it."
QUANTISED = (
    "a quantised kernel, which has no gradient. Apply the rule to the float model that was "
    "quantised, or exclude it."
)

_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "relu",
        "site",
        _RELU,
        inplace_at=1,
        saves_output=True,
        has_fixed_bounds=True,
        plain=torch.relu,
    ),
    Operation("relu6", "site", _RELU6, inplace_at=1, has_fixed_bounds=True),
    Operation("hardtanh", "site", _hardtanh, inplace_at=3),
    Operation("threshold", "site", _threshold, inplace_at=3),
    Operation("clamp", "gate", _clamp),
    Operation("clip", "gate", _clamp),
    Operation("clamp_min", "gate", _clamp),
    Operation("clamp_max", "gate", _clamp_max),
    Operation("maximum", "gate", _maximum),
    Operation("max", "gate", _maximum),
    Operation("fmax", "gate", _maximum),
    Operation("minimum", "gate", _minimum),
    Operation("min", "gate", _minimum),
    Operation("fmin", "gate", _minimum),
    Operation("where", "gate", detail="no rule takes it; write relu"),
    Operation("celu", "smooth", inplace_at=2),
    Operation("elu", "smooth", inplace_at=2),
    Operation("gelu", "smooth"),
    Operation("hardsigmoid", "smooth", inplace_at=1),
    Operation("hardswish", "smooth", inplace_at=1),
    Operation("leaky_relu", "smooth", inplace_at=2),
    Operation("mish", "smooth", inplace_at=1),
    Operation("prelu", "smooth"),
    Operation("rrelu", "smooth", inplace_at=4),
    Operation("selu", "smooth", inplace_at=1),
    Operation("silu", "smooth", inplace_at=1),
    Operation("softplus", "smooth"),
    Operation("rnn_relu", "opaque", detail=FUSED),
    Operation("rnn_relu_cell", "opaque", detail=FUSED),
)

_OTHERS = [
    "glu",
    "hardshrink",
    "logsigmoid",
    "sigmoid",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
]


def _spellings(operation: Operation) -> Iterator[tuple[Any, Operation]]:
    homes = (torch, torch.Tensor, torch.nn.functional, torch._C._nn, torch.ops.aten)
    changing = replace(operation, mutates=True)
    names = {operation.name: operation, f"_{operation.name}": operation}
    for name, meaning in (names | {f"{operation.name}_": changing}).items():
        for home in homes:
            if (found := getattr(home, name, None)) is not None:
                here = meaning if home is torch.nn.functional else replace(meaning, inplace_at=0)
                yield from ((one, here) for one in _with_overloads(found))


def _with_overloads(found: Any) -> Iterator[Any]:
    yield found
    if isinstance(found, torch._ops.OpOverloadPacket):
        yield from (getattr(found, overload) for overload in found.overloads())


def _quantised() -> Iterator[tuple[Any, Operation]]:
    """Yield the quantised kernels with a ReLU inside, such as `quantized::conv2d_relu`."""
    for full_name in torch._C._dispatch_get_all_op_names():
        if found := _QUANTISED_RELU.match(full_name):
            packet = getattr(getattr(torch.ops, found["home"]), found["name"])
            operation = Operation(found["name"], "opaque", detail=QUANTISED)
            yield from ((one, operation) for one in _with_overloads(packet))


_QUANTISED_RELU = re.compile(
    r"(?P<home>_?quantized|sparse|onednn)::(?P<name>(?!\w*(?:leaky_|p)relu)\w*relu\w*)"
)


def _table() -> dict[Any, Operation]:
    others = (Operation(name, "other") for name in _OTHERS)
    spelled = (pair for one in (*_OPERATIONS, *others) for pair in _spellings(one))
    return dict(itertools.chain(spelled, _quantised()))


OPERATIONS: dict[Any, Operation] = _table()
"""From each function object that a `TorchFunctionMode` may meet to its `Operation`."""


def looks_like_gate(operation: Operation, args: Args, kwargs: Kwargs) -> bool:
    """Return whether a call of a gate could be an activation at all.

    `max(dim)` reduces, `where` selects and `maximum` of two computed tensors merges; only a
    constant bound makes a clip, and only a constant zero makes `where` a ReLU.
    """
    if operation.name == "where":
        return _is_zero(argument(args, kwargs, 2, "other"))
    return operation.bounds(args, kwargs) is not None


def _is_zero(other: Any) -> bool:
    return bool((_constant(other) if isinstance(other, torch.Tensor) else other) == 0)
