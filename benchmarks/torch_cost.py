"""What a gradient rule costs in Torch, beside what people use today.

Prints ratios to the floor: `autograd.grad` with respect to the input, parameters frozen. All
contenders run interleaved in one process on one thread, a round each, and each ratio is taken
within its round, so that a machine whose speed drifts does not favour anyone. CPU time is used,
not wall time. Saved activations are the unique storages that autograd keeps outside parameters.
"applied once" leaves the rule applied over all gradients of a round, as SmoothGrad would; the
others apply and remove it for each gradient, as Captum does.

    python benchmarks/torch_cost.py                 # all nets
    python benchmarks/torch_cost.py resnet18 thin   # some
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torchvision
from captum.attr import Deconvolution, GuidedBackprop
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import relurules

Contender = Callable[[nn.Module, Tensor], Tensor]


def floor(model: nn.Module, x: Tensor) -> Tensor:
    return torch.autograd.grad(model(x)[:, 0].sum(), x)[0]


def ruled(rule: str, **options: object) -> Contender:
    def run(model: nn.Module, x: Tensor) -> Tensor:
        with relurules.apply(model, rule, **options) as applied:
            score = applied(x)[:, 0].sum()
        return torch.autograd.grad(score, x)[0]

    return run


def captum(method: type) -> Contender:
    def run(model: nn.Module, x: Tensor) -> Tensor:
        return method(model).attribute(x, target=0)

    return run


class HandWritten(torch.autograd.Function):
    """Guided backpropagation as one writes it by hand, saving the input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.clamp_min(0) * (x > 0)


def hand_written(model: nn.Module, x: Tensor) -> Tensor:
    modules = [m for m in model.modules() if isinstance(m, nn.ReLU)]
    for module in modules:
        module.forward = HandWritten.apply
    try:
        return floor(model, x)
    finally:
        for module in modules:
            del module.forward


ONCE = {"relurules guided, applied once": "guided"}

CONTENDERS: dict[str, Contender] = {
    "floor": floor,
    "relurules guided, applied once": floor,
    "relurules standard": ruled("standard"),
    "relurules deconv": ruled("deconv"),
    "relurules guided": ruled("guided"),
    "relurules redirected": ruled("redirected"),
    "captum deconv": captum(Deconvolution),
    "captum guided": captum(GuidedBackprop),
    "hand-written guided": hand_written,
}


def thin() -> nn.Module:
    return nn.Sequential(*[m for _ in range(200) for m in (nn.Linear(64, 64), nn.ReLU())])


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "resnet18": (torchvision.models.resnet18, (1, 3, 224, 224), 2),
    "resnet50": (torchvision.models.resnet50, (1, 3, 224, 224), 1),
    "vgg16": (torchvision.models.vgg16, (1, 3, 224, 224), 1),
    "mobilenet_v2": (torchvision.models.mobilenet_v2, (1, 3, 224, 224), 2),
    "thin": (thin, (8, 64), 12),
}


def prepare(name: str) -> tuple[nn.Module, Tensor, int]:
    torch.manual_seed(0)
    build, shape, repeats = NETS[name]
    model = build().eval().requires_grad_(False)
    return model, torch.randn(shape, requires_grad=True), repeats


def around(label: str, model: nn.Module) -> AbstractContextManager[object]:
    return relurules.apply(model, ONCE[label]) if label in ONCE else nullcontext()


def seconds(label: str, model: nn.Module, x: Tensor, repeats: int) -> float:
    contender = CONTENDERS[label]
    with around(label, model):
        contender(model, x)
        start = time.process_time()
        for _ in range(repeats):
            contender(model, x)
        return (time.process_time() - start) / repeats


def saved_bytes(label: str, model: nn.Module, x: Tensor) -> int:
    kept: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
    with around(label, model), hooks:
        CONTENDERS[label](model, x)
    return sum(kept.values())


def measure(name: str, rounds: int) -> Table:
    model, x, repeats = prepare(name)
    times: dict[str, list[float]] = {label: [] for label in CONTENDERS}
    for _ in track(range(rounds), description=name):
        for label in CONTENDERS:
            times[label].append(seconds(label, model, x, repeats))
    memory = {label: saved_bytes(label, model, x) for label in CONTENDERS}
    return table(name, times, memory)


def table(name: str, times: dict[str, list[float]], memory: dict[str, int]) -> Table:
    best = min(times["floor"]) * 1e3
    out = Table("contender", "median", "min", "max", "saved", title=f"{name} (floor {best:.2f} ms)")
    for label, values in times.items():
        ratios = [a / b for a, b in zip(values, times["floor"], strict=True)]
        numbers = (statistics.median(ratios), min(ratios), max(ratios))
        saved = memory[label] / memory["floor"]
        out.add_row(label, *(f"{n:.3f}" for n in numbers), f"{saved:.3f}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", default=[], help=f"some of {', '.join(NETS)}")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Setting backward hooks on ReLU")
    console = Console(width=100)
    console.print(f"torch {torch.__version__}, one thread, {arguments.rounds} interleaved rounds")
    for name in arguments.nets or NETS:
        console.print(measure(name, arguments.rounds))


if __name__ == "__main__":
    main()
