"""Walking the autograd graph of a forward, from its outputs back to its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

ACTIVATION_NODES = frozenset(
    {
        "ReluBackward0",
        "HardtanhBackward0",
        "HardtanhBackward1",
        "ThresholdBackward0",
        "ThresholdBackward1",
    }
)
"""The nodes of activations."""

_FUSED = "CudnnRnnBackward0"
_RNN_RELU = 0  # cudnnRNNMode_t; the other modes are tanh, LSTM and GRU

_LEFT_ALONE = "relurules_left_alone"


def is_activation(node: Any) -> bool:
    """Return whether this is the node of an activation, or of a fused layer that holds one."""
    name = type(node).__name__
    return name in ACTIVATION_NODES or (
        name == _FUSED and getattr(node, "_saved_mode", _RNN_RELU) == _RNN_RELU
    )


def leave_alone(output: Any, boundary: frozenset[Any]) -> None:
    """Mark what made `output` as keeping its own gradient on purpose."""
    for node in walk(output, boundary):
        node.metadata[_LEFT_ALONE] = True


def is_left_alone(node: Any) -> bool:
    """Return whether `leave_alone` marked this node."""
    return _LEFT_ALONE in node.metadata


def boundary_of(inputs: Any) -> frozenset[Any]:
    """Return the autograd nodes of all tensors in `inputs`: what was computed before them."""
    return frozenset(t.grad_fn for t in tensors(inputs) if t.grad_fn is not None)


def tensors(tree: Any, depth: int = 8) -> Iterator[torch.Tensor]:
    """Yield every tensor in nested containers, dataclasses and plain objects."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif depth:
        for child in _children(tree):
            yield from tensors(child, depth - 1)


def _children(tree: Any) -> list[Any]:
    if isinstance(tree, Mapping):
        return list(tree.values())
    if isinstance(tree, list | tuple | set | frozenset):
        return list(tree)
    if isinstance(tree, type | torch.nn.Module):
        return []
    if dataclasses.is_dataclass(tree):
        return [getattr(tree, field.name) for field in dataclasses.fields(tree)]
    return list(getattr(tree, "__dict__", {}).values())


def walk(output: Any, boundary: frozenset[Any]) -> Iterator[Any]:
    """Yield every autograd node between `output` and `boundary`."""
    pending = [t.grad_fn for t in tensors(output) if t.grad_fn is not None]
    seen = set(boundary)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        pending.extend(child for child, _ in node.next_functions if child is not None)
