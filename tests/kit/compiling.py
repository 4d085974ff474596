"""The toy backend as if it compiled for each shape, so that the kit asks it of less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relurules_example import tape
from relurules_example.testing import ExampleCase


class CompilingExample(ExampleCase):
    """Has what the kit takes for the sign of a compiler."""

    def value(self, fn: Callable[..., Any], x: Any, /) -> Any:
        return fn(tape.Tensor(x)).data
