"""A check: a plain function of a setting, with a name that stays the same between releases.

One table of families expands to every check of a backend, and each face of the kit (function,
command line, pytest) only runs what the table yields. A check returns how many elements it
compared, or raises; it knows nothing of pytest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from relurules._library import STANDARD
from relurules._rule import Rule
from relurules.testing._case import BackendCase, Mode

Axis: TypeAlias = Literal["rule", "dtype", "mode", "spelling", "part"]

_NARROW = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How long to search.

    Attributes:
        name: Its name on the command line.
        examples: Hypothesis examples for each property.
        draws: Mixed draws for each rule, dtype and mode.
        seed: What draws and examples begin with; None is another one in each run.
    """

    name: str
    examples: int
    draws: int
    seed: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one check is run on; what it does not range over has its default."""

    case: BackendCase
    profile: Profile
    rules: tuple[Rule, ...] = ()
    rule: Rule = STANDARD
    dtype: str = "float32"
    mode: Mode = "eager"
    spelling: str = ""
    part: Any = None


CheckFn: TypeAlias = Callable[[Setting], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check, ready to run.

    Attributes:
        id: `"special_grid[guided-float32-eager]"`: its name and what it is run on.
        name: The name alone.
        fn: Does the work.
        setting: What it is run on.
        axes: Which fields of the setting the check ranges over.
    """

    id: str
    name: str
    fn: CheckFn
    setting: Setting
    axes: tuple[Axis, ...] = ()

    def __call__(self) -> int:
        """Run it, and return how many elements were compared.

        Raises:
            AssertionError: The backend is wrong; the message says where.
        """
        return self.fn(self.setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A check function and what it ranges over.

    Attributes:
        fn: The check.
        axes: The fields of `Setting` of which every combination is a check.
        parts: Named values for `Setting.part`, each a check of its own.
        modes: The modes it is for; None is all.
        narrow: Only the dtypes of 16 bits.
    """

    fn: CheckFn
    axes: tuple[Axis, ...] = ()
    parts: tuple[tuple[str, Any], ...] = ()
    modes: tuple[Mode, ...] | None = None
    narrow: bool = False

    @property
    def name(self) -> str:
        """The function's name, which is the check's."""
        return self.fn.__name__

    def expand(
        self, case: BackendCase, rules: tuple[Rule, ...], profile: Profile, /
    ) -> Iterator[Check]:
        """Yield a check for every combination."""
        values = [self._values(axis, case, rules) for axis in self.axes]
        for combination in itertools.product(*values):
            fields = dict(zip(self.axes, (value for _, value in combination), strict=True))
            label = "-".join(name for name, _ in combination)
            yield Check(
                id=f"{self.name}[{label}]" if label else self.name,
                name=self.name,
                fn=self.fn,
                setting=Setting(case=case, profile=profile, rules=rules, **fields),
                axes=self.axes,
            )

    def _values(
        self, axis: Axis, case: BackendCase, rules: tuple[Rule, ...]
    ) -> list[tuple[str, Any]]:
        modes = self.modes or case.modes
        table: dict[Axis, Iterable[tuple[str, Any]]] = {
            "rule": ((rule.name, rule) for rule in rules),
            "dtype": ((d, d) for d in case.dtypes if d in _NARROW or not self.narrow),
            "mode": ((m, m) for m in case.modes if m in modes),
            "spelling": ((name, name) for name in case.spellings),
            "part": self.parts,
        }
        return list(table[axis])
