"""Checks of a rule that nobody here has seen: one function, and every backend at once.

A rule's author writes no framework's code. So what can go wrong is in the function itself: it
changes what it is given, uses what not every backend has, widens a dtype, or reads more of its
sample than it says. Whatever passes must then be the same bits in each installed backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from relurules import _plugins, spec
from relurules._apply import rule as find_rule
from relurules._library import STANDARD
from relurules._rule import Bounds, Rule, evaluate
from relurules.testing import _numbers
from relurules.testing._bits import Array, assert_same, matches
from relurules.testing._case import BackendCase, Mode, Pull, find_case
from relurules.testing._catalogue import find_profile
from relurules.testing._check import Check, Family, Profile, Setting
from relurules.testing._extra import NATIVE, dtype_of, require
from relurules.testing._known import KnownFailure
from relurules.testing._run import CheckResult, OnFail, run_checks
from relurules.testing._values import bounds_for, grid, mixed

_STRICT = ("float32", "float64")
_SUBSET = ("where", "any", "zeros_like")


def rule_is_pure(at: Setting) -> int:
    """The same input gives the same result twice, and is not changed."""
    x, g = grid(at.dtype)
    before = x.tobytes(), g.tobytes()
    first, second = _numpy(at.rule, x, g), _numpy(at.rule, x, g)
    if (x.tobytes(), g.tobytes()) != before:
        raise AssertionError(f"rule {at.rule.name} changes its arguments in place")
    return assert_same(second, first, x=x, g=g, what=f"rule {at.rule.name}, called a second time")


def rule_keeps_shape_and_dtype(at: Setting) -> int:
    """The result has the shape and dtype of g, whatever the shape."""
    shapes = ((2, 3), (1, 1), (0, 2), (2, 0), (2, 1, 3), (1, 2, 1, 2))
    for shape in shapes:
        x, g = mixed(at.dtype, bounds_for(at.rule)[0], 0, shape=shape)
        out = _numpy(at.rule, x, g)
        got = getattr(out, "shape", None), getattr(out, "dtype", None)
        if got != (g.shape, g.dtype):
            raise AssertionError(
                f"rule {at.rule.name}: got {got[1]} of shape {got[0]} for {g.dtype} of {g.shape}"
            )
    return len(shapes)


def rule_uses_the_subset(at: Setting) -> int:
    """It runs with operators, `where`, `any` and `zeros_like`, on arrays that have no more."""
    strict = require("array_api_strict")
    x, g = mixed(at.dtype, bounds_for(at.rule)[-1], 1)
    arrays = (strict.asarray(x), strict.asarray(g))
    out = np.asarray(_evaluate(at.rule, *arrays, xp=_Subset(strict)))
    what = f"rule {at.rule.name} on array_api_strict"
    return assert_same(out, _specified(at.rule, x, g), x=x, g=g, what=what)


def rule_filters(at: Setting) -> int:
    """A rule that says it is a filter gives the bits of g or +0.0."""
    x, g = grid(at.dtype)
    if not at.rule.is_filter:
        return 0
    out = _numpy(at.rule, x, g)
    kept = np.where(matches(out, np.zeros_like(out)), np.zeros_like(g), g)
    what = f"rule {at.rule.name}, which says it is a filter"
    return assert_same(out, kept, x=x, g=g, what=what)


def rule_keeps_its_scope(at: Setting) -> int:
    """An elementwise rule reads one element, a rule over samples one sample."""
    x, g = mixed(at.dtype, bounds_for(at.rule)[0], 2)
    g[0], g[1], g[2] = 0, -np.abs(g[1]), np.abs(g[2])
    whole = _numpy(at.rule, x, g)
    parts = np.ndindex(x.shape[:1] if at.rule.scope == "sample" else x.shape)
    for index in parts:
        one = tuple(slice(i, i + 1) for i in index)
        alone = _numpy(at.rule, x[one], g[one])
        what = f"rule {at.rule.name} of scope {at.rule.scope!r}, on the part {index} alone"
        assert_same(alone, whole[one], x=x[one], g=g[one], what=what)
    return int(whole.size)


FAMILIES: tuple[Family, ...] = tuple(
    Family(fn=fn, axes=("rule", "dtype"))
    for fn in (rule_is_pure, rule_keeps_shape_and_dtype, rule_filters, rule_keeps_its_scope)
)
STRICT = Family(fn=rule_uses_the_subset, axes=("rule", "dtype"))
IN_BACKENDS: tuple[Family, ...] = (
    Family(fn=_numbers.special_grid, axes=("rule", "dtype", "mode")),
    Family(fn=_numbers.mixed_draws, axes=("rule", "dtype", "mode")),
)


def rule_checks(
    rule: str | Rule,
    /,
    *,
    backends: Iterable[str | BackendCase] | None = None,
    profile: str | Profile = "default",
) -> Iterator[Check]:
    """Yield every check of a rule: of its function, and of it in each backend.

    Args:
        rule: A rule, or the name of an installed one.
        backends: The backends to run it in; None is every installed one.
        profile: As in `check_backend`.

    Raises:
        UnknownRuleError: No such rule.
    """
    found, chosen = find_rule(rule), find_profile(profile)
    for families, dtypes in ((FAMILIES, NATIVE), ((STRICT,), _STRICT)):
        for family in families:
            yield from family.expand(_NumPy(dtypes), (found,), chosen)
    for backend in _installed() if backends is None else backends:
        case = find_case(backend)
        for family in IN_BACKENDS:
            yield from _named(case, family.expand(case, (found,), chosen))


def check_rule(
    rule: str | Rule,
    /,
    *,
    backends: Iterable[str | BackendCase] | None = None,
    profile: str | Profile = "default",
    on_fail: OnFail = "raise",
    callback: Callable[[CheckResult], None] | None = None,
) -> tuple[CheckResult, ...]:
    """Check that a rule is what it says, and the same bits in every backend.

    Args:
        rule: A rule, or the name of an installed one.
        backends: The backends to run it in; None is every installed one.
        profile: As in `check_backend`.
        on_fail: As in `check_backend`.
        callback: As in `check_backend`.

    Returns:
        A result for each check.

    Raises:
        ConformanceError: A check failed.
        UnknownRuleError: No such rule.

    Example:
        >>> import relurules
        >>> halved = relurules.Rule(
        ...     name="halved", fn=lambda x, g, *, bounds, xp: g * 0.5, is_filter=False
        ... )
        >>> all(result.status == "passed" for result in check_rule(halved, backends=()))
        True
    """
    checks = rule_checks(rule, backends=backends, profile=profile)
    return run_checks(checks, on_fail=on_fail, callback=callback)


class _Subset:
    """The part of an array namespace that rules may use."""

    def __init__(self, namespace: Any) -> None:
        for name in _SUBSET:
            setattr(self, name, getattr(namespace, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a rule may use {', '.join(_SUBSET)} of its namespace and operators, not {name}"
        )


class _NumPy:
    """The adapter of no backend: the rule's function on NumPy."""

    name = "numpy"
    modes: tuple[Mode, ...] = ()
    known_failures: tuple[KnownFailure, ...] = ()

    def __init__(self, dtypes: tuple[str, ...]) -> None:
        self.dtypes = dtypes
        self.spellings: Mapping[str, Bounds] = {}
        self.versions: Mapping[str, str] = {"numpy": np.__version__}

    def model(self, *_: Bounds) -> Any:
        """Refuse: a function is no model."""
        raise NotImplementedError

    def spelled(self, spelling: str, /) -> Any:
        """Refuse."""
        raise NotImplementedError

    def scalar(self, step: int, /) -> Any:
        """Refuse."""
        raise NotImplementedError

    def pullback(self, fn: Callable[..., Any], x: Array, /, *, mode: Mode) -> tuple[Array, Pull]:
        """Refuse."""
        raise NotImplementedError


def _named(case: BackendCase, checks: Iterable[Check]) -> Iterator[Check]:
    for check in checks:
        yield Check(
            id=f"{case.name}:{check.id}",
            name=check.name,
            fn=check.fn,
            setting=check.setting,
            axes=check.axes,
        )


def _installed() -> list[str]:
    return [one.name for one in _plugins.catalogue().backends]


def _numpy(rule: Rule, x: Array, g: Array) -> Any:
    with np.errstate(all="ignore"):
        return _evaluate(rule, x, g, xp=_Subset(np))


def _evaluate(rule: Rule, x: Any, g: Any, *, xp: Any) -> Any:
    bounds = bounds_for(rule)[-1]
    lo, hi = (float(np.asarray(bound, dtype_of(_dtype_name(g)))) for bound in bounds)
    return evaluate(rule, x, g, bounds=(lo, hi), xp=xp, standard=STANDARD)


def _specified(rule: Rule, x: Array, g: Array) -> Array:
    return spec.evaluate(rule, x, g, bounds=bounds_for(rule)[-1])


def _dtype_name(g: Any) -> str:
    return str(g.dtype).rpartition(".")[2]
