"""What a user of each library holds in their hand, and how a call of it is written.

A linen module is called through `apply`, a haiku transform has `init` and `apply`, an nnx, equinox
or Keras model is called itself. The applied model looks like what it was made of: its methods
run under the rule too, its data are the model's own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol

import jax

from relurules.errors import UncoveredActivationError, UnsupportedModelError

Call = Callable[..., Any]


class Runner(Protocol):
    """What runs a model's code under a rule."""

    @property
    def is_removed(self) -> bool:
        """Whether the rule was removed."""
        ...

    def run(self, function: Call, args: Any, kwargs: Any, /) -> Any:
        """Call `function` under the rule."""
        ...


class RuledModel:
    """A model under a rule: call it, or its methods, in place of the model's own."""

    def __init__(self, model: Any, runner: Runner) -> None:
        self._model = model
        self._runner = runner
        functools.update_wrapper(self, entry_of(model), updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run(entry_of(self._model), args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_model" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._model, name)
        return RuledModel(value, self._runner) if _is_code(value) else value

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<{self._model!r} under a relurules rule>"


def entry_of(model: Any) -> Call:
    """Return the function that a call of the model means."""
    if _is_unbound_linen(model) or _is_one_of(model, _TRANSFORMED):
        return model.apply  # type: ignore[no-any-return]
    if not callable(model):
        raise UnsupportedModelError(
            f"A {type(model).__name__} cannot be called. Pass the function that runs the model, "
            "such as relurules.apply(lambda x: ..., rule)."
        )
    return model  # type: ignore[no-any-return]


def check(model: Any) -> None:
    """Raise where nothing can be put behind this object's activations.

    Raises:
        UncoveredActivationError: It is compiled or exported already.
    """
    stages = (jax.stages.Compiled, jax.stages.Lowered)
    if isinstance(model, stages) or _is_one_of(model, (("jax.export", "Exported"),)):
        raise UncoveredActivationError(
            f"A jax {type(model).__name__} is compiled ahead of time, and no rule can be put "
            "behind its activations. Apply the rule to the function, and lower, compile or "
            "export jax.jit(applied.model)."
        )


_TRANSFORMED = (("haiku", "Transformed"), ("haiku", "TransformedWithState"))


def _is_one_of(model: Any, names: tuple[tuple[str, str], ...]) -> bool:
    classes = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return isinstance(model, tuple(one for one in classes if isinstance(one, type)))


def _is_unbound_linen(model: Any) -> bool:
    return _is_one_of(model, (("flax.linen", "Module"),)) and model.scope is None


def _is_code(value: Any) -> bool:
    return callable(value) and any(hasattr(value, name) for name in _CODE)


_CODE = ("__code__", "__func__", "__wrapped__")


def unwrapped(model: Any) -> tuple[Any, Runner | None]:
    """Return the model under a ruled model, and what runs it; or the model itself."""
    if isinstance(model, RuledModel):
        return model.__dict__["_model"], model.__dict__["_runner"]
    return model, None
