"""What the papers' experiments share, so that each file holds one paper and nothing else.

An experiment yields numbers under a setting and a rule. What was recorded before is data
beside it, and whether both agree is decided at one place, by a tolerance stated beforehand.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from relurules.explain import load_image

RULES = ("standard", "deconv", "guided")
NO_RULE = "none"  # of a number about the network itself
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")

Progress: TypeAlias = Callable[[Sequence[Any]], Iterable[Any]]
"""Wraps a list to show how far a loop over it is."""


class Key(NamedTuple):
    """What was measured.

    Attributes:
        setting: The network and what of it is compared.
        rule: The rule of the maps.
    """

    setting: str
    rule: str


Samples: TypeAlias = Iterator[tuple[Key, Tensor]]
Measure: TypeAlias = Callable[[int, Progress], Samples]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The numbers measured for one key, and the one recorded.

    Attributes:
        values: One for each run: each seed, photo or pair.
        recorded: The mean that an earlier run with other code gave, or None.
        within: How far both may be apart.
    """

    values: tuple[float, ...]
    recorded: float | None
    within: float

    @property
    def mean(self) -> float:
        """The mean over the runs."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """The standard deviation over the runs."""
        return statistics.pstdev(self.values)

    @property
    def agrees(self) -> bool | None:
        """Whether the mean is where it was; None where none was recorded."""
        if self.recorded is None:
            return None
        return math.isclose(self.mean, self.recorded, rel_tol=0, abs_tol=self.within)

    def summary(self) -> dict[str, Any]:
        """Return the numbers as JSON has them."""
        return {
            "mean": self.mean,
            "spread": self.spread,
            "least": min(self.values),
            "most": max(self.values),
            "runs": len(self.values),
            "recorded": self.recorded,
            "agrees": self.agrees,
        }


Findings: TypeAlias = Mapping[Key, Finding]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A claim about the rules, and how to measure it.

    Attributes:
        name: By which the command line knows it.
        paper: Whose claim it is.
        shows: What the numbers are.
        measure: Yields them, given how many seeds and a progress bar.
        seeds: How many random networks are drawn.
        quick: How many will do to see the direction.
        recorded: Earlier means; settings without one are new.
        within: How far a mean may be from the recorded one.
    """

    name: str
    paper: str
    shows: str
    measure: Measure
    seeds: int
    quick: int
    recorded: Mapping[Key, float] = field(default_factory=dict)
    within: float = 0.0

    def run(self, *, quick: bool = False, progress: Progress = iter) -> Findings:
        """Measure and put the recorded numbers beside."""
        values: dict[Key, list[float]] = defaultdict(list)
        for key, found in self.measure(self.quick if quick else self.seeds, progress):
            values[key] += found.tolist()
        return {key: self._finding(key, found) for key, found in values.items()}

    def _finding(self, key: Key, values: Sequence[float]) -> Finding:
        recorded = self.recorded.get(key)
        return Finding(values=tuple(values), recorded=recorded, within=self.within)


def by_rule(setting: str, *means: float | None) -> dict[Key, float]:
    """Return recorded means under their keys, in the order of `RULES`; None was not recorded."""
    pairs = zip(RULES, means, strict=True)
    return {Key(setting, rule): mean for rule, mean in pairs if mean is not None}


def photos(side: int) -> Tensor:
    """Return the photographs as a batch of squares, in [0, 1]."""
    return torch.stack([load_image(name, size=side) for name in PHOTOS])


def rows(maps: Tensor) -> Tensor:
    """Return each map as a row of numbers precise enough to be compared."""
    return maps.detach().flatten(1).double()


def correlation(ones: Tensor, others: Tensor) -> Tensor:
    """Return Pearson's correlation of each map with the other at its place."""
    return functional.cosine_similarity(_centred(rows(ones)), _centred(rows(others)))


def correlation_of_pairs(maps: Tensor) -> Tensor:
    """Return Pearson's correlation of each two of the maps."""
    return cosine_of_pairs(_centred(rows(maps)))


def cosine_of_pairs(maps: Tensor) -> Tensor:
    """Return the cosine of the angle between each two of the maps."""
    units = functional.normalize(rows(maps))
    first, second = torch.triu_indices(len(units), len(units), offset=1)
    return (units[first] * units[second]).sum(dim=1)


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(dim=1, keepdim=True)
