"""The gradient of an output with respect to the input, under a rule, once or over noise.

It goes through the framework's functional gradient, so that no parameter's gradient changes,
and always reads the gradient as that of a score: in a map of evidence up is what is asked
for, and with the other sign guided would show the evidence against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np

from relurules import _apply
from relurules._apply import Rules
from relurules._backend import Arrays
from relurules._plan import Match, Missing, Select, Smooth
from relurules.maps._call import (
    Call,
    Caller,
    Inputs,
    Progress,
    arrays_of,
    check_count,
    each,
    samples_of,
    spans,
)
from relurules.maps._smooth import AVERAGES, Average, Mean, Noise, copies_in_a_batch
from relurules.maps._target import Array, Scores, Target, part_of, scores_for

Gradient: TypeAlias = Callable[[Scores, Inputs], Inputs]


class Options(TypedDict, total=False):
    """Those arguments of `relurules.apply` that a map passes on."""

    batch_axis: int | None
    only: Select
    exclude: Select
    missing: Missing
    match: Match
    smooth_activations: Smooth | None
    backend: str | None


def attribute(
    model: Any,
    inputs: Any,
    target: Target = None,
    rule: Rules | None = "guided",
    *,
    smooth: int = 0,
    sigma: float | tuple[float, ...] = 0.15,
    relative: bool = True,
    average: Average = "mean",
    seed: int = 0,
    batch_size: int | None = None,
    batched: bool = True,
    call: Call | None = None,
    progress: Progress = iter,
    **options: Unpack[Options],
) -> Any:
    """Return the gradient of an output with respect to the input, under a rule.

    Parameters and their gradients are not touched, and the rule is gone afterwards. What is
    returned is the gradient of a *score*, whatever a rule's own convention: positive where more
    of the input raises the output.

    Args:
        model: A model of any framework with a backend. Put it into evaluation mode yourself:
            in training mode dropout is drawn and batch norm learns, as in any call.
        inputs: An array of the framework, axis 0 separating samples, or a tuple of several.
        target: Which output of each sample to explain: an index, a tuple of indices, a list or
            array with one of these for each sample, a callable from the model's outputs to one
            score for each sample, or None for the largest.
        rule: As in `relurules.apply`; None is the gradient the model has by itself, which
            inside an applied rule is that rule's. `"standard"` is the plain one everywhere.
        smooth: How many noisy copies to average over (SmoothGrad); 0 is the plain map.
        sigma: Standard deviation of that noise, as a share of each sample's range (largest
            value minus smallest), 0.15 as in the paper's pictures; or a tuple, one for each
            input, where 0 holds an input still.
        relative: False makes `sigma` an absolute number.
        average: What to average: `"mean"`, the gradient; `"squared"`, its square;
            `"magnitude"`, its absolute value.
        seed: Of the noise. A seed gives the same noise in every framework and batch size.
        batch_size: The most rows that go through the model at once. None finds it for the
            noise, by the input's size, and passes all samples at once.
        batched: False if the model takes one sample, without axis 0. `inputs` then has none
            either, and `batch_axis` is None.
        call: How to call the model, where it is not `model(*inputs)`, such as
            `lambda model, x: model.encode_image(x)`.
        progress: Wraps the list of batches to show how far it is, such as `tqdm.tqdm` or
            `rich.progress.track`.
        **options: `only`, `exclude`, `missing`, `match`, `smooth_activations`, `backend` and
            `batch_axis`, as in `relurules.apply`.

    Returns:
        What `inputs` was: an array of its shape and dtype, or a tuple of such.

    Raises:
        IndexError: The target is out of range.
        ValueError: The target or an option does not fit; the output does not depend on an
            input (Torch; JAX gives zeros there); the input holds NaN where noise is wanted.
        TypeError: The input is not of floating point, or the model returned no single array.
        UnsupportedModelError: The backend has no gradient function.
        NoActivationError: As for `relurules.apply`.
        UncoveredActivationError: As for `relurules.apply`.

    Example:
        >>> import torch, relurules
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        >>> relurules.attribute(net, torch.rand(1, 2), target=0, smooth=8).shape
        torch.Size([1, 2])
    """
    _check_options(options, rule)
    check_count("smooth", smooth, least=0)
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size, least=1)
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {', '.join(AVERAGES)}; got {average!r}.")
    if not batched:
        options.setdefault("batch_axis", None)
    arrays = arrays_of(model, options.get("backend"))
    xs = inputs if isinstance(inputs, tuple) else (inputs,)
    xs = xs if batched else tuple(x[None] for x in xs)
    samples = samples_of(xs)
    size = (batch_size if batched else 1) or samples
    caller = Caller(model=model, arrays=arrays, batched=batched, call=call)
    work = _Work(
        inputs=xs,
        samples=samples,
        scores=scores_for(target, samples, arrays, lambda: caller.outputs(xs, size)),
        arrays=arrays,
        batch_size=batch_size if batched else 1,
        progress=progress,
    )
    with _ruled(model, rule, options) as ruled:
        under_rule = replace(caller, model=ruled)

        def gradient(scores: Scores, parts: Inputs) -> Inputs:
            return arrays.gradient(lambda *xs: under_rule.scores(scores, *xs).sum(), parts)

        if smooth:
            noises = _noises(xs, arrays, sigma=sigma, relative=relative, seed=seed)
            maps = work.smooth(gradient, noises, smooth, average)
        else:
            maps = work.plain(gradient)
    maps = maps if batched else tuple(one[0] for one in maps)
    return maps if isinstance(inputs, tuple) else maps[0]


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What is to be explained, and in which batches."""

    inputs: Inputs
    samples: int
    scores: Scores
    arrays: Arrays
    batch_size: int | None
    progress: Progress

    def plain(self, gradient: Gradient) -> Inputs:
        """Return the gradient of each input."""
        parts = [
            gradient(part_of(self.scores, rows), self._rows(rows))
            for rows in each(self.progress, self._spans())
        ]
        if len(parts) == 1:
            return parts[0]
        return self._like_inputs(self._joined(one) for one in zip(*parts, strict=True))

    def smooth(
        self, gradient: Gradient, noises: tuple[Noise, ...], count: int, average: Average
    ) -> Inputs:
        """Return the average over `count` noisy copies for each input."""
        means = [Mean(noise.values.shape) for noise in noises]
        for rows, copies in each(self.progress, self._batches(noises, count)):
            noisy = self._like_inputs(noise.noisy(rows, copies) for noise in noises)
            found = gradient(part_of(self.scores, rows), noisy)
            for mean, one in zip(means, found, strict=True):
                values = AVERAGES[average](self.arrays.to_numpy(one))
                mean.add(rows, values.reshape(-1, rows.stop - rows.start, *values.shape[1:]))
        found = self._like_inputs(mean.value for mean in means)
        for one, mean in zip(found, means, strict=True):
            _check_cast(mean.value, self.arrays.to_numpy(one))
        return found

    def _joined(self, parts: Iterable[Any]) -> Array:
        return np.concatenate([self.arrays.to_numpy(part) for part in parts])

    def _spans(self) -> list[slice]:
        return spans(self.samples, self.batch_size or self.samples)

    def _batches(self, noises: tuple[Noise, ...], count: int) -> list[tuple[slice, slice]]:
        if self.batch_size is None:
            copies = copies_in_a_batch(count, sum(noise.values.size for noise in noises))
        else:
            copies = max(1, self.batch_size // self.samples)
        return [(rows, part) for rows in self._spans() for part in spans(count, copies)]

    def _rows(self, rows: slice) -> Inputs:
        if rows == slice(0, self.samples):
            return self.inputs
        return tuple(x[rows] for x in self.inputs)

    def _like_inputs(self, values: Iterable[Any]) -> Inputs:
        pairs = zip(values, self.inputs, strict=True)
        return tuple(self.arrays.from_numpy(value, like=x) for value, x in pairs)


def _check_options(options: Options, rule: Rules | None) -> None:
    if unknown := options.keys() - Options.__annotations__.keys():
        raise TypeError(f"attribute() has no argument {', '.join(map(repr, sorted(unknown)))}.")
    if rule is None and (idle := options.keys() - {"backend"}):
        raise ValueError(
            f"{', '.join(sorted(idle))} would do nothing: rule=None puts no rule behind the model."
        )


def _check_cast(exact: Array, cast: Array) -> None:
    """Raise where the input's dtype has no room for the map."""
    rows = exact.reshape(len(exact), -1), cast.reshape(len(cast), -1)
    lost = rows[0].any(axis=1) & ~rows[1].any(axis=1)
    if lost.any() or (np.isfinite(exact) & ~np.isfinite(cast)).any():
        raise ValueError(
            f"The map does not fit into the input's dtype: its values reach "
            f"{np.abs(exact).max():.1e}. Use a wider dtype for the model and the input."
        )


def _ruled(model: Any, rule: Rules | None, options: Options) -> AbstractContextManager[Any]:
    if rule is None:
        return nullcontext(model)
    return _apply.apply(model, rule, gradient_of="score", **options)


def _noises(
    inputs: Inputs,
    arrays: Arrays,
    *,
    sigma: float | tuple[float, ...],
    relative: bool,
    seed: int,
) -> tuple[Noise, ...]:
    sigmas = sigma if isinstance(sigma, tuple) else (sigma,) * len(inputs)
    if len(sigmas) != len(inputs):
        raise ValueError(f"There are {len(sigmas)} values of sigma for {len(inputs)} inputs.")
    return tuple(
        Noise(values=arrays.to_numpy(x), sigma=one, relative=relative, seed=(seed, position))
        for position, (x, one) in enumerate(zip(inputs, sigmas, strict=True))
    )
