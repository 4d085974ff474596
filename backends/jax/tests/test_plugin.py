"""Which models are JAX's, asked without importing it."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import pytest
from flax import nnx

import relurules_jax
from relurules_jax import _owns

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "model",
    [
        jax.nn.relu,
        jax.jit(jax.nn.relu),
        lambda x: x,
        nn.Dense(2),
        nnx.Linear(2, 2, rngs=nnx.Rngs(0)),
        eqx.nn.Linear(2, 2, key=KEY),
        hk.transform(lambda x: x),
        hk.transform_with_state(lambda x: x),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_is_owned(model: Any) -> None:
    assert _owns(model)


def test_what_is_not_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        def __call__(self) -> None: ...

    class Mine(Module):
        pass

    monkeypatch.setitem(sys.modules, "torch.nn", types.SimpleNamespace(Module=Module))
    assert not _owns(Mine())
    assert not _owns(3)
    Mine.__module__ = "tensorflow.python.eager"
    monkeypatch.setitem(sys.modules, "torch.nn", types.SimpleNamespace())
    assert not _owns(Mine())


def test_discovery_imports_no_framework() -> None:
    code = "import sys, relurules; relurules.backends(); print('jax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_the_public_names() -> None:
    assert relurules_jax.__all__ == ["activation", "apply"]
