"""The backend: what relurules asks of Torch, and which models are refused at once."""

from __future__ import annotations

import torch
from torch import nn

from relurules.backend import Attachment, Plan, State
from relurules.errors import UncoveredActivationError
from relurules_torch._arrays import TorchArrays
from relurules_torch._attachment import TorchAttachment
from relurules_torch._smooth import VARIANTS


class TorchBackend:
    """The backend for `torch.nn.Module`."""

    name = "torch"
    arrays = TorchArrays()
    smooth_activations = VARIANTS

    def attach(self, model: nn.Module, plan: Plan, state: State, /) -> Attachment:
        """Put the plan's rules behind the model's activations."""
        if isinstance(model, torch.jit.ScriptModule):
            raise UncoveredActivationError(
                f"{type(model).__name__} is TorchScript, which runs below Python: no rule can be "
                "put behind its activations. Apply the rule to the module it was scripted or "
                "traced from."
            )
        return TorchAttachment(model, plan, state)
