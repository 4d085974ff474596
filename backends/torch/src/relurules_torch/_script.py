"""What a TorchScript submodule hides, read from its graph.

TorchScript runs below Python, so nothing can be put behind its activations. But its graph can
be read, so only a submodule that really holds one is refused.
"""

from __future__ import annotations

import re

import torch

_ACTIVATIONS = re.compile(
    r"(?:aten|prim|quantized)::(relu6?_?|hardtanh_?|threshold_?|rnn_relu\w*|PythonOp)\b"
)


def hidden_activations(module: torch.jit.ScriptModule) -> str:
    """Return why a rule cannot reach this submodule, or "" where it holds no activation."""
    found = sorted(set(_ACTIVATIONS.findall(str(module.inlined_graph))))
    if not found:
        return ""
    return (
        f"TorchScript with {', '.join(found)} inside, which runs below Python. Use the module it "
        "was scripted or traced from, or exclude it by this name."
    )
