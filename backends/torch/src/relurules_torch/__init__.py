"""The Torch backend of relurules, as a plugin.

This module is imported whenever plugins are discovered, so it imports no Torch: it only says
which models are Torch's, and imports the rest when one is met.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from relurules.backend import Backend, BackendInfo
from relurules.hookspecs import hookimpl

RELURULES_API = 1


@hookimpl
def relurules_register_backends() -> Iterable[BackendInfo]:
    """Register this backend."""
    info = BackendInfo(
        name="torch", framework="torch", owns=_owns, load=_load, requires="torch>=2.6"
    )
    return [info]


def _owns(model: Any) -> bool:
    module_class = getattr(sys.modules.get("torch.nn"), "Module", ())
    return isinstance(model, module_class)


def _load() -> Backend:
    from relurules_torch._backend import TorchBackend  # noqa: PLC0415 - imports torch

    return TorchBackend()
