"""The standard rule against the gradients that frameworks give, and where they disagree.

`standard` is described as the gradient every framework gives. At the edges no two of them
give the same, so a backend that falls back on the native operation would differ from the
specification there. This table says where, for each function recorded, cell by cell: a
framework that changes its mind, or a rule that does, shows as a cell too many or too few.

The causes:

- JAX and TensorFlow ask x > 0, which is False for NaN, and so does Torch's clamp; a rule
  says what it blocks, and NaN passes. Torch's vectorised hardtanh_backward blocks NaN too,
  but not in the last elements of an array, where this record has it (pytorch 195075).
- JAX and TensorFlow read subnormals as zero in comparisons, and flush them in products.
- A gradient that is a product with the mask turns inf into NaN, and what is blocked into
  -0.0 or NaN; a rule selects.
- maximum and clip give half of g to each side of a tie.
"""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import numpy as np
import oracle
import pytest
from oracle import RELU, RELU6, Array, Bounds

from relurules import spec

EDGES = Path(__file__).parent / "data" / "standard_grad_edges.npz"

TINY, MIN = float(np.float32(1e-40)), 2.0**-126
X = {
    "-inf": -math.inf, "-1": -1.0, "-min": -MIN, "-sub": -TINY, "-0": -0.0, "0": 0.0, "sub": TINY,
    "min": MIN, "1": 1.0, "6-": 6 - 2.0**-21, "6": 6.0, "6+": 6 + 2.0**-21, "7": 7.0,
    "inf": math.inf, "nan": math.nan,
}  # fmt: skip
G = {
    "1": 1.0, "-1": -1.0, "-0": -0.0, "nan": math.nan, "inf": math.inf, "-inf": -math.inf,
    "sub": TINY,
}  # fmt: skip

ANY = " ".join(G)
TIMES_ZERO = "-1 -0 nan inf -inf"
HALVED = "1 -1 -0 nan inf -inf"
FLUSHED = "sub"
TIMES_FALSE = "1 -1 inf -inf sub"

Cells = dict[str, str]
"""The x at which a function differs from the rule -> the g with which it does."""

AGREES: Cells = {}
TORCH_CLAMP: Cells = {"nan": ANY}
COMPARES: Cells = {"sub nan": ANY}
JAX_MAXIMUM: Cells = {
    "-inf -1 -min": TIMES_ZERO,
    "-sub -0 0": HALVED,
    "sub": "1 -1 sub",
    "min 1 6- 6 6+ 7 inf": FLUSHED,
    "nan": TIMES_FALSE,
}
JAX_CLIP: Cells = {
    "-inf -1 -min 6+ 7 inf": TIMES_ZERO,
    "-sub -0 0 6": HALVED,
    "sub": "1 -1 sub",
    "min 1 6-": FLUSHED,
    "nan": TIMES_FALSE,
}
TF_RELU: Cells = {
    "-inf -1 -min -sub -0 0": TIMES_ZERO,
    "sub nan": TIMES_FALSE,
    "min 1 6- 6 6+ 7 inf": FLUSHED,
}
TF_RELU6: Cells = {
    "-inf -1 -min -sub -0 0 6 6+ 7 inf": TIMES_ZERO,
    "sub nan": TIMES_FALSE,
    "min 1 6-": FLUSHED,
}
KERAS_RELU5: Cells = {
    "-inf -1 -min -sub -0 0": TIMES_ZERO,
    "sub": TIMES_FALSE,
    "min 1": FLUSHED,
    "nan": ANY,
}

TABLE: dict[str, tuple[Bounds, Cells]] = {
    "torch threshold_backward": (RELU, AGREES),
    "torch hardtanh_backward": (RELU6, AGREES),
    "torch autograd F.relu": (RELU, AGREES),
    "torch autograd F.relu6": (RELU6, AGREES),
    "torch autograd F.hardtanh(0,6)": (RELU6, AGREES),
    "torch autograd F.threshold(0,0)": (RELU, AGREES),
    "torch autograd clamp_min(0)": (RELU, TORCH_CLAMP),
    "torch autograd clamp(0,6)": (RELU6, TORCH_CLAMP),
    "torch autograd maximum(x,0)": (RELU, {"-0 0": ANY}),
    "jax jax.nn.relu": (RELU, COMPARES),
    "jax jax.nn.relu6": (RELU6, COMPARES),
    "jax jit relu": (RELU, COMPARES),
    "jax jit relu6": (RELU6, COMPARES),
    "jax jnp.maximum(x,0)": (RELU, JAX_MAXIMUM),
    "jax jnp.clip(x,0,6)": (RELU6, JAX_CLIP),
    "tf xla|Relu": (RELU, COMPARES),
    "tf xla|Relu6": (RELU6, COMPARES),
    "tf session|Relu": (RELU, TF_RELU),
    "tf session|Relu6": (RELU6, TF_RELU6),
    "tf raw_eager|Relu": (RELU, TF_RELU),
    "tf raw_eager|Relu6": (RELU6, TF_RELU6),
    "tf tape_eager|Relu": (RELU, TF_RELU),
    "tf tape_eager|Relu6": (RELU6, TF_RELU6),
    "tf tf.function|Relu": (RELU, TF_RELU),
    "tf tf.function|Relu6": (RELU6, TF_RELU6),
    "tf keras.activations.relu": (RELU, TF_RELU),
    "tf keras.activations.relu6": (RELU6, TF_RELU6),
    "tf keras.relu(max_value=6)": (RELU6, TF_RELU6),
    "tf keras.relu(max_value=5)": ((0.0, 5.0), KERAS_RELU5),
}


@functools.cache
def recorded() -> dict[str, Array]:
    with np.load(EDGES) as file:
        return dict(file)


def function(key: str) -> str:
    """Return `"jax jit relu"` for `"jax0.10.2|jit relu|vec"`: without version and size."""
    framework, name = key.rsplit("|", 1)[0].split("|", 1)
    return f"{re.split('[0-9]', framework)[0]} {name}"


KEYS = [key for key in recorded() if key not in ("x", "g")]


def test_the_record_is_the_one_described() -> None:
    for name, values in (("x", X), ("g", G)):
        assert oracle.same(recorded()[name], np.array([*values.values()], np.float32))
    assert {function(key) for key in KEYS} == set(TABLE)


@pytest.mark.parametrize("key", KEYS)
def test_native_gradient_differs_exactly_where_listed(key: str) -> None:
    bounds, listed = TABLE[function(key)]
    x, g = (a.copy() for a in np.broadcast_arrays(recorded()["x"][:, None], recorded()["g"]))
    equal = oracle.matches(spec.standard(x, g, bounds=bounds), recorded()[key])
    differing = {(at, of) for i, at in enumerate(X) for j, of in enumerate(G) if not equal[i, j]}
    assert differing == {
        (at, of) for xs, gs in listed.items() for at in xs.split() for of in gs.split()
    }
