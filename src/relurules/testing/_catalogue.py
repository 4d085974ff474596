"""Every check of a backend, as one table. To add a check is to add a function and a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from relurules import _library
from relurules._rule import Rule
from relurules.testing import _golden, _lifecycle, _numbers, _properties, _refusals
from relurules.testing._case import BackendCase, find_case
from relurules.testing._check import Check, Family, Profile

PROFILES = {
    "default": Profile(name="default", examples=100, draws=20),
    "ci": Profile(name="ci", examples=500, draws=50),
    "nightly": Profile(name="nightly", examples=5000, draws=500, seed=None),
}


FAMILIES: tuple[Family, ...] = (
    Family(fn=_numbers.special_grid, axes=("rule", "dtype", "mode")),
    Family(fn=_numbers.other_sign, axes=("rule", "dtype", "mode")),
    Family(fn=_numbers.mixed_draws, axes=("rule", "dtype", "mode")),
    Family(
        fn=_numbers.every_16_bit_pattern,
        axes=("rule", "dtype", "mode"),
        modes=("eager", "compiled"),
        narrow=True,
    ),
    Family(fn=_numbers.sizes, axes=("rule", "dtype")),
    Family(fn=_numbers.memory_layouts, axes=("rule", "dtype")),
    Family(fn=_numbers.empty_arrays, axes=("rule", "dtype")),
    Family(fn=_numbers.spelling, axes=("spelling",)),
    Family(fn=_golden.lucid_golden, axes=("part", "dtype"), parts=_golden.OPS),
    Family(fn=_properties.law, axes=("part",), parts=_properties.LAWS),
    Family(fn=_refusals.refusal, axes=("part",), parts=_refusals.REFUSALS),
    Family(fn=_refusals.follow_refuses),
    Family(fn=_refusals.one_sample_of_any_rank),
    Family(fn=_lifecycle.apply_and_restore),
    Family(fn=_lifecycle.remove_is_idempotent),
    Family(fn=_lifecycle.innermost_rule_wins),
    Family(fn=_lifecycle.removed_in_any_order),
    Family(fn=_lifecycle.restored_after_an_exception),
    Family(fn=_lifecycle.errors_get_through),
    Family(fn=_lifecycle.other_threads),
    Family(fn=_lifecycle.two_threads_at_once),
    Family(fn=_lifecycle.other_models),
    Family(fn=_lifecycle.backward_after_exit),
    Family(fn=_lifecycle.backward_before_entry),
    Family(fn=_lifecycle.pausing),
    Family(fn=_lifecycle.schedule_boundary),
    Family(fn=_lifecycle.at_a_step),
    Family(fn=_lifecycle.at_a_scalar_step),
    Family(fn=_lifecycle.rule_after_the_schedule),
    Family(fn=_lifecycle.several_sites),
    Family(fn=_lifecycle.rules_by_kind),
    Family(fn=_lifecycle.selected_sites),
    Family(fn=_lifecycle.rule_of_a_kind),
    Family(fn=_lifecycle.report_is_true),
    Family(fn=_lifecycle.never_silent),
    Family(fn=_lifecycle.never_called),
)


def backend_checks(
    backend: str | BackendCase,
    /,
    *,
    rules: Iterable[Rule] | None = None,
    profile: str | Profile = "default",
) -> Iterator[Check]:
    """Yield every check of a backend, always in the same order.

    Args:
        backend: A backend's name, or its adapter.
        rules: The rules to check; None is the built-in ones.
        profile: `"default"`, `"ci"` or `"nightly"`, or one of your own.

    Raises:
        UnknownBackendError: No such backend.
        NoCaseError: The backend has no adapter.
        ValueError: No such profile.

    Example:
        >>> checks = backend_checks("torch")
        >>> next(checks).id
        'special_grid[standard-float16-eager]'
    """
    case, chosen = find_case(backend), find_profile(profile)
    chosen_rules = tuple(rules or _library.BUILTIN)
    for family in FAMILIES:
        yield from family.expand(case, chosen_rules, chosen)


def find_profile(profile: str | Profile, /) -> Profile:
    """Return the profile of this name, with a seed.

    Raises:
        ValueError: There is none.
    """
    if isinstance(profile, Profile):
        return profile if profile.seed is not None else replace(profile, seed=_new_seed())
    if profile not in PROFILES:
        raise ValueError(f"A profile is one of {', '.join(PROFILES)}; got {profile!r}.")
    return find_profile(PROFILES[profile])


def _new_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
