"""Draw what excites one unit, and wake it first if it is dead.

A unit whose activation is 0 at every position passes no gradient, so ascent on it never
starts: the picture stays the noise it began as, and nothing says why. `redirected` lets the
gradient of a dead sample through where descent needs it. That is made visible here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import relurules
from relurules.errors import did_you_mean
from relurules.explain._canvas import Canvas, View
from relurules.explain._errors import ExplainError
from relurules.explain._models import Classifier

_LEARNING_RATE = 0.05

Progress = Callable[[range], Iterable[int]]


@dataclass(frozen=True, kw_only=True)
class Visualisation:
    """A picture drawn to excite a unit, and how the excitement grew.

    Attributes:
        rule: The rule under which it was drawn.
        image: Shape `(3, size, size)`, in [0, 1].
        objective: The unit's mean activation at each step.
    """

    rule: str
    image: Tensor
    objective: tuple[float, ...]

    @property
    def final(self) -> float:
        """The objective at the last step."""
        return self.objective[-1]


def wake(
    classifier: Classifier,
    rule: str,
    *,
    layer: str = "bn2.act",
    channel: int = 424,
    steps: int = 64,
    size: int = 128,
    until: int = 16,
    seed: int = 0,
    progress: Progress = iter,
) -> Visualisation:
    """Draw a picture that excites one channel: its mean activation over all positions.

    Args:
        classifier: The network.
        rule: The name of the rule, active for steps 0 to `until`; what follows it after that
            is the rule's own affair (`standard`, but for redirected its closed gate).
        layer: The module whose output is looked at.
        channel: The index on axis 1 of that output.
        steps: Number of optimisation steps.
        size: Height and width of the picture in pixels.
        until: The last step at which the rule is active.
        seed: Of the start and of the random views.
        progress: Wraps the range of steps, to show how far it is.

    Raises:
        ExplainError: The network has no such layer, or the layer no such channel.

    Example:
        >>> from relurules.explain import load_model, wake
        >>> wake(load_model(), "redirected").final > 5
        True
    """
    generator = torch.Generator().manual_seed(seed)
    canvas, view = Canvas.random(size=size, generator=generator), View()
    optimiser = torch.optim.Adam([canvas.spectrum], lr=_LEARNING_RATE)
    network, schedule = classifier.network, relurules.until(until)
    with _outputs(network, layer) as outputs:
        applied = relurules.apply(network, rule, schedule=schedule, gradient_of="loss")
        with applied.follow(optimiser) as model:

            def excitement() -> Tensor:
                model(classifier.normalise(view(canvas.pixels(), generator))[None])
                return _channel(outputs, channel, layer).mean()

            objective = tuple(_ascend(excitement, optimiser) for _ in progress(range(steps)))
    return Visualisation(rule=rule, image=canvas.pixels().detach(), objective=objective)


def _ascend(objective: Callable[[], Tensor], optimiser: torch.optim.Optimizer) -> float:
    """Take one step up and return the objective that was there before it."""
    optimiser.zero_grad()
    loss = -objective()
    loss.backward()
    optimiser.step()
    return -float(loss.detach())


@contextmanager
def _outputs(network: nn.Module, layer: str) -> Iterator[list[Tensor]]:
    """Keep what a layer gave in its last call, as the only item of a list."""
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        outputs[:] = [output]

    handle = _submodule(network, layer).register_forward_hook(keep)
    try:
        yield outputs
    finally:
        handle.remove()


def _submodule(network: nn.Module, layer: str) -> nn.Module:
    layers = dict(network.named_modules())
    if layer and layer in layers:
        return layers[layer]
    hint = did_you_mean(layer, layers) or "; list them with network.named_modules()"
    raise ExplainError(f"The network has no layer {layer!r}{hint}")


def _channel(outputs: list[Tensor], channel: int, layer: str) -> Tensor:
    if not outputs:
        raise ExplainError(f"The network does not call its layer {layer!r}; name another.")
    (output,) = outputs
    if 0 <= channel < output.shape[1]:
        return output[:, channel]
    raise ExplainError(f"{layer!r} has channels 0 to {output.shape[1] - 1}, not {channel}.")
