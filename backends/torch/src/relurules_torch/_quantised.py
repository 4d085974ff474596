"""What Torch's quantisation does with activations: integers have no gradient.

A model that is prepared for quantisation, or trained for it, still computes in floating point
and takes every rule. A converted one runs integer kernels, which autograd does not know, so its
activations are refused by name and never counted as ruled.
"""

from __future__ import annotations

from torch import nn

from relurules_torch._operations import QUANTISED, Operation

_OBSERVERS = "torch.ao.quantization."


def in_integers(operation: Operation) -> Operation:
    """Return what an operation is for a quantised input."""
    if operation.status != "site":
        return operation
    return Operation(operation.name, "opaque", detail=QUANTISED)


def is_observer(module: nn.Module) -> bool:
    """Return whether this module only watches the range of values, with `min` and `max`."""
    return type(module).__module__.startswith(_OBSERVERS)
