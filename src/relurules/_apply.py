"""`apply`: from what a user wrote to a rule in force."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast, get_args

from relurules import _library, _plugins
from relurules._applied import Applied
from relurules._backend import Backend, BackendInfo
from relurules._plan import Match, Missing, Plan, Select, Selector, Smooth
from relurules._rule import GradientOf, Rule
from relurules._schedule import ALWAYS, Schedule
from relurules._state import State
from relurules.errors import (
    BackendNotInstalledError,
    PluginError,
    UnknownBackendError,
    UnknownRuleError,
    UnsupportedModelError,
)

RuleLike: TypeAlias = str | Rule
Rules: TypeAlias = RuleLike | Mapping[str, RuleLike]

_EXTRAS = {
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "flax": "jax",
    "equinox": "jax",
    "haiku": "jax",
}
"""Which extra brings the backend of a framework, by the name its classes' modules begin with."""


def apply(
    model: Any,
    rule: Rules,
    *,
    schedule: Schedule | None = None,
    gradient_of: GradientOf | None = None,
    batch_axis: int | None = 0,
    only: Select = None,
    exclude: Select = None,
    missing: Missing = "error",
    match: Match = "named",
    smooth_activations: Smooth | None = None,
    backend: str | None = None,
) -> Applied:
    """Put a gradient rule behind every ReLU of a model, until it is removed.

    The forward value stays bit-equal to the model's own. Only the thread that calls `apply` is
    affected. Nested rules: the last applied wins at a site.

    Args:
        model: A model of any framework that has a backend, such as a `torch.nn.Module`.
        rule: A name (see `relurules.rules()`), a `Rule`, or a mapping from a site kind
            (`"relu"`, `"relu6"`, `"hardtanh"`) or a shell pattern on site names to one. In a
            mapping the first key that fits wins, and a site that none fits is left alone.
        schedule: For which steps the rule is active, such as `relurules.until(16)`; None is
            always. Afterwards `Rule.after` follows, which is `standard` by default. The step
            moves by `Applied.follow`, `advance` and `at`.
        gradient_of: `"score"` if you differentiate what should rise, `"loss"` if what should
            fall. None takes the rule's own convention: deconv and guided read a score's
            gradient, redirected a loss's. With the wrong sign guided shows the wrong evidence
            and a dead unit stays dead. Where the two differ the rule is `-rule(x, -g)`.
        batch_axis: The axis that separates samples; None makes each tensor one sample, which
            is what a function inside vmap needs. Only redirected reads it.
        only: Sites that may take the rule: a shell pattern on names, several, or a predicate
            on `Site`. None is all.
        exclude: Sites that may not, in the same forms.
        missing: What to do where an activation kept its plain gradient: `"error"`, `"warn"`,
            `"ignore"`.
        match: `"structural"` also takes clamp, maximum and the like, which are gates and
            bounds as often as activations.
        smooth_activations: What `guided` means on an activation f that is no clip (gelu, silu,
            elu, leaky_relu, prelu and the like), of which the literature has three answers:
            `"incoming"` is f'(x) max(g, 0), `"outgoing"` is max(f'(x) g, 0), and `"gate"` is g
            where x > 0 and g > 0. None reports them and leaves them alone. For guided only.
        backend: A backend's name, where more than one could own the model.

    Returns:
        The applied rule: a context manager that gives the model, and a handle.

    Raises:
        UnknownRuleError: No such rule; the message has the close matches.
        BackendNotInstalledError: The model's framework has no backend here; the message has
            the command that installs it.
        UnsupportedModelError: The object is no model of any backend.
        NoActivationError: On a call of the model, or on leaving: nothing took the rule.
        UncoveredActivationError: On a call of the model: something was left over.
        TypeError: An argument of the wrong type.
        ValueError: An argument outside its values.

    Example:
        >>> import torch, relurules
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
        >>> x = torch.ones(1, 3, requires_grad=True)
        >>> with relurules.apply(net, rule="guided") as guided:
        ...     score = guided(x)[0, 2]
        >>> torch.autograd.grad(score, x)[0].shape
        torch.Size([1, 3])
    """
    plan = Plan(
        choices=_choices(rule),
        standard=_library.STANDARD,
        schedule=_schedule(schedule),
        gradient_of=_one_of("gradient_of", gradient_of, (None, *get_args(GradientOf))),
        batch_axis=_batch_axis(batch_axis),
        only=_selector("only", only),
        exclude=_selector("exclude", exclude),
        missing=_one_of("missing", missing, get_args(Missing)),
        match=_one_of("match", match, get_args(Match)),
        smooth_activations=_one_of(
            "smooth_activations", smooth_activations, (None, *get_args(Smooth))
        ),
    )
    chosen, state = backend_for(model, backend), State()
    _check_smooth(plan, chosen)
    return Applied(chosen.attach(model, plan, state), plan, state)


