"""From apply to remove: what holds while a rule is in force, and what is left of it after.

A rule that stays behind, reaches another thread, or is lost on the way gives numbers that look
as right as the right ones. Each of these functions is one promise of `relurules.apply`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from relurules._applied import Applied
from relurules._rule import Rule, kind_of
from relurules._schedule import until
from relurules.errors import NoActivationError
from relurules.testing._check import Setting
from relurules.testing._probe import (
    DECONV,
    FAILING,
    IDENTITY,
    PLAIN,
    REDIRECTED,
    REDIRECTED_RELU6,
    DeliberateError,
    G,
    Probe,
    X,
    gradient,
    raises,
)
from relurules.testing._values import RELU, RELU6

_CHAIN = (RELU6, (-1.0, 1.0))
_WAIT = 30.0


def apply_and_restore(at: Setting) -> int:
    """While applied the rule holds, for whoever calls the handle too; afterwards it does not."""
    probe = Probe.new(at.case)
    applied = probe.apply(DECONV)
    with applied as model:
        count = probe.assert_rules(model, (DECONV,), "inside the context")
        count += probe.assert_rules(applied, (DECONV,), "through the handle")
    return count + probe.assert_plain("after the context")


def remove_is_idempotent(at: Setting) -> int:
    """`remove()` restores, and once more does nothing."""
    probe = Probe.new(at.case)
    applied = probe.apply(DECONV)
    gradient(at.case, applied.model)
    other = probe.apply(IDENTITY)
    gradient(at.case, other.model)
    applied.remove()
    applied.remove()
    count = probe.assert_rules(other.model, (IDENTITY,), "after another rule was removed twice")
    other.remove()
    return count + probe.assert_plain("after both were removed")


def innermost_rule_wins(at: Setting) -> int:
    """Of nested rules the one applied last holds, and leaving it brings the outer one back."""
    probe = Probe.new(at.case)
    with probe.apply(DECONV) as outer:
        with probe.apply(IDENTITY, outer) as inner:
            count = probe.assert_rules(inner, (IDENTITY,), "of the inner of two contexts")
        count += probe.assert_rules(outer, (DECONV,), "after the inner context")
    return count + probe.assert_plain("after both contexts")


def removed_in_any_order(at: Setting) -> int:
    """The outer of two rules may leave first; three leave in every order."""
    return sum(_leave(at, order) for order in itertools.permutations(range(3)))


def _leave(at: Setting, order: tuple[int, ...]) -> int:
    probe, rules = Probe.new(at.case), (DECONV, PLAIN, IDENTITY)
    applied: list[Applied] = []
    for rule in rules:
        applied.append(probe.apply(rule, applied[-1].model if applied else None))
        gradient(at.case, applied[-1].model)
    for left in range(3):
        innermost = max(order[left:])
        when = f"with {left} of three rules gone, in the order {order}"
        probe.assert_rules(applied[innermost].model, (rules[innermost],), when)
        applied[order[left]].remove()
    return probe.assert_plain(f"after three rules left in the order {order}")


def restored_after_an_exception(at: Setting) -> int:
    """An exception in the body leaves nothing behind, and arrives as it was."""
    probe = Probe.new(at.case)
    with raises("an error in the body", DeliberateError), probe.apply(DECONV) as model:
        gradient(at.case, model)
        raise DeliberateError
    return probe.assert_plain("after an exception in the body")


def errors_get_through(at: Setting) -> int:
    """An error inside a rule reaches the user, and leaves nothing behind."""
    probe = Probe.new(at.case)
    with raises("an error in a rule", DeliberateError), probe.apply(FAILING) as model:
        gradient(at.case, model)
    return probe.assert_plain("after an exception in a rule")


def other_threads(at: Setting) -> int:
    """A rule holds in the thread that applied it, and the model is plain in any other."""
    probe = Probe.new(at.case)
    with probe.apply(DECONV) as model:
        gradient(at.case, model)
        count = _elsewhere(lambda: probe.assert_plain("in another thread"))
        count += probe.assert_rules(model, (DECONV,), "after another thread called the model")
    return count


def two_threads_at_once(at: Setting) -> int:
    """Two threads, each with its model and its rule, at the same time."""
    barrier = threading.Barrier(2, timeout=_WAIT)
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda rule: _beside(at, rule, barrier), (DECONV, IDENTITY)))


def _beside(at: Setting, rule: Rule, barrier: threading.Barrier) -> int:
    probe = Probe.new(at.case)
    try:
        with probe.apply(rule) as model:
            barrier.wait()
            count = probe.assert_rules(model, (rule,), "beside another thread's")
            barrier.wait()
    except BaseException:
        barrier.abort()  # or the other thread waits for this one
        raise
    return count + probe.assert_plain("after two threads' rules")


def other_models(at: Setting) -> int:
    """A rule on one model leaves another one alone, also one of the same kind."""
    probe, other = Probe.new(at.case), Probe.new(at.case)
    with probe.apply(DECONV) as model:
        gradient(at.case, model)
        return other.assert_plain("while a rule is on another model")


def backward_after_exit(at: Setting) -> int:
    """A graph built inside keeps its rule, whatever is applied when backward runs."""
    probe = Probe.new(at.case)
    with probe.apply(DECONV) as model:
        _, pull = at.case.pullback(model, X, mode="eager")
    count = probe.assert_gradient(pull(G), (DECONV,), "after the context")
    with probe.apply(IDENTITY) as model:
        gradient(at.case, model)
        count += probe.assert_gradient(pull(G), (DECONV,), "inside the context of another")
    return count


def backward_before_entry(at: Setting) -> int:
    """A graph built before the rule was applied stays plain."""
    probe = Probe.new(at.case)
    _, pull = at.case.pullback(probe.model, X, mode="eager")
    with probe.apply(DECONV) as model:
        gradient(at.case, model)
        return probe.assert_gradient(pull(G), (PLAIN,), "of a graph built before")


def pausing(at: Setting) -> int:
    """Inside `paused()` the gradient is plain, and after it the rule is back."""
    probe = Probe.new(at.case)
    applied = probe.apply(DECONV)
    with applied as model:
        with applied.paused():
            count = probe.assert_rules(model, (PLAIN,), "while paused")
        return count + probe.assert_rules(model, (DECONV,), "after the pause")


def schedule_boundary(at: Setting) -> int:
    """`until(2)` holds at steps 0, 1 and 2, and not at 3."""
    probe, schedule = Probe.new(at.case), until(2)
    applied, count = probe.apply(REDIRECTED, schedule=schedule), 0
    with applied as model:
        for step in range(5):
            when = f"after {step} steps of {schedule}"
            count += probe.assert_rules(model, (REDIRECTED,), when, schedule=schedule, step=step)
            applied.advance()
    return count


def at_a_step(at: Setting) -> int:
    """`at(step)` holds inside and not after, in any order of steps."""
    probe, schedule = Probe.new(at.case), until(2)
    applied, count = probe.apply(REDIRECTED, schedule=schedule), 0
    with applied:
        for step in (3, 0, 10**6, 2):
            when, options = f"at step {step}", {"schedule": schedule, "step": step}
            count += probe.assert_rules(applied.at(step), (REDIRECTED,), when, **options)
            with applied.at(step) as model:
                count += probe.assert_rules(model, (REDIRECTED,), when, **options)
        return count + probe.assert_rules(applied.model, (REDIRECTED,), "after at()")


def at_a_scalar_step(at: Setting) -> int:
    """`at(step)` takes the framework's own scalar, which a compiled model can change."""
    probe, schedule, count = Probe.new(at.case), until(2), 0
    applied = probe.apply(REDIRECTED, schedule=schedule)
    with applied:
        for step in (3, 2):
            when, options = f"at a scalar step {step}", {"schedule": schedule, "step": step}
            model = applied.at(at.case.scalar(step))
            count += probe.assert_rules(model, (REDIRECTED,), when, **options)
    return count


