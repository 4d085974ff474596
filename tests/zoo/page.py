"""Turns what the sweep printed into a page of the documentation.

python tests/zoo/sweep.py | tee results.txt
python tests/zoo/page.py results.txt docs/models.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

RULES = ("guided", "deconv", "outgoing")
_HEAD = """# Models

What the Torch backend did with every architecture of torchvision {torchvision} (classification,
segmentation, detection, video, optical flow, quantisable) and one of every family of timm {timm},
on torch {torch}, unmodified and with random weights. The gradient with respect to the input was
compared with a reference that shares no code with relurules: hooks on the nodes that Torch
recorded for activations in a run without any rule.

- **a number**: so many activations took the rule, and the gradient is equal **to the bit**;
- **none**: there is no activation that the rule is for, and `NoActivationError` says so;
- **refused**: `UncoveredActivationError`: something could not be reached;
- \\*: the plain gradient is the same, since these activations see nothing of the input.

*smooth* is `guided` with `smooth_activations="outgoing"`, which also takes GELU, SiLU and the
like. Where it has a number and guided has none, the model has no ReLU: guided backpropagation is
not defined on it, and tools that patch ReLU modules give its plain gradient under that name.

| | {titles} |
|---|{lines}|
{totals}

`tests/zoo/sweep.py` of the repository makes this comparison; it takes an hour or so.

| model | {titles} |
|---|{lines}|
"""
_TITLES = ("guided", "deconv", "smooth")


def read(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return each model's cell under each rule."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        outcome, *rest = line.split()
        if not outcome.startswith("{"):
            name, rule, *detail = rest
            found.setdefault(name, {})[rule] = _cell(outcome, detail)
    return found


def _cell(outcome: str, detail: list[str]) -> str:
    if outcome != "equal":
        return outcome
    return detail[0] + (r"\*" if "(the" in detail else "")


def page(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page."""
    versions = {name: version(name).partition("+")[0] for name in ("torch", "torchvision", "timm")}
    counts = [
        Counter(_kind(cells.get(rule, "unrun")) for cells in found.values()) for rule in RULES
    ]
    kinds = dict.fromkeys(kind for count in counts for kind in count)
    totals = "\n".join(_row(kind, [str(count[kind]) for count in counts]) for kind in kinds)
    head = _HEAD.format(
        titles=" | ".join(_TITLES), lines="|".join("---" for _ in RULES), totals=totals, **versions
    )
    rows = (
        _row(f"`{name}`", [cells.get(rule, "unrun") for rule in RULES])
        for name, cells in found.items()
    )
    return head + "\n".join(rows) + "\n"


def _kind(cell: str) -> str:
    return "equal" if cell[0].isdigit() else cell


def _row(title: str, cells: list[str]) -> str:
    return f"| {title} | {' | '.join(cells)} |"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(page(read(source.read_text().splitlines())))