def rule(name: RuleLike, /) -> Rule:
    """Return the installed rule of this name.

    Args:
        name: A rule's name or alias, `"distribution:name"`, or a `Rule`, which is returned.

    Raises:
        UnknownRuleError: No such rule; the message has the close matches.
        DuplicateNameError: Two distributions claim the name.
        PluginError: The plugin of this name failed to load.
        TypeError: Neither a name nor a `Rule`.

    Example:
        >>> rule("guided_backprop").name
        'guided'
    """
    if isinstance(name, Rule):
        return name
    if not isinstance(name, str):
        raise TypeError(f"A rule is a name or a relurules.Rule; got {name!r}.")
    return _plugins.find(
        name,
        _plugins.catalogue().rules,
        what="rule",
        unknown=UnknownRuleError,
        aliases=lambda found: found.aliases,
    )


def backend_for(model: Any, name: str | None = None, /) -> Backend:
    """Return the backend of this name, or the one that takes this model.

    Raises:
        UnknownBackendError: No such backend.
        BackendNotInstalledError: The model's framework has none here.
        UnsupportedModelError: The object is no model of any.
    """
    return (_named_backend(name) if name is not None else _backend_of(model)).load()


def _choices(rules: Rules) -> tuple[tuple[str, Rule], ...]:
    if not isinstance(rules, Mapping):
        return (("*", rule(rules)),)
    if not rules:
        raise ValueError("The rule mapping is empty; give it a site kind or name pattern.")
    return tuple((str(key), rule(value)) for key, value in rules.items())


def _schedule(schedule: Schedule | None) -> Schedule:
    if schedule is None:
        return ALWAYS
    if not isinstance(schedule, Schedule):
        raise TypeError(
            f"schedule must have a method active(step), such as relurules.until(16); got "
            f"{schedule!r}."
        )
    return schedule


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    return value


def _batch_axis(axis: int | None) -> int | None:
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
        raise TypeError(f"batch_axis must be an int, or None for one sample; got {axis!r}.")
    return axis


def _check_smooth(plan: Plan, backend: Backend) -> None:
    wanted = plan.smooth_activations
    if wanted is None:
        return
    if not plan.may_take_smooth:
        raise ValueError(
            f"smooth_activations={wanted!r} is for the rule 'guided' alone, got "
            f"{plan.rule_name!r}: only guided has been given a meaning on activations that are "
            "no clip. Leave it out, and they are reported and keep their own gradient."
        )
    if wanted not in getattr(backend, "smooth_activations", ()):
        raise ValueError(
            f"The backend {backend.name!r} has no smooth_activations={wanted!r}. Leave it out, "
            "and such activations are reported and keep their own gradient."
        )


def _selector(name: str, select: Select) -> Selector:
    if select is None or callable(select):
        return cast(Selector, select)
    patterns = (select,) if isinstance(select, str) else select
    if isinstance(patterns, Iterable):
        patterns = tuple(patterns)
        if all(isinstance(pattern, str) for pattern in patterns):
            return patterns
    raise TypeError(
        f"{name} must be a shell pattern on site names, several, or a predicate on a Site; got "
        f"{select!r}."
    )


def _named_backend(name: str) -> BackendInfo:
    known = _plugins.catalogue().backends
    return _plugins.find(name, known, what="backend", unknown=UnknownBackendError)


def _backend_of(model: Any) -> BackendInfo:
    owners = [one for one in _infos() if one.framework in sys.modules and one.owns(model)]
    if len(owners) > 1:
        names = " or ".join(repr(one.name) for one in owners)
        raise UnsupportedModelError(
            f"More than one backend can take a {_type_name(model)}; pass backend={names}."
        )
    if not owners:
        _raise_no_backend(model)
    return _named_backend(owners[0].name)


def _infos() -> list[BackendInfo]:
    return [one.item for one in _plugins.catalogue().backends if one.item is not None]


def _raise_no_backend(model: Any) -> None:
    found = [base.__module__.partition(".")[0] for base in type(model).__mro__]
    extra = next((_EXTRAS[name] for name in found if name in _EXTRAS), None)
    names = [one.name for one in _infos()]
    installed = ", ".join(names) or "none"
    for failure in _plugins.catalogue().failures:
        if extra is not None and failure.name == extra:
            raise PluginError(f"The {failure}. Repair or reinstall it.") from failure.error
    if extra is not None and extra not in names:
        raise BackendNotInstalledError(
            f"{_type_name(model)} is a {extra} model, and no installed backend takes it "
            f"(installed: {installed}). Run: pip install 'relurules[{extra}]'"
        )
    raise UnsupportedModelError(
        f"No installed backend takes a {_type_name(model)} (installed: {installed}). Pass the "
        "model itself, such as a torch.nn.Module; relurules.backends() lists what is installed."
    )


def _type_name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"
