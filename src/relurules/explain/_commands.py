"""The commands that draw: what they do, what they print, where they write.

Progress and warnings go to standard error and results to standard output, so that a script can
read the paths of the files. Torch is imported when a command runs, not before: see
`relurules.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from relurules import explain as _explain
from relurules.errors import NoActivationError
from relurules.explain import _options as options
from relurules.explain._pages import check_free, pages, write

if TYPE_CHECKING:
    from relurules.explain import Classifier, Explanation, Visualisation
    from relurules.explain._maps import Meter

_EXPLAINING = ["standard", "guided", "deconv"]
_WAKING = ["standard", "redirected"]
_STYLES = ["signed", "magnitude"]


def explain(
    *,
    images: options.Images,
    model: options.Model = "efficientnet_lite0",
    weights: options.Weights = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    rule: options.Rules = _EXPLAINING,
    smooth: options.Smooth = 0,
    sigma: options.Sigma = 0.15,
    occlusion: options.Occlusion = 0,
    target: options.Target = None,
    style: options.Styles = _STYLES,
    percentile: options.Percentile = None,
    out: options.Out = Path("rules.png"),
) -> None:
    """Show which pixels a class score rests on, under each rule."""
    plan = pages(_explain.find_images(images), out)
    classifier = _explain.load_model(
        model, weights=weights, classes=classes, size=size, mean=mean, std=std
    )
    _warn(classifier)
    index = None if target is None else classifier.class_index(target)
    table = _sparsity_table([*rule, "occlusion"] if occlusion else rule)
    with _bars() as meter, _hinting():

        def explained(path: Path) -> Explanation:
            return _explain.explain(
                classifier,
                _explain.load_image(path, size=classifier.size),
                rules=rule,
                target=index,
                smooth=smooth,
                sigma=sigma,
                occlusion=occlusion,
                meter=meter,
            )

        for page in meter("files")(plan):
            found = [explained(path) for path in meter("pictures")(page.images)]
            figure = _explain.maps_picture(
                found,
                styles=style,
                percentile=percentile,
                notes=classifier.notes,
                heading=classifier.warning,
            )
            write(figure, page.out)
            _add_rows(table, page.images, found)
    _finish(table, [page.out for page in plan])


def wake(
    *,
    model: options.Model = "efficientnet_lite0",
    weights: options.Weights = None,
    layer: Annotated[str, typer.Option(help="The module whose output to excite.")] = "bn2.act",
    channel: Annotated[int, typer.Option(min=0, help="The channel of that output.")] = 424,
    steps: Annotated[int, typer.Option(min=1, help="Optimisation steps.")] = 64,
    size: Annotated[int, typer.Option(min=32, help="Pixels on a side.")] = 128,
    until: Annotated[int, typer.Option(min=0, help="Last step with the rule active.")] = 16,
    rule: options.Rule = _WAKING,
    seed: Annotated[int, typer.Option(help="Of the start and the random views.")] = 0,
    out: options.Png = Path("wake.png"),
) -> None:
    """Draw what excites one channel; under redirected also where the channel is dead."""
    check_free(out)
    classifier = _explain.load_model(model, weights=weights)
    _warn(classifier)
    with _bars() as meter:
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
                progress=meter(name),
            )
            for name in rule
        ]
    title = "\n".join(filter(None, (classifier.warning, f"{model}, {layer}, channel {channel}")))
    write(_explain.wake_picture(drawn, until=until, title=title), out)
    _finish(_objective_table(drawn), [out])


@contextmanager
def _bars() -> Iterator[Meter]:
    """Give progress bars, which may be within each other and vanish when they are full."""
    with Progress(console=Console(stderr=True), transient=True) as bars:

        def meter(description: str) -> Callable[[Sequence[Any]], Iterable[Any]]:
            return lambda steps: _counted(bars, description, steps)

        yield meter


def _counted(bars: Progress, description: str, steps: Sequence[Any]) -> Iterator[Any]:
    task = bars.add_task(description, total=len(steps))
    for step in steps:
        yield step
        bars.advance(task)
    bars.remove_task(task)


@contextmanager
def _hinting() -> Iterator[None]:
    """Say how it is done here, where the library says how it is done in Python."""
    try:
        yield
    except NoActivationError as error:
        raise _explain.ExplainError(
            f"{error} Here: --rule {options.GRADIENT} is the model's own gradient."
        ) from error


def _warn(classifier: Classifier) -> None:
    if classifier.warning:
        typer.secho(f"Warning: {classifier.warning}.", fg="red", bold=True, err=True)


def _sparsity_table(rules: Sequence[str]) -> Table:
    return Table("image", "class", "probability", *rules, title="Gini sparsity of each map")


def _add_rows(table: Table, images: Sequence[Path], explanations: Sequence[Explanation]) -> None:
    for image, found in zip(images, explanations, strict=True):
        sizes = map(_explain.magnitude, found.maps.values())
        sparsity = (f"{_explain.gini(size):.2f}" for size in sizes)
        probability = "" if found.probability is None else f"{found.probability:.2f}"
        table.add_row(image.name, found.label, probability, *sparsity)


def _objective_table(drawn: Sequence[Visualisation]) -> Table:
    table = Table("rule", "first step", "last step", title="mean activation")
    for each in drawn:
        table.add_row(each.rule, f"{each.objective[0]:.3f}", f"{each.final:.3f}")
    return table


def _finish(table: Table, files: Sequence[Path]) -> None:
    """Say what was found and where it lies, after the files are there: it is then true."""
    Console().print(table)
    for out in files:
        typer.echo(f"wrote {out}")
