"""What a backend provides, and nothing else: the contract between core and frameworks.

A backend is one folder, found through an entry point, and changes no file of the core. Its
`BackendInfo` must not import the framework: it is asked whether it owns a model only where
the framework is loaded already, so choosing a backend costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from relurules._plan import Plan
from relurules._report import Report
from relurules._state import State


class Attachment(Protocol):
    """One rule behind one model's activations, until it is removed.

    Where a rule holds for one thread or task only, the attachment also has a property
    `elsewhere`: why the code that asks is outside it, or "". `Applied` refuses such a call.
    """

    @property
    def model(self) -> Any:
        """What the user calls: the model itself, or a transformed callable."""
        ...

    @property
    def calls(self) -> int:
        """How often the model ran under the rule."""
        ...

    @property
    def hint(self) -> str:
        """What to do where the model was never called."""
        ...

    def report(self) -> Report:
        """Return what was reached and what was not, so far."""
        ...

    def follow(self, optimizer: Any, advance: Callable[[], None], /) -> None:
        """Call `advance` after each step of `optimizer`, until removed.

        Raises:
            TypeError: The framework has no such optimiser.
        """
        ...

    def remove(self) -> None:
        """Restore the model; harmless when done already, and in any order."""
        ...


class Arrays(Protocol):
    """A framework's arrays and its functional gradient: all that `relurules.maps` needs of it.

    A backend that has them offers them as its attribute `arrays`; one that has none can still
    put rules behind activations.
    """

    def evaluate(self, fn: Callable[..., Any], inputs: tuple[Any, ...], /) -> Any:
        """Return `fn(*inputs)`, recorded for no gradient."""
        ...

    def gradient(self, fn: Callable[..., Any], inputs: tuple[Any, ...], /) -> tuple[Any, ...]:
        """Return the gradient of the scalar `fn(*inputs)` for each input, and touch nothing else.

        Raises:
            TypeError: An input is no array of the framework, or not of floating point.
            ValueError: The framework can tell that the scalar does not depend on an input.
        """
        ...

    def to_numpy(self, array: Any, /) -> np.ndarray[Any, Any]:
        """Return the numbers, in a dtype of NumPy's own that holds them exactly."""
        ...

    def from_numpy(self, values: np.ndarray[Any, Any], /, *, like: Any) -> Any:
        """Return an array with the dtype of `like`, on its device."""
        ...


class Backend(Protocol):
    """One way to put a rule behind every activation of a framework's models."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    def attach(self, model: Any, plan: Plan, state: State, /) -> Attachment:
        """Put the plan's rules behind the model's activations.

        The backend reads `state.step` and `state.paused` when an activation runs, calls
        `relurules.backend.evaluate` (or a kernel equal to it) in the backward pass, and hands
        its report to `relurules.backend.judge` after each call of the model.

        Raises:
            UnsupportedModelError: Nothing can be put behind this model.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """How to choose a backend without importing its framework.

    Attributes:
        name: What `apply(..., backend=)` takes.
        framework: The framework's import name; `owns` is asked only if it is in
            `sys.modules`.
        owns: Whether a model is this backend's.
        load: Imports the framework and returns the backend.
        requires: The framework's requirement, for messages.
    """

    name: str
    framework: str
    owns: Callable[[Any], bool]
    load: Callable[[], Backend]
    requires: str = ""
