"""What a gradient rule costs in JAX: run time, compile time and temporary memory.

Prints ratios to the plain gradient of a network as deep as ResNet-50 (49 ReLUs). All contenders
run interleaved in one process, a round each, and each ratio is taken within its round, so that
a machine whose speed drifts does not favour anyone; CPU time on one core is taken, not wall
time. The hand-written guided gradient is what a user would otherwise put into a model's code.

    python benchmarks/jax_cost.py
    python benchmarks/jax_cost.py --rounds 60 --width 16 --side 96
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts its threads

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import relurules  # noqa: E402

Net = Callable[[Any], Any]
Relu = Callable[[Any], Any]

STAGES = (3, 4, 6, 3)


@jax.custom_vjp
def guided_by_hand(x):
    return jnp.maximum(x, 0)


guided_by_hand.defvjp(
    lambda x: (guided_by_hand(x), x),
    lambda x, g: (jnp.where((x <= 0) | (g <= 0), 0, g),),
)


def weights(width: int) -> list[Any]:
    random = np.random.default_rng(0)
    found, channels = [normal(random, 3, 3, width)], width
    for stage, blocks in enumerate(STAGES):
        inner = width * 2**stage
        for _ in range(blocks):
            found += [
                normal(random, 1, channels, inner),
                normal(random, 3, inner, inner),
                normal(random, 1, inner, 4 * inner),
                normal(random, 1, channels, 4 * inner),
            ]
            channels = 4 * inner
    return found


def normal(random: Any, size: int, fan_in: int, out: int) -> Any:
    scale = (2 / (size * size * fan_in)) ** 0.5
    return jnp.asarray(random.normal(size=(size, size, fan_in, out)) * scale, jnp.float32)


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def resnet(params: list[Any], relu: Relu) -> Net:
    def run(x: Any) -> Any:
        left = iter(params)
        x = relu(conv(x, next(left), 2))
        for stage, blocks in enumerate(STAGES):
            for block in range(blocks):
                x = bottleneck(x, left, relu, 2 if stage and not block else 1)
        return x.mean((1, 2))[:, 0].sum()

    return run


def bottleneck(x: Any, left: Any, relu: Relu, stride: int) -> Any:
    y = relu(conv(x, next(left)))
    y = relu(conv(y, next(left), stride))
    y = conv(y, next(left)) * 0.5
    return relu(y + conv(x, next(left), stride) * 0.5)


def contenders(params: list[Any]) -> dict[str, Net]:
    net = resnet(params, jax.nn.relu)
    return {
        "plain": net,
        "guided by hand": resnet(params, guided_by_hand),
        **{rule: relurules.apply(net, rule).model for rule in ("guided", "deconv", "redirected")},
    }


def compiled(net: Net, x: Any) -> tuple[Any, dict[str, float]]:
    start = time.process_time()
    lowered = jax.jit(jax.grad(net)).lower(x)
    traced = time.process_time()
    executable = lowered.compile()
    memory = executable.memory_analysis()
    return executable, {
        "trace": traced - start,
        "compile": time.process_time() - traced,
        "temporaries": getattr(memory, "temp_size_in_bytes", 0),
    }


def seconds(executable: Any, x: Any, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        executable(x).block_until_ready()
    return (time.process_time() - start) / repeats


def compile_all(nets: dict[str, Net], x: Any, times: int) -> tuple[dict[str, Any], dict[str, Any]]:
    costs: dict[str, list[dict[str, float]]] = {label: [] for label in nets}
    executables = {}
    for _ in range(times):
        jax.clear_caches()
        for label, net in nets.items():
            executables[label], cost = compiled(net, x)
            costs[label].append(cost)
    middle = {
        label: {key: statistics.median(c[key] for c in found) for key in found[0]}
        for label, found in costs.items()
    }
    return executables, middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compiles", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--side", type=int, default=128)
    arguments = parser.parse_args()
    x = jnp.asarray(np.random.default_rng(1).normal(size=(1, arguments.side, arguments.side, 3)))
    x = x.astype(jnp.float32)
    executables, costs = compile_all(contenders(weights(arguments.width)), x, arguments.compiles)
    np.testing.assert_array_equal(executables["guided"](x), executables["guided by hand"](x))
    times: dict[str, list[float]] = {label: [] for label in executables}
    for _ in range(arguments.rounds):
        for label, executable in executables.items():
            times[label].append(seconds(executable, x, arguments.repeats))
    report(times, costs, arguments.rounds)


def report(times: dict[str, list[float]], costs: dict[str, Any], rounds: int) -> None:
    print(f"jax {jax.__version__}, {rounds} interleaved rounds; ratios to the plain gradient")
    print(f"plain: {min(times['plain']) * 1e3:.1f} ms, {costs['plain']}")
    print(
        f"{'contender':16} {'run':>7} {'min':>7} {'max':>7} {'compile':>8} {'trace':>7} {'temp':>6}"
    )
    for label, values in times.items():
        ratios = [a / b for a, b in zip(values, times["plain"], strict=True)]
        run = (statistics.median(ratios), min(ratios), max(ratios))
        cost = [costs[label][k] / costs["plain"][k] for k in ("compile", "trace", "temporaries")]
        print(f"{label:16} {run[0]:7.3f} {run[1]:7.3f} {run[2]:7.3f} ", end="")
        print(f"{cost[0]:7.2f} {cost[1]:7.2f} {cost[2]:6.3f}")


if __name__ == "__main__":
    main()
