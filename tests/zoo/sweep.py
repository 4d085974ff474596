"""Every architecture of torchvision and every family of timm, against a reference.

Each model runs once as its author wrote it, with random weights, and once under a rule. The
reference is taken from the first run and shares nothing with the package: hooks on the nodes
that Torch itself recorded for activations change the gradient there. The rules are guided,
deconv, and guided with `smooth_activations="outgoing"`. Three outcomes are right: the same
gradient, or an error where the model has no such node, or an error that says what could not be
reached. Anything else is a failure.

    python tests/zoo/sweep.py                       # all, for an hour or so
    python tests/zoo/sweep.py timm:resnet googlenet # those whose name holds one of these
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import timm
import torch
import torchvision
from torch import Tensor, nn

import relurules

NODES = (
    "ReluBackward0",
    "HardtanhBackward0",
    "HardtanhBackward1",
    "ThresholdBackward0",
    "ThresholdBackward1",
)
SMOOTH_NODES = (
    *("EluBackward0", "EluBackward1", "GeluBackward0", "HardsigmoidBackward0"),
    *("HardswishBackward0", "LeakyReluBackward0", "LeakyReluBackward1", "MishBackward0"),
    *("PreluKernelBackward0", "RreluWithNoiseBackward0", "RreluWithNoiseBackward1"),
    *("SiluBackward0", "SoftplusBackward0"),
)
SMALL = (  # in timm's names, the likeliest sign of the smallest variant first
    *("test", "atto", "femto", "nano", "pico", "xxs", "xxt", "zepto", "tiny", "mini", "xs"),
    *("_t", "s0", "b0", "18", "050", "small", "_s", "_p", "26", "34", "ese", "50", "121"),
)


@dataclass(frozen=True)
class Case:
    """One model of the zoo: how to build it, and what to feed it."""

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[[nn.Module, Tensor], Any]


@dataclass(frozen=True)
class Treatment:
    """One rule: how it is applied, and by the reference what passes the nodes of each name."""

    options: dict[str, Any]
    hooks: dict[str, Callable[..., Any]]


def _guided(gi: Any, go: Any) -> Any:
    return (torch.where(go[0] > 0, gi[0], 0.0), *gi[1:])


def _deconv(gi: Any, go: Any) -> Any:
    return (torch.where(go[0] > 0, go[0], 0.0), *gi[1:])


def _outgoing(gi: Any, go: Any) -> Any:
    return (torch.where(gi[0] > 0, gi[0], 0.0), *gi[1:])


RULES = {
    "guided": Treatment({"rule": "guided"}, dict.fromkeys(NODES, _guided)),
    "deconv": Treatment({"rule": "deconv"}, dict.fromkeys(NODES, _deconv)),
    "outgoing": Treatment(
        {"rule": "guided", "smooth_activations": "outgoing"},
        dict.fromkeys(NODES, _guided) | dict.fromkeys(SMOOTH_NODES, _outgoing),
    ),
}


@dataclass(frozen=True)
class Result:
    """What became of one model under one rule."""

    name: str
    rule: str
    outcome: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:8} {self.name:44} {self.rule:7} {self.detail}".rstrip()


# --- The zoo ---------------------------------------------------------------------------------


def torchvision_cases() -> Iterator[Case]:
    for name in torchvision.models.list_models():
        yield Case(f"torchvision:{name}", _torchvision_builder(name), *_INPUTS[_kind(name)])


def _kind(name: str) -> str:
    home = torchvision.models.get_model_builder(name).__module__.split(".")
    return next((part for part in home if part in _INPUTS), "classification")


def _torchvision_builder(name: str) -> Callable[[], nn.Module]:
    builder = torchvision.models.get_model_builder(name)
    options: dict[str, Any] = {"weights": None}
    if _kind(name) in ("segmentation", "detection"):
        options["weights_backbone"] = None
    if "rcnn" in name or "retinanet" in name or "fcos" in name:
        options |= {"min_size": 96, "max_size": 128}
    if name.removeprefix("quantized_") in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    return lambda: builder(**options)


def _call(model: nn.Module, x: Tensor) -> Any:
    return model.eval()(x)


def _optical_flow(model: nn.Module, x: Tensor) -> Any:
    return model.eval()(x, x.flip(-1), num_flow_updates=2)


def _detect(model: nn.Module, x: Tensor) -> Any:
    """Take the losses, since the boxes that random weights find are none."""
    target = {
        "boxes": torch.tensor([[10.0, 10.0, 60.0, 60.0]]),
        "labels": torch.ones(1, dtype=torch.int64),
        "masks": torch.ones(1, x.shape[-2], x.shape[-1], dtype=torch.uint8),
        "keypoints": torch.tensor([[[20.0, 20.0, 1.0]] * 17]),
    }
    return model.train()(list(x), [target] * len(x))


_INPUTS: dict[str, Any] = {
    "classification": (((1, 3, 96, 96), (1, 3, 224, 224), (1, 3, 299, 299)), _call),
    "segmentation": (((1, 3, 64, 64),), _call),
    "detection": (((2, 3, 96, 96),), _detect),
    "video": (((1, 3, 8, 64, 64), (1, 3, 16, 112, 112), (1, 3, 16, 224, 224)), _call),
    "optical_flow": (((1, 3, 128, 128),), _optical_flow),
    "quantization": (((1, 3, 96, 96), (1, 3, 224, 224), (1, 3, 299, 299)), _call),
}
TOO_LARGE = {  # families without a small member, and how to make one
    "deepseek_vit": ("deepseek_vit_412m", {"depth": 2}, ((1, 3, 98, 98), (1, 3, 546, 546))),
    "vision_transformer_sam": ("samvit_base_patch16_224", {}, ((1, 3, 224, 224),)),
}


def timm_cases() -> Iterator[Case]:
    for module in timm.list_modules():
        name, options, shapes = TOO_LARGE.get(module) or _smallest(module)
        build = partial(timm.create_model, name, pretrained=False, **options)
        yield Case(f"timm:{module}:{name}", build, shapes, _call)


def _smallest(module: str) -> tuple[str, dict[str, Any], tuple[tuple[int, ...], ...]]:
    name = min(timm.list_models(module=module), key=_size)
    config = timm.models.get_pretrained_cfg(name)
    full = tuple(config.input_size) if config else (3, 224, 224)
    small = () if config and config.fixed_input_size else ((1, 3, 96, 96),)
    return name, {}, (*small, (1, *full))


def _size(name: str) -> tuple[int, int, str]:
    rank = next((i for i, token in enumerate(SMALL) if token in name), len(SMALL))
    return rank, len(name), name


def cases(wanted: list[str]) -> Iterator[Case]:
    for case in (*torchvision_cases(), *timm_cases()):
        if not wanted or any(part in case.name for part in wanted):
            yield case


# --- The comparison ----------------------------------------------------------------------------


def gradient(case: Case, model: Any, x: Tensor, rule: str | None = None) -> tuple[Tensor, int]:
    """Return the input's gradient, by the rule put onto Torch's own nodes, and their number."""
    hooks = RULES[rule].hooks if rule else {}
    tensors, graph = _forward(case, model, x)
    if rule and any(node.name() == "torch::autograd::CopySlices" for node in graph):
        with _out_of_place(model):  # the node of an in-place change of a view is hidden in there
            tensors, graph = _forward(case, model, x)
    nodes = [node for node in graph if node.name() in hooks]
    handles = [node.register_hook(hooks[node.name()]) for node in nodes]
    generator = torch.Generator().manual_seed(2)
    score = sum((t * torch.randn(t.shape, generator=generator)).sum() for t in tensors)
    (found,) = torch.autograd.grad(score, x)
    for handle in handles:
        handle.remove()
    return found, len(nodes)


def _forward(case: Case, model: Any, x: Tensor) -> tuple[list[Tensor], list[Any]]:
    torch.manual_seed(1)  # dropout, stochastic depth and the sampling of anchors
    tensors = [t for t in _tensors(case.run(model, x)) if t.requires_grad]
    return tensors, _graph(tensors)


@contextmanager
def _out_of_place(model: nn.Module) -> Iterator[None]:
    changed = [module for module in model.modules() if getattr(module, "inplace", False)]
    for module in changed:
        module.inplace = False
    yield
    for module in changed:
        module.inplace = True


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _tensors(value)


def _graph(tensors: list[Tensor]) -> list[Any]:
    pending, seen = [t.grad_fn for t in tensors], {}
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen[node] = None
            pending.extend(child for child, _ in node.next_functions)
    return list(seen)


def _fitting_input(case: Case, model: nn.Module) -> Tensor:
    for shape in case.shapes[:-1]:
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        try:
            with torch.no_grad():
                case.run(model, x)
        except (RuntimeError, AssertionError, ValueError, TypeError):
            continue
        return x
    return torch.rand(case.shapes[-1], generator=torch.Generator().manual_seed(0))


def compare(case: Case) -> list[Result]:
    """Build one model, and return what became of it under each rule."""
    torch.manual_seed(0)
    model = case.build()
    _wake(model)
    x = _fitting_input(case, model).requires_grad_()
    plain, _ = gradient(case, model, x)
    return [_compare(case, model, x, rule, plain) for rule in RULES]


def _wake(model: nn.Module) -> None:
    """Fill what starts as zeros, such as heads and gains: behind it every gradient is zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.1)


