"""The plugin: which models are the toy framework's, and where its backend is.

It is imported whenever plugins are discovered, so it imports neither the framework nor NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from relurules.backend import Backend, BackendInfo
from relurules.hookspecs import hookimpl

RELURULES_API = 1

_FRAMEWORK = "relurules_example.tape"


@hookimpl
def relurules_register_backends() -> Iterable[BackendInfo]:
    """Register this backend."""
    return [BackendInfo(name="example", framework=_FRAMEWORK, owns=_owns, load=_load)]


def _owns(model: Any) -> bool:
    return isinstance(model, sys.modules[_FRAMEWORK].Model)


def _load() -> Backend:
    from relurules_example._backend import ExampleBackend  # noqa: PLC0415 - imports the framework

    return ExampleBackend()
