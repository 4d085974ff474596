"""The commands that draw: what they take, what they print, where they write.

Progress goes to standard error and results to standard output, so that a script can read the
path of the file. Torch is imported when a command runs, not before: see `relurules.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from relurules import explain as _explain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from relurules.explain import Explanation, Visualisation

T = TypeVar("T")

_EXPLAINING = ["standard", "guided", "deconv"]
_WAKING = ["standard", "redirected"]


def _png(out: Path) -> Path:
    if out.suffix.lower() == ".png":
        return out
    raise typer.BadParameter(f"{out} does not end in .png")


_MODEL = typer.Option(help="The network.")
_RULE = typer.Option(help="A rule; repeat the option for more.")
_OUT = typer.Option(help="The PNG to write.", dir_okay=False, writable=True, callback=_png)


def explain(
    *,
    images: Annotated[
        list[str], typer.Argument(help="Paths, or names of scikit-image samples (chelsea).")
    ],
    model: Annotated[str, _MODEL] = "efficientnet_lite0",
    rule: Annotated[list[str], _RULE] = _EXPLAINING,
    target: Annotated[
        str | None, typer.Option(help="Class index or name; default: the most probable.")
    ] = None,
    out: Annotated[Path, _OUT] = Path("rules.png"),
) -> None:
    """Show which pixels a class score rests on, under each rule."""
    classifier = _explain.load_model(model)
    index = None if target is None else classifier.class_index(target)
    pixels = [_explain.load_image(image, size=classifier.size) for image in images]
    explanations = [
        _explain.explain(classifier, picture, rules=rule, target=index)
        for picture in _progress("explaining")(pixels)
    ]
    figure = _explain.maps_picture(explanations, notes=classifier.notes)
    _finish(_sparsity_table(images, explanations), figure, out)


def wake(
    *,
    model: Annotated[str, _MODEL] = "efficientnet_lite0",
    layer: Annotated[str, typer.Option(help="The module whose output to excite.")] = "bn2.act",
    channel: Annotated[int, typer.Option(min=0, help="The channel of that output.")] = 424,
    steps: Annotated[int, typer.Option(min=1, help="Optimisation steps.")] = 64,
    size: Annotated[int, typer.Option(min=32, help="Pixels on a side.")] = 128,
    until: Annotated[int, typer.Option(min=0, help="Last step with the rule active.")] = 16,
    rule: Annotated[list[str], _RULE] = _WAKING,
    seed: Annotated[int, typer.Option(help="Of the start and the random views.")] = 0,
    out: Annotated[Path, _OUT] = Path("wake.png"),
) -> None:
    """Draw what excites one channel; under redirected also where the channel is dead."""
    classifier = _explain.load_model(model)
    drawn = [
        _explain.wake(
            classifier,
            name,
            layer=layer,
            channel=channel,
            steps=steps,
            size=size,
            until=until,
            seed=seed,
            progress=_progress(name),
        )
        for name in rule
    ]
    title = f"{model}, {layer}, channel {channel}"
    figure = _explain.wake_picture(drawn, until=until, title=title)
    _finish(_objective_table(drawn), figure, out)


def _progress(description: str) -> Callable[[Iterable[T]], Iterable[T]]:
    console = Console(stderr=True)
    return lambda items: track(items, description=description, console=console)


def _sparsity_table(images: list[str], explanations: list[Explanation]) -> Table:
    rules = explanations[0].maps
    table = Table("image", "class", "probability", *rules, title="Gini sparsity of each map")
    for image, found in zip(images, explanations, strict=True):
        sizes = map(_explain.magnitude, found.maps.values())
        sparsity = (f"{_explain.gini(size):.2f}" for size in sizes)
        table.add_row(Path(image).name, found.label, f"{found.probability:.2f}", *sparsity)
    return table


def _objective_table(drawn: list[Visualisation]) -> Table:
    table = Table("rule", "first step", "last step", title="mean activation")
    for each in drawn:
        table.add_row(each.rule, f"{each.objective[0]:.3f}", f"{each.final:.3f}")
    return table


def _finish(table: Table, figure: Figure, out: Path) -> None:
    """Write the figure first: what is printed is then true."""
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    Console().print(table)
    typer.echo(f"wrote {out}")