def rule_after_the_schedule(at: Setting) -> int:
    """`then` names what follows; where nothing is named, standard does."""
    probe, schedule = Probe.new(at.case), until(0)
    count = 0
    for rule in (DECONV, DECONV.then(IDENTITY)):
        applied = probe.apply(rule, schedule=schedule)
        with applied, applied.at(1) as model:
            after = (rule.after or PLAIN,)
            count += probe.assert_rules(model, after, f"after {rule.name}'s schedule")
    return count


def several_sites(at: Setting) -> int:
    """Every activation of a model takes the rule, one after the other."""
    probe = Probe.new(at.case, *_CHAIN)
    count = 0
    for rule in (IDENTITY, DECONV):
        with probe.apply(rule) as model:
            count += probe.assert_rules(model, (rule, rule), "of two activations in a row")
    return count


def rules_by_kind(at: Setting) -> int:
    """A mapping gives each kind of site its rule, and leaves the others alone."""
    probe = Probe.new(at.case, *_CHAIN)
    with probe.apply({"relu6": DECONV, "hardtanh": IDENTITY}) as model:
        count = probe.assert_rules(model, (DECONV, IDENTITY), "of a mapping")
    with probe.apply({"hardtanh": DECONV}) as model:
        return count + probe.assert_rules(model, (PLAIN, DECONV), "of a mapping of one kind")


