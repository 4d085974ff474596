"""What must be refused, as a table: a wrong number is worse than an error.

An error must leave the model as it was, so each row ends by asking for the plain gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relurules._rule import Rule
from relurules._schedule import until
from relurules.errors import UnknownRuleError
from relurules.testing._check import Setting
from relurules.testing._probe import DECONV, REDIRECTED, Probe, gradient, raises
from relurules.testing._trial import Trial, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call of `relurules.apply`, or of the model under it, and the error it must raise."""

    error: tuple[type[Exception], ...]
    match: str = ""
    rule: Any = DECONV
    options: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (2, 4)


def _returning(change: Any) -> Rule:
    """Return a rule whose function returns something else than it was given."""

    def fn(x: Any, g: Any, *, bounds: Any, xp: Any) -> Any:
        return change(g)

    return Rule(name="misshapen", fn=fn, is_filter=False)


REFUSALS: tuple[tuple[str, Refusal], ...] = (
    ("rank_0", Refusal(error=(ValueError,), match="rank 0", rule=REDIRECTED, shape=())),
    ("rank_1", Refusal(error=(ValueError,), match="batch_axis=None", rule=REDIRECTED, shape=(4,))),
    ("axis_2", Refusal(error=(ValueError,), rule=REDIRECTED, options={"batch_axis": 2})),
    ("axis_-3", Refusal(error=(ValueError,), rule=REDIRECTED, options={"batch_axis": -3})),
    (
        "rule_narrows_shape",
        Refusal(error=(TypeError, ValueError), rule=_returning(lambda g: g[:1])),
    ),
    (
        "rule_adds_an_axis",
        Refusal(error=(TypeError, ValueError), rule=_returning(lambda g: g[None])),
    ),
    ("rule_returns_bool", Refusal(error=(TypeError,), rule=_returning(lambda g: g > 0))),
    ("rule_returns_none", Refusal(error=(TypeError,), rule=_returning(lambda g: None))),
    ("unknown_rule", Refusal(error=(UnknownRuleError,), match="'guided'", rule="guidde")),
    ("rule_is_a_number", Refusal(error=(TypeError,), rule=3)),
    ("empty_mapping", Refusal(error=(ValueError,), rule={})),
    ("schedule_is_a_number", Refusal(error=(TypeError,), options={"schedule": 16})),
    ("gradient_of_nothing", Refusal(error=(ValueError,), options={"gradient_of": "logit"})),
    ("axis_is_a_string", Refusal(error=(TypeError,), options={"batch_axis": "0"})),
    ("missing_is_unknown", Refusal(error=(ValueError,), options={"missing": "raise"})),
    ("match_is_unknown", Refusal(error=(ValueError,), options={"match": "all"})),
    ("only_is_a_number", Refusal(error=(TypeError,), options={"only": 1})),
)


def refusal(at: Setting) -> int:
    """The error is of the kind the table says, and the model is plain afterwards."""
    wrong: Refusal = at.part
    probe = Probe.new(at.case)
    x = np.full(wrong.shape, -1, np.float32)
    expecting = raises(_told(wrong), *wrong.error, match=wrong.match)
    with expecting, probe.apply(wrong.rule, **wrong.options) as model:
        _, pull = at.case.pullback(model, x, mode="eager")
        pull(x)
    return probe.assert_plain("after the error")


def _told(wrong: Refusal) -> str:
    name = wrong.rule.name if isinstance(wrong.rule, Rule) else repr(wrong.rule)
    return f"rule {name} with {wrong.options or 'no options'} on shape {wrong.shape}"


def follow_refuses(at: Setting) -> int:
    """`follow` takes an optimiser of the framework, and nothing else."""
    probe = Probe.new(at.case)
    applied = probe.apply(REDIRECTED, schedule=until(2))
    with applied as model:
        gradient(at.case, model)
        with raises("follow(object())", TypeError):
            applied.follow(object())
    return probe.assert_plain("after the error")


def one_sample_of_any_rank(at: Setting) -> int:
    """With `batch_axis=None` rules over samples take every rank."""
    count = 0
    for rank in range(5):
        x = np.full((2,) * rank, -1, np.float32)
        y, dx = run(at.case, Trial(rule=REDIRECTED, x=x, g=x, batch_axis=None))
        if not (y.shape == dx.shape == x.shape and (dx == x).all()):
            raise AssertionError(f"redirected with batch_axis=None on rank {rank}: got {dx!r}")
        count += x.size
    return count
