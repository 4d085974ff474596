"""smooth_activations=: who may ask for it, and what a backend that has none does."""

from __future__ import annotations

import math
from typing import Any

import pytest

import relurules
from relurules import _apply
from relurules._plan import Plan
from relurules._report import Report, Site
from relurules.backend import STANDARD, State

VARIANTS = ("incoming", "outgoing", "gate")
GUIDED = relurules.rule("guided")
UNBOUNDED = (-math.inf, math.inf)


class Attachment:
    model, calls, hint = "the model", 1, ""

    def report(self) -> Report:
        return Report("fake", "guided")

    def remove(self) -> None:
        pass


class Backend:
    """One that knows no smooth activations, as every backend written before there were any."""

    name = "fake"

    def attach(self, model: Any, plan: Plan, state: State, /) -> Attachment:
        self.plan = plan
        return Attachment()


class SmoothBackend(Backend):
    smooth_activations = ("incoming", "gate")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(backend: Backend) -> Backend:
        monkeypatch.setattr(_apply, "backend_for", lambda model, name=None: backend)
        return backend

    return use


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_backend_that_has_none_refuses(use: Any, variant: str) -> None:
    use(Backend())
    with pytest.raises(ValueError, match=f"backend 'fake' has no smooth_activations='{variant}'"):
        relurules.apply(object(), "guided", smooth_activations=variant)


def test_a_backend_that_has_some_gets_those(use: Any) -> None:
    backend = use(SmoothBackend())
    relurules.apply(object(), "guided", smooth_activations="gate").remove()
    assert backend.plan.smooth_activations == "gate"
    with pytest.raises(ValueError, match="has no smooth_activations='outgoing'"):
        relurules.apply(object(), "guided", smooth_activations="outgoing")


@pytest.mark.parametrize("backend", [Backend(), SmoothBackend()])
def test_none_is_for_every_backend_and_rule(use: Any, backend: Backend) -> None:
    use(backend)
    for rule in ("deconv", "guided", {"relu": "guided", "*": "identity"}):
        relurules.apply(object(), rule).remove()
        assert backend.plan.smooth_activations is None


@pytest.mark.parametrize(
    "rule",
    [
        *("standard", "deconv", "redirected", "redirected_relu6", "leaky", "identity"),
        {"relu": "guided", "*": "deconv"},
        GUIDED.then(relurules.rule("deconv")),
        relurules.Rule(name="guided", fn=lambda x, g, *, bounds, xp: g),
    ],
)
def test_only_guided_has_a_meaning_there(use: Any, rule: Any) -> None:
    use(SmoothBackend())
    with pytest.raises(ValueError, match="is for the rule 'guided' alone"):
        relurules.apply(object(), rule, smooth_activations="gate")


@pytest.mark.parametrize("wrong", ["outer", True, "", 3])
def test_no_other_variant(use: Any, wrong: Any) -> None:
    use(SmoothBackend())
    with pytest.raises(ValueError, match="smooth_activations must be one of None, 'incoming'"):
        relurules.apply(object(), "guided", smooth_activations=wrong)


def test_what_a_plan_decides() -> None:
    plan = Plan(choices=(("gelu", GUIDED),), standard=STANDARD, smooth_activations="outgoing")
    gelu = Site("head.gelu", "gelu", UNBOUNDED, is_smooth=True)
    assert gelu.kind == "gelu"
    decision = plan.decide(gelu)
    assert plan.row(gelu, decision, 2).kind == "gelu"
    assert (decision.rule, decision.reason) == (GUIDED, "guided (outgoing)")
    assert plan.decide(Site("head.silu", "silu", UNBOUNDED, is_smooth=True)).rule is None
    assert plan.decide(Site("head.relu", "relu", (0.0, 6.0))).rule is None
