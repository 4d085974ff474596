"""The toy framework as the conformance kit sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from relurules.backend import Bounds
from relurules.testing import KnownFailure, Mode, Pull
from relurules_example import tape

_RELU, _RELU6 = (0.0, float("inf")), (0.0, 6.0)
_SPELLINGS: dict[str, tuple[Bounds, tape.Forward]] = {
    "tape.relu": (_RELU, tape.relu),
    "Tensor.relu_": (_RELU, lambda x: x.clone().relu_()),
    "tape.relu6": (_RELU6, tape.relu6),
    "tape.clip(0, 6)": (_RELU6, lambda x: tape.clip(x, 0, 6)),
}


def case() -> ExampleCase:
    """Return what the kit needs to test this backend."""
    return ExampleCase()


class ExampleCase:
    """The adapter of `relurules_example`."""

    name = "example"
    dtypes: tuple[str, ...] = ("float16", "float32", "float64")  # those NumPy has itself
    modes: tuple[Mode, ...] = ("eager",)
    spellings: Mapping[str, Bounds] = {name: bounds for name, (bounds, _) in _SPELLINGS.items()}
    versions: Mapping[str, str] = {"tape": "0.1.0"}
    known_failures: tuple[KnownFailure, ...] = ()

    def model(self, *bounds: Bounds) -> tape.Model:
        """Return one clip after the other."""
        return tape.Model(*(partial(tape.clip, lo=lo, hi=hi) for lo, hi in bounds))

    def spelled(self, spelling: str, /) -> tape.Model:
        """Return a model of one activation, written in this way."""
        return tape.Model(_SPELLINGS[spelling][1])

    def scalar(self, step: int, /) -> int:
        """Return the step: the toy framework has no scalars."""
        return step

    def pullback(
        self,
        fn: Callable[..., Any],
        x: Any,
        /,
        *,
        mode: Mode,
    ) -> tuple[Any, Pull]:
        """Run `fn` and return its value and its pullback."""
        leaf = tape.Tensor(x)
        y = fn(leaf)
        return y.data, lambda g: y.gradient(leaf, g)
