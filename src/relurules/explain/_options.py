"""The options of the commands that draw: their help, and what is refused before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

import relurules
from relurules.errors import did_you_mean
from relurules.explain._pages import is_png
from relurules.pictures import STYLES

GRADIENT = "gradient"
"""The name of no rule at all: the model's own gradient, whatever is in the model."""

_COLOUR = "of red, green and blue in [0, 1]; default: the model's, else ImageNet's."


def _png(out: Path) -> Path:
    if is_png(out):
        return out
    raise typer.BadParameter(f"{out} does not end in .png")


def _styles(styles: list[str]) -> list[str]:
    for style in styles:
        if style not in STYLES:
            hint = did_you_mean(style, STYLES)
            raise typer.BadParameter(f"no style {style!r}{hint}; there is: {', '.join(STYLES)}")
    return styles


def _rules(rules: list[str]) -> list[str]:
    for rule in rules:
        if rule != GRADIENT:
            relurules.rule(rule)
    return list(dict.fromkeys(rules))


Images: TypeAlias = Annotated[
    list[str], typer.Argument(help="Pictures, folders of them, or scikit-image samples (chelsea).")
]
Model: TypeAlias = Annotated[
    str,
    typer.Option(
        help="efficientnet_lite0, whose weights are installed; torchvision:NAME; timm:NAME; or "
        "module:callable, which imports the module and calls that: name only code you trust."
    ),
]
Weights: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="A state dict: .safetensors, .npz, or what torch.save wrote. No code in it is run. "
        "Without it the networks of torchvision and timm are random."
    ),
]
Classes: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="How many outputs torchvision or timm should build.")
]
Size: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Pixels on a side; default: the model's, else 224.")
]
Mean: TypeAlias = Annotated[
    tuple[float, float, float] | None, typer.Option(help=f"Means {_COLOUR}")
]
Std: TypeAlias = Annotated[
    tuple[float, float, float] | None, typer.Option(help=f"Standard deviations {_COLOUR}")
]
Rule: TypeAlias = Annotated[list[str], typer.Option(help="A rule; repeat the option for more.")]
Rules: TypeAlias = Annotated[
    list[str],
    typer.Option(
        help="A rule; repeat the option for more. 'gradient' is none of them: the model's own "
        "gradient, which every model has.",
        callback=_rules,
    ),
]
Smooth: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Average over so many noisy copies (SmoothGrad).")
]
Sigma: TypeAlias = Annotated[
    float, typer.Option(min=0, help="That noise, as a share of the input's range.")
]
Occlusion: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Add a map of what covering a square of so many pixels does.")
]
Target: TypeAlias = Annotated[
    str | None, typer.Option(help="Class index or name; default: the most probable.")
]
Styles: TypeAlias = Annotated[
    list[str],
    typer.Option(help=f"One of {', '.join(STYLES)}; repeat it for more.", callback=_styles),
]
Percentile: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0.1, max=100, help="How many percent of a map's sizes are not clipped."),
]
Out: TypeAlias = Annotated[
    Path, typer.Option(help="A PNG to write, or a folder for one of each picture.")
]
Png: TypeAlias = Annotated[
    Path, typer.Option(help="The PNG to write.", dir_okay=False, writable=True, callback=_png)
]
