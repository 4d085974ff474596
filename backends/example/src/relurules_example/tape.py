"""A toy framework: arrays that remember how they were computed, and models made of functions.

It stands for a real one. relurules knows nothing of it, and all it offers a backend are two
places to hook into: `Model.wrappers` around a model's forward, and `interceptors`, which each
activation asks whether somebody else wants to give its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

Pullback = Callable[[Any], Any]
Forward = Callable[["Tensor"], "Tensor"]
Interceptor = Callable[[str, "Tensor", tuple[float, float]], Pullback | None]

interceptors: ContextVar[tuple[Interceptor, ...]] = ContextVar("interceptors", default=())


class Tensor:
    """An array, the tensor it was computed from, and how the gradient goes back to that."""

    def __init__(
        self, data: Any, parent: Tensor | None = None, pull: Pullback | None = None
    ) -> None:
        self.data = data
        self.parent = parent
        self.pull = pull

    def gradient(self, of: Tensor, g: Any) -> Any:
        """Return the gradient of `of`, an earlier tensor, for the gradient g of this one."""
        node = self
        while node is not of:
            if node.parent is None or node.pull is None:
                raise ValueError("This tensor was not computed from that one.")
            g, node = node.pull(g), node.parent
        return g

    def clone(self) -> Tensor:
        """Return a copy that may be changed in place."""
        return Tensor(self.data.copy(), self, lambda g: g)

    def relu_(self) -> Tensor:
        """Clip in place from below at 0."""
        result = relu(Tensor(self.data, self.parent, self.pull))
        before = result.parent
        self.data, self.parent, self.pull = result.data, before, result.pull
        return self


def clip(x: Tensor, lo: float, hi: float, *, op: str = "clip") -> Tensor:
    """Clip to `[lo, hi]`: the activation of which all others are special cases."""
    floor, ceiling = np.asarray(lo, x.data.dtype), np.asarray(hi, x.data.dtype)
    with np.errstate(invalid="ignore"):  # NaN passes
        low, high = x.data < floor, x.data > ceiling
    pull: Pullback = lambda g: np.where(low | high, np.zeros_like(g), g)  # noqa: E731
    for intercept in interceptors.get():  # the innermost last, and so it wins
        pull = intercept(op, x, (lo, hi)) or pull
    return Tensor(np.where(low, floor, np.where(high, ceiling, x.data)), x, pull)


def relu(x: Tensor) -> Tensor:
    """Clip from below at 0."""
    return clip(x, 0.0, np.inf, op="relu")


def relu6(x: Tensor) -> Tensor:
    """Clip to `[0, 6]`."""
    return clip(x, 0.0, 6.0, op="relu6")


class Model:
    """Functions of a tensor, one after the other."""

    def __init__(self, *layers: Forward) -> None:
        self.layers = layers
        self.wrappers: list[Callable[[Forward], Forward]] = []

    def __call__(self, x: Tensor) -> Tensor:
        """Run the layers, inside all wrappers; the one added last is the innermost."""
        run: Forward = self._forward
        for wrap in reversed(self.wrappers):
            run = wrap(run)
        return run(x)

    def _forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
