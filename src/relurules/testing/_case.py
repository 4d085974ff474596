"""What a backend offers the kit: ways to make tiny models, and one to differentiate them.

The kit calls `relurules.apply` itself, on real models of the framework, so that what is proven
is what users run. All it cannot know is how a model of that framework is built and how its
gradient is taken; that is this adapter, some fifty lines per framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from relurules import _plugins
from relurules._backend import BackendInfo
from relurules._rule import Bounds
from relurules.errors import RelurulesError, UnknownBackendError
from relurules.testing._bits import Array
from relurules.testing._known import KnownFailure

Mode: TypeAlias = Literal["eager", "compiled", "vjp", "vmap"]
Pull: TypeAlias = Callable[[Array], Array]

MODES: tuple[Mode, ...] = get_args(Mode)


class NoCaseError(RelurulesError, LookupError):
    """A backend that offers the kit no adapter."""


@runtime_checkable
class BackendCase(Protocol):
    """One framework, as the kit sees it. Arrays are NumPy's on both sides.

    Attributes:
        name: The backend's name, as in `relurules.apply(..., backend=name)`.
        dtypes: Those of `relurules.spec.DTYPES` that the framework has.
        modes: The ways in which its users take gradients: `"eager"` always; `"compiled"`
            for jit and the like; `"vjp"` for a functional transform; `"vmap"` for one mapped
            over samples.
        spellings: Each way of writing an activation in it, and the bounds it has.
        versions: The versions of the framework, for the report.
        known_failures: What fails at present, and why.
    """

    name: str
    dtypes: tuple[str, ...]
    modes: tuple[Mode, ...]
    spellings: Mapping[str, Bounds]
    versions: Mapping[str, str]
    known_failures: tuple[KnownFailure, ...]

    def model(self, *bounds: Bounds) -> Any:
        """Return a new model: one activation for each of the bounds, one after the other.

        Without bounds it is the identity, a model that holds no activation.
        """
        ...

    def spelled(self, spelling: str, /) -> Any:
        """Return a new model of one activation, written as this key of `spellings`."""
        ...

    def scalar(self, step: int, /) -> Any:
        """Return a step as the framework's own scalar, such as a tensor of rank 0.

        Where the framework has none it is the step itself.
        """
        ...

    def pullback(self, fn: Callable[..., Any], x: Array, /, *, mode: Mode) -> tuple[Array, Pull]:
        """Run `fn` on x, and return its value and the function that takes its gradient back.

        Hand x over with its strides where the framework has strides. In the mode `"vmap"`
        `fn` is mapped over the first axis of x, and so is the gradient; there `fn` may be
        called when the gradient is asked for, and not before.
        """
        ...


@runtime_checkable
class CompilingCase(BackendCase, Protocol):
    """An adapter of a framework that compiles a program for every shape, such as JAX.

    Each costs some 50 ms. So an adapter that has this method too is asked for fewer programs:
    each shape under every rule, and in every dtype, but not under every rule in every dtype.
    """

    def value(self, fn: Callable[..., Any], x: Array, /) -> Array:
        """Run `fn` on x without asking for a gradient, and return its value."""
        ...


def find_case(backend: str | BackendCase, /) -> BackendCase:
    """Return the adapter of a backend: `case()` of the module `testing` beside its plugin.

    Args:
        backend: The name of an installed backend, or an adapter, which is returned.

    Raises:
        UnknownBackendError: No such backend; the message has the close matches.
        NoCaseError: The backend has no adapter.
        TypeError: The adapter is incomplete.
    """
    case = _load_case(backend) if isinstance(backend, str) else backend
    if not isinstance(case, BackendCase):
        raise TypeError(
            f"{case!r} is no BackendCase; it lacks {', '.join(_missing(case))}. See the page "
            "'Writing a backend'."
        )
    return case


def _load_case(name: str) -> Any:
    known = _plugins.catalogue().backends
    info = _plugins.find(name, known, what="backend", unknown=UnknownBackendError)
    return import_module(_module(info)).case()


def _module(info: BackendInfo) -> str:
    home = f"{info.load.__module__}.testing"
    if find_spec(home) is None:
        raise NoCaseError(
            f"Backend {info.name!r} offers the conformance kit no adapter: there is no module "
            f"{home} with a function case(). See the page 'Writing a backend'."
        )
    return home


def _missing(case: object) -> list[str]:
    members = (*BackendCase.__annotations__, "model", "spelled", "scalar", "pullback")
    return [member for member in members if not hasattr(case, member)]
