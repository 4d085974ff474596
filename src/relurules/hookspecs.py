"""The hooks that a plugin may implement.

A plugin is a module named by an entry point of the group `relurules`. It is code: installing
it is trusting it. Keep the module light, since it is imported when plugins are discovered;
import the framework inside the functions.

```toml
[project.entry-points.relurules]
mine = "my_package.relurules_plugin"
```

```python
from relurules import Rule, hookimpl

@hookimpl
def relurules_register_rules():
    return [Rule(name="mine", fn=...)]
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import pluggy

if TYPE_CHECKING:
    from relurules._backend import BackendInfo
    from relurules._rule import Bounds, Rule
    from relurules.testing import KnownFailure

API_VERSION = 1
"""A plugin may state `RELURULES_API = 1`; one that states another version is refused."""

Kernel: TypeAlias = Callable[..., Any]

hookspec = pluggy.HookspecMarker("relurules")
hookimpl = pluggy.HookimplMarker("relurules")


@hookspec
def relurules_register_rules() -> Iterable[Rule]:  # type: ignore[empty-body]
    """Return the rules that this plugin adds."""


@hookspec
def relurules_register_backends() -> Iterable[BackendInfo]:  # type: ignore[empty-body]
    """Return the backends that this plugin adds, without importing their frameworks."""


@hookspec(firstresult=True)
def relurules_kernel(rule: Rule, backend: str) -> Kernel | None:
    """Return a native kernel for a rule in a backend, or None.

    A kernel is only a faster way to the same bits. Each backend documents the signature it
    calls; for Torch it is `kernel(g, x, *, bounds, batch_axis)`.
    """


@hookspec(firstresult=True)
def relurules_recognise(backend: str, obj: object) -> Bounds | None:
    """Return the bounds of a third-party activation, or None where `obj` is not one.

    `obj` is what the backend meets: in Torch, a module whose forward cannot be looked into,
    and which computes `clip(x, lo, hi)` of its only argument.
    """


@hookspec
def relurules_known_failures(backend: str) -> Iterable[KnownFailure]:  # type: ignore[empty-body]
    """Return what is known to fail in a backend's conformance checks, each with its reason."""
