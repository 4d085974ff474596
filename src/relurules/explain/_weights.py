"""Weights from a file that someone else may have written: only numbers are taken from it.

A pickle can run any code when it is read. So Torch's files are read with `weights_only=True`,
NumPy's without pickle, and safetensors has no code. Weights that half fit would give a network
that is half random, and a picture of it looks like any other; so each name, shape and kind of
number must fit.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from relurules.explain._errors import ExplainError

State: TypeAlias = Mapping[str, Tensor]

_NESTED = ("state_dict", "model_state_dict", "model")
"""Where training scripts keep the state dict, beside the optimiser's."""

_UNUSED = ".num_batches_tracked"
"""Batch norm's count of batches; old files lack it, and evaluation does not read it."""

_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    TypeError,
    zipfile.BadZipFile,
    safetensors.SafetensorError,
)
"""What the readers raise at a file that is broken or of another kind."""

_SHOWN = 4


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a state dict from a file into a network.

    Raises:
        ExplainError: The file is not there, cannot be read, holds no state dict, or does not
            fit: what is missing, unexpected or of another shape is named.
    """
    state = _state(_read(path), path)
    _check_fit(network.state_dict(), state, path)
    network.load_state_dict(state, strict=False)


def _read(path: Path) -> Any:
    if not path.is_file():
        raise ExplainError(f"There is no file {str(path)!r} to read weights from.")
    try:
        return READERS.get(path.suffix.lower(), _read_torch)(path)
    except pickle.UnpicklingError as error:
        raise ExplainError(
            f"{str(path)!r} is no file of Torch's, or holds more than numbers; nothing in it was "
            "run. Save model.state_dict(), not the model."
        ) from error
    except _UNREADABLE as error:
        raise ExplainError(f"{str(path)!r} cannot be read as weights: {error}") from error


def _read_torch(path: Path) -> Any:
    return torch.load(path, weights_only=True, map_location="cpu")


def _read_numpy(path: Path) -> Any:
    # Opened here, since NumPy leaves a broken file open.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _state(found: Any, path: Path) -> State:
    for name in _NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if isinstance(found, Mapping) and all(isinstance(each, Tensor) for each in found.values()):
        return found
    raise ExplainError(
        f"{str(path)!r} holds no state dict: expected a dict from names to tensors, alone or "
        f"under one of {', '.join(_NESTED)}."
    )


def _check_fit(wanted: State, given: State, path: Path) -> None:
    missing = [name for name in wanted if name not in given and not name.endswith(_UNUSED)]
    unexpected = [name for name in given if name not in wanted]
    reshaped = [
        f"{name} is {tuple(given[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    retyped = [
        f"{name} is {given[name].dtype}, not {wanted[name].dtype}"
        for name in wanted
        if name in given and _kind(given[name]) != _kind(wanted[name])
    ]
    kinds = {
        "missing": missing,
        "unexpected": unexpected,
        "of another shape": reshaped,
        "of another kind": retyped,
    }
    found = [f"{kind}: {_some(names)}" for kind, names in kinds.items() if names]
    if found:
        raise ExplainError(
            f"{str(path)!r} does not fit the network. " + "; ".join(found) + ". Is it another "
            "network's, or one with another number of --classes?"
        )


def _kind(values: Tensor) -> tuple[bool, bool]:
    """Return what copying would lose: integers of fractions, reals of complex numbers."""
    return values.is_floating_point(), values.is_complex()


def _some(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more])


READERS: Mapping[str, Callable[[Path], Any]] = MappingProxyType(
    {".npz": _read_numpy, ".safetensors": safetensors.torch.load_file}
)
"""How to read a file, by its suffix; any other is read as Torch's."""
