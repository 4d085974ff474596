"""When a rule is active: a function of the optimisation step, and nothing else.

A schedule has one method, `active(step)`, written with comparisons only. So it works on a
Python int, and on a traced scalar as well, which lets a compiled model change its step
without being compiled again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Schedule(Protocol):
    """Anything with `active(step)`, where step counts from 0 and may be a traced scalar."""

    def active(self, step: Any, /) -> Any:
        """Return whether the rule is active at `step`: a bool, or a traced boolean scalar."""
        ...


@dataclass(frozen=True, slots=True)
class Until:
    """Active up to and including `last_step`."""

    last_step: int

    def active(self, step: Any, /) -> Any:
        """Return `step <= last_step`."""
        return step <= self.last_step


@dataclass(frozen=True, slots=True)
class Always:
    """Active at every step."""

    def active(self, step: Any, /) -> bool:
        """Return True."""
        return True


ALWAYS = Always()


def until(last_step: int, /) -> Until:
    """Make a rule active while `step <= last_step`, counting from 0.

    Args:
        last_step: The last step at which the rule is active, a non-negative int. `until(16)`
            is active for 17 steps, 0 to 16. That is what Lucid's code does with its
            `global_step > 16`; its docstring says 16.

    Returns:
        A schedule for `relurules.apply(..., schedule=)`.

    Raises:
        TypeError: `last_step` is not an int.
        ValueError: `last_step` is negative.

    Example:
        >>> schedule = until(16)
        >>> schedule.active(16), schedule.active(17)
        (True, False)
    """
    if isinstance(last_step, bool) or not isinstance(last_step, int):
        raise TypeError(f"until() takes an int, the last active step; got {last_step!r}.")
    if last_step < 0:
        raise ValueError(
            f"until({last_step}): steps count from 0, so no step would be active; "
            "give a last step of 0 or more."
        )
    return Until(last_step)
