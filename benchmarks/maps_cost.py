"""What SmoothGrad and occlusion cost, beside Captum at several batch sizes.

Prints ratios to Captum's best batch, taken within rounds in which all contenders run interleaved
on one thread. The batch size of relurules is the one it finds by itself. Peak memory is how far
a process of its own grows beyond the loaded model while it makes one map; Captum's default is all
noise samples at once, one window at a time.

    python benchmarks/maps_cost.py                  # all
    python benchmarks/maps_cost.py smooth           # SmoothGrad only
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision
from captum.attr import GuidedBackprop, NoiseTunnel, Occlusion
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import relurules

SAMPLES, WINDOW, STRIDE, TARGET = 50, 16, 8, 3
Contender = Callable[[nn.Module, Tensor], Tensor]


def captum_smooth(batch: int | None) -> Contender:
    def run(model: nn.Module, x: Tensor) -> Tensor:
        tunnel = NoiseTunnel(GuidedBackprop(model))
        sizes = {"nt_samples": SAMPLES, "nt_samples_batch_size": batch}
        return tunnel.attribute(x, stdevs=0.15, target=TARGET, **sizes)

    return run


def captum_occlusion(batch: int) -> Contender:
    def run(model: nn.Module, x: Tensor) -> Tensor:
        sizes = {"sliding_window_shapes": (3, WINDOW, WINDOW), "strides": (3, STRIDE, STRIDE)}
        return Occlusion(model).attribute(x, target=TARGET, perturbations_per_eval=batch, **sizes)

    return run


def smooth(model: nn.Module, x: Tensor) -> Tensor:
    return relurules.attribute(model, x, TARGET, smooth=SAMPLES, sigma=0.15, relative=False)


def occlusion(model: nn.Module, x: Tensor) -> Tensor:
    return relurules.occlusion(model, x, TARGET, window=(None, WINDOW, WINDOW), stride=STRIDE)


JOBS: dict[str, dict[str, Contender]] = {
    "smooth": {
        "relurules": smooth,
        **{f"captum, {n} at once": captum_smooth(n) for n in (1, 2, 5, 10, 25)},
        "captum, default (all)": captum_smooth(None),
    },
    "occlusion": {
        "relurules": occlusion,
        "captum, default (1)": captum_occlusion(1),
        **{f"captum, {n} at once": captum_occlusion(n) for n in (4, 16, 32)},
    },
}


def prepare() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="captum")
    return torchvision.models.resnet18().eval(), torch.rand(1, 3, 112, 112)


def seconds(contender: Contender, model: nn.Module, x: Tensor) -> float:
    start = time.process_time()
    contender(model, x)
    return time.process_time() - start


def peak_bytes(job: str, label: str) -> int:
    """Return how much memory a process of its own takes beyond the model and one forward."""
    command = [sys.executable, __file__, "--peak", job, label]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576"}
    found = subprocess.run(  # noqa: S603 - this very file
        command, env=environment, check=True, capture_output=True, text=True
    )
    return int(found.stdout)


def print_peak(job: str, label: str) -> None:
    model, x = prepare()
    model(x)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of the imports
    JOBS[job][label](model, x)
    print(resident("VmHWM") - before)


def resident(entry: str) -> int:
    """Return a figure of this process in bytes, as Linux keeps it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(entry)) * 1024


def measure(job: str, rounds: int) -> Table:
    model, x = prepare()
    times: dict[str, list[float]] = {label: [] for label in JOBS[job]}
    for contender in JOBS[job].values():
        contender(model, x)
    for _ in track(range(rounds), description=job):
        for label, contender in JOBS[job].items():
            times[label].append(seconds(contender, model, x))
    return table(job, times, {label: peak_bytes(job, label) for label in JOBS[job]})


def table(job: str, times: dict[str, list[float]], memory: dict[str, int]) -> Table:
    peers = [label for label in times if label.startswith("captum")]
    best = min(peers, key=lambda label: statistics.median(times[label]))
    default = next(label for label in peers if "default" in label)
    title = f"{job}, resnet18 at 112 px (best: {best}, {statistics.median(times[best]):.2f} s)"
    out = Table("contender", "median", "min", "max", "peak MiB", "peak / default", title=title)
    for label, values in times.items():
        ratios = [a / b for a, b in zip(values, times[best], strict=True)]
        numbers = (statistics.median(ratios), min(ratios), max(ratios))
        share = memory[label] / memory[default]
        out.add_row(
            label, *(f"{n:.3f}" for n in numbers), f"{memory[label] / 2**20:.0f}", f"{share:.3f}"
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", default=[], help=f"some of {', '.join(JOBS)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print_peak(*arguments.peak)
        return
    console = Console(width=100)
    console.print(f"torch {torch.__version__}, one thread, {arguments.rounds} interleaved rounds")
    for job in arguments.jobs or JOBS:
        console.print(measure(job, arguments.rounds))


if __name__ == "__main__":
    main()
