"""What properties are searched on: any bit pattern, any special value, half the samples dead.

Floats are drawn as integers and viewed. Drawn as floats they would leave out NaN payloads and
most subnormals, and Hypothesis would ask the backend whether it has subnormals and leave them
out without a word where it flushes them. Shapes come from a short list, and a compiling backend
is asked of two or so for each rule, dtype and bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relurules._rule import Bounds, Rule
from relurules.testing._bits import Array, bits
from relurules.testing._case import BackendCase
from relurules.testing._check import Profile
from relurules.testing._extra import dtype_of, require
from relurules.testing._few import few
from relurules.testing._trial import Trial, expected, run
from relurules.testing._values import BOUNDS, bounds_for, deadened, specials

SHAPES = ((2, 3), (3, 2, 2), (2, 1, 2, 3), (2, 2, 1, 1, 2), (1, 4), (0, 3), (2, 0, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A site, what flows through it, a rule, and the backend that runs it."""

    case: BackendCase
    rule: Rule
    x: Array
    g: Array
    bounds: Bounds
    seed: int

    def __call__(self, x: Array | None = None, g: Array | None = None, **options: Any) -> Array:
        """Return the gradient that the backend gives, of the drawn x and g or of others."""
        return run(self.case, self._trial(x, g, options))[1]

    def specified(self, **options: Any) -> Array:
        """Return the gradient that the specification gives."""
        return expected(self._trial(None, None, options))

    def under(self, rule: Rule, /) -> Draw:
        """Return the same draw under another rule."""
        return replace(self, rule=rule)

    def order(self, length: int, /) -> Array:
        """Return a permutation of this length, the same for the same draw."""
        return np.random.default_rng(self.seed).permutation(length)

    def _trial(self, x: Array | None, g: Array | None, options: dict[str, Any]) -> Trial:
        return Trial(
            rule=self.rule,
            x=self.x if x is None else x,
            g=self.g if g is None else g,
            bounds=self.bounds,
            **options,
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        return (
            f"{self.rule.name}, {self.x.dtype}, bounds {self.bounds}, seed {self.seed}, "
            f"x = {self.x.tolist()} {bits(self.x).tolist()}, "
            f"g = {self.g.tolist()} {bits(self.g).tolist()}"
        )


def search(
    holds: Callable[[Draw], None], case: BackendCase, rules: tuple[Rule, ...], profile: Profile
) -> int:
    """Search for a draw on which `holds` raises, and return how many elements were drawn.

    Raises:
        AssertionError: There is one; the message is about the smallest that was found.
    """
    hypothesis, drawn = require("hypothesis"), [0]

    def attempt(draw: Draw) -> None:
        drawn[0] += draw.x.size
        holds(draw)

    settings = hypothesis.settings(
        max_examples=profile.examples,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    seed = hypothesis.seed(f"{profile.seed} {holds.__name__}")
    seed(settings(hypothesis.given(draws(case, rules, profile))(attempt)))()
    return drawn[0]


def draws(case: BackendCase, rules: tuple[Rule, ...], profile: Profile, /) -> Any:
    """Return the strategy of draws for these rules."""
    st = require("hypothesis.strategies")

    def of(draw: Any) -> Draw:
        rule, dtype = draw(st.sampled_from(rules)), draw(st.sampled_from(case.dtypes))
        bounds = draw(st.sampled_from(bounds_for(rule)))
        place = case.dtypes.index(dtype), BOUNDS.index(bounds), profile.seed or 0
        shape = draw(st.sampled_from(few(SHAPES, case, *place)))
        x, g = draw(_floats(dtype, shape, bounds)), draw(_floats(dtype, shape))
        if draw(st.booleans()):
            x = deadened(x, bounds, rows=slice(None, None, draw(st.sampled_from((1, 2)))))
        seed = draw(st.integers(0, 999))
        return Draw(case=case, rule=rule, x=x, g=g, bounds=bounds, seed=seed)

    return st.composite(of)()


@functools.cache  # to make one takes longer than to draw from it
def _floats(dtype: str, shape: tuple[int, ...], often: tuple[float, ...] = ()) -> Any:
    """Return the strategy of arrays of any bits; special ones are frequent, and `often` too."""
    st, of = require("hypothesis.strategies"), dtype_of(dtype)
    frequent = [*bits(specials(dtype)).tolist(), *4 * bits(np.array(often, of)).tolist()]
    patterns = st.sampled_from(frequent) | st.integers(0, 2 ** (8 * of.itemsize) - 1)
    arrays = require("hypothesis.extra.numpy").arrays(
        f"u{of.itemsize}", shape, elements=patterns, fill=st.nothing()
    )
    return arrays.map(lambda array: array.view(of))