def selected_sites(at: Setting) -> int:
    """`only` and `exclude` choose sites by name and by predicate."""
    probe = Probe.new(at.case, *_CHAIN)
    applied = probe.apply(DECONV)
    with applied as model:
        gradient(at.case, model)
        first, _ = (row.name for row in applied.report.sites)
    wanted: dict[str, Any] = {"only": first, "exclude": lambda site: site.kind == "hardtanh"}
    count = 0
    for option, value in wanted.items():
        with probe.apply(DECONV, **{option: value}) as model:
            count += probe.assert_rules(model, (DECONV, PLAIN), f"with {option}=")
    return count


def rule_of_a_kind(at: Setting) -> int:
    """A rule that is for relu6 leaves other kinds their own gradient."""
    probe = Probe.new(at.case, *reversed(_CHAIN))
    with probe.apply(REDIRECTED_RELU6) as model:
        return probe.assert_rules(model, (PLAIN, REDIRECTED_RELU6), "of a hardtanh and a relu6")


def report_is_true(at: Setting) -> int:
    """The report lists each site with its kind, and how often it ran."""
    probe = Probe.new(at.case, *_CHAIN)
    applied = probe.apply(DECONV)
    with applied as model:
        for calls in (1, 2):
            gradient(at.case, model)
            rows = [(row.kind, row.calls, row.detail) for row in applied.report.sites]
            right = [(kind_of(bounds), calls, DECONV.name) for bounds in _CHAIN]
            assert_equal(f"the report's sites after {calls} calls", rows, right)
    assert_equal("the report's backend", applied.report.backend, at.case.name)
    return 0


def never_silent(at: Setting) -> int:
    """Where no activation takes the rule, calling the model or leaving raises."""
    empty, relu = at.case.model(), at.case.model(RELU)
    for what, model, rule, options in (
        ("a model without activations", empty, DECONV, {}),
        ("a relu under a rule for relu6", relu, REDIRECTED_RELU6, {}),
        ("a model whose sites are excluded", relu, DECONV, {"exclude": "*"}),
    ):
        probe = Probe(at.case, (RELU,), model, gradient(at.case, model))
        with raises(what, NoActivationError), probe.apply(rule, **options) as ruled:
            gradient(at.case, ruled)
        probe.assert_plain(f"after the error about {what}")
        with probe.apply(rule, missing="ignore", **options) as ruled:
            gradient(at.case, ruled)
    return 0


def never_called(at: Setting) -> int:
    """A model that was not called inside the context raises on leaving."""
    probe = Probe.new(at.case)
    with raises("a model never called", NoActivationError), probe.apply(DECONV):
        pass
    with raises("the model removed unused", NoActivationError):
        probe.apply(DECONV).remove()
    return probe.assert_plain("after that error")


def assert_equal(what: str, actual: Any, right: Any, /) -> None:
    """Assert that two plain values are equal, showing both."""
    if actual != right:
        raise AssertionError(f"{what}: expected {right!r}, got {actual!r}")


def _elsewhere(task: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(task).result()