def _compare(case: Case, model: nn.Module, x: Tensor, rule: str, plain: Tensor) -> Result:
    expected, nodes = gradient(case, model, x, rule)
    try:
        with relurules.apply(model, **RULES[rule].options) as ruled:
            found, _ = gradient(case, ruled, x)
    except relurules.NoActivationError as error:
        return Result(
            case.name, rule, "failed" if nodes else "none", "" if not nodes else str(error)
        )
    except relurules.UncoveredActivationError as error:
        return Result(case.name, rule, "refused", str(error))
    if torch.equal(found, expected):
        same = " (the plain one too)" if torch.equal(plain, expected) else ""
        return Result(case.name, rule, "equal", f"{nodes} nodes{same}")
    difference = float((found - expected).abs().max() / expected.abs().max())
    return Result(case.name, rule, "failed", f"differs by {difference:.1e} of the largest")


def main() -> int:
    """Sweep, print a line for each, and return how many failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    totals: Counter[str] = Counter()
    for case in cases(parser.parse_args().names):
        start = time.monotonic()
        try:
            results = compare(case)
        except Exception as error:  # noqa: BLE001 - a model that its author's code cannot run
            results = [Result(case.name, "-", "unrun", f"{type(error).__name__}: {error}"[:200])]
        for result in results:
            totals[result.outcome] += 1
            print(result, f"{time.monotonic() - start:.0f}s", flush=True)
        gc.collect()
    print(dict(totals))
    return totals["failed"]


if __name__ == "__main__":
    sys.exit(main())
