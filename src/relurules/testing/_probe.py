"""A small model, its plain gradient, and the questions that the life of a rule raises.

The numbers here are ordinary ones at which all frameworks' own gradients agree, so that "the
plain gradient is back" can be asked of any of them. One sample is live and one is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import relurules
from relurules import Applied, spec
from relurules._rule import Bounds, Rule
from relurules.testing._bits import Array, assert_same
from relurules.testing._case import BackendCase
from relurules.testing._values import RELU

X = np.array([[-0.75, 0.5, 7.0, -3.0], [-2.0, -3.0, -1.25, -1.5]], np.float32)
G = np.array([[1.0, -2.0, 3.0, -4.0], [-1.0, 2.0, -3.0, 4.0]], np.float32)

PLAIN = relurules.rule("standard")
DECONV = relurules.rule("deconv")
IDENTITY = relurules.rule("identity")
REDIRECTED = relurules.rule("redirected")
REDIRECTED_RELU6 = relurules.rule("redirected_relu6")


class DeliberateError(Exception):
    """Raised by the kit, to see what becomes of it."""


def _fail(x: Any, g: Any, *, bounds: Bounds, xp: Any) -> Any:
    raise DeliberateError


FAILING = Rule(name="failing", fn=_fail)


@dataclass(frozen=True, slots=True)
class Probe:
    """A model of activations in a row, and its gradient without any rule."""

    case: BackendCase
    bounds: tuple[Bounds, ...]
    model: Any
    own: tuple[Array, Array]

    @classmethod
    def new(cls, case: BackendCase, *bounds: Bounds) -> Probe:
        """Make a model and take its plain gradient."""
        bounds = bounds or (RELU,)
        model = case.model(*bounds)
        return cls(case, bounds, model, gradient(case, model))

    def apply(self, rule: Any, /, model: Any = None, **options: Any) -> Applied:
        """Apply a rule to the model, or to what an outer rule made of it."""
        model = self.model if model is None else model
        return relurules.apply(model, rule, backend=self.case.name, **options)

    def assert_plain(self, when: str, /) -> int:
        """Assert that the model has its own value and gradient."""
        y, dx = gradient(self.case, self.model)
        what = f"the model's own {{}} {when}"
        count = assert_same(y, self.own[0], x=X, g=G, what=what.format("value"))
        return count + assert_same(dx, self.own[1], x=X, g=G, what=what.format("gradient"))

    def assert_rules(self, fn: Any, rules: tuple[Rule, ...], when: str, /, **options: Any) -> int:
        """Assert that `fn` has the model's value, and the gradient of these rules in a row."""
        y, dx = gradient(self.case, fn)
        count = assert_same(y, self.own[0], x=X, g=G, what=f"the value {when}")
        return count + self.assert_gradient(dx, rules, when, **options)

    def assert_gradient(
        self, dx: Array, rules: tuple[Rule, ...], when: str, /, **options: Any
    ) -> int:
        """Assert that dx is the gradient of these rules, one for each activation."""
        right = self._expected(rules, **options)
        names = ", ".join(rule.name for rule in rules)
        return assert_same(dx, right, x=X, g=G, what=f"the gradient of {names} {when}")

    def _expected(self, rules: tuple[Rule, ...], **options: Any) -> Array:
        inputs = [X]
        for lo, hi in self.bounds[:-1]:
            inputs.append(np.clip(inputs[-1], np.float32(lo), np.float32(hi)))
        g = G
        for rule, x, bounds in reversed(list(zip(rules, inputs, self.bounds, strict=True))):
            g = spec.evaluate(rule, x, g, bounds=bounds, **options)
        return g


def gradient(case: BackendCase, fn: Callable[..., Any], /) -> tuple[Array, Array]:
    """Return the value and the gradient of `fn` at the probe's numbers."""
    y, pull = case.pullback(fn, X, mode="eager")
    return y, pull(G)


@contextmanager
def raises(what: str, /, *kinds: type[BaseException], match: str = "") -> Iterator[None]:
    """Assert that the body raises one of these, itself or as a framework's cause.

    Raises:
        AssertionError: It raises nothing, or something else.
    """
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        if any(isinstance(one, kinds) and match in str(one) for one in _chain(error)):
            return
        told = f" that says {match!r}" if match else ""
        raise AssertionError(f"{what}: expected {names}{told}, got {error!r}") from error
    raise AssertionError(f"{what}: expected {names}, and nothing was raised")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
