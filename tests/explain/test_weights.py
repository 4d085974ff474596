"""Weights fit to the last name and shape, or it is said what does not; no code in them runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from relurules.explain import ExplainError
from relurules.explain._weights import load_weights


def _network(classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Linear(4, classes))


def _numpy(state: dict[str, torch.Tensor], path: Path) -> None:
    np.savez(path, **{name: values.numpy() for name, values in state.items()})


WRITERS: dict[str, Callable[[dict[str, torch.Tensor], Path], None]] = {
    "w.pt": torch.save,
    "w.pth": torch.save,
    "w.safetensors": safetensors.torch.save_file,
    "w.npz": _numpy,
    "w.SAFETENSORS": safetensors.torch.save_file,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_weights(tmp_path: Path, name: str) -> None:
    source, network = _network(), _network()
    WRITERS[name](source.state_dict(), tmp_path / name)
    load_weights(network, tmp_path / name)
    for given, loaded in zip(source.parameters(), network.parameters(), strict=True):
        assert torch.equal(given, loaded)


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_holds_them_beside_other_things(tmp_path: Path, key: str) -> None:
    source, network = _network(), _network()
    torch.save({"epoch": 3, key: source.state_dict()}, tmp_path / "w.pt")
    load_weights(network, tmp_path / "w.pt")
    assert torch.equal(source[0].weight, network[0].weight)


def test_the_count_of_batches_may_be_missing(tmp_path: Path) -> None:
    state = _network().state_dict()
    del state["1.num_batches_tracked"]
    torch.save(dict(state), tmp_path / "w.pt")
    network = _network()
    load_weights(network, tmp_path / "w.pt")
    assert torch.equal(network[0].weight, state["0.weight"])


def _refused(path: Path, network: nn.Module) -> str:
    before = {name: values.clone() for name, values in network.state_dict().items()}
    with pytest.raises(ExplainError) as raised:
        load_weights(network, path)
    for name, values in network.state_dict().items():
        assert torch.equal(values, before[name])
    return str(raised.value)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    state = _network(classes=5).state_dict()
    state["extra.weight"] = state.pop("0.weight")
    torch.save(state, tmp_path / "w.pt")
    message = _refused(tmp_path / "w.pt", _network())
    assert "missing: 0.weight;" in message
    assert "unexpected: extra.weight;" in message
    assert "of another shape: 3.weight is (5, 4), not (2, 4), 3.bias is (5,), not (2,)" in message


def test_long_lists_are_cut_and_counted(tmp_path: Path) -> None:
    torch.save({f"{i}": torch.zeros(1) for i in range(9)}, tmp_path / "w.pt")
    message = _refused(tmp_path / "w.pt", _network())
    assert "unexpected: 0, 1, 2, 3, and 5 more" in message


class _Malicious:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self):
        return (Path.touch, (self.proof,))


def _pickle(thing: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(thing, protocol=2))  # of others torch warns


def _objects(thing: object, path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, np.array([thing], dtype=object))


@pytest.mark.parametrize(
    ("name", "write", "run"),
    [
        ("w.pt", torch.save, lambda path: torch.load(path, weights_only=False)),
        ("w.pkl", _pickle, lambda path: pickle.loads(path.read_bytes())),
        ("w.npz", _objects, lambda path: dict(np.load(path, allow_pickle=True))),
        ("w.npz", _pickle, lambda path: pickle.loads(path.read_bytes())),
        ("w.safetensors", _pickle, lambda path: pickle.loads(path.read_bytes())),
    ],
)
def test_code_in_a_file_is_not_run(tmp_path: Path, name: str, write, run) -> None:
    proof, path = tmp_path / "ran", tmp_path / name
    write(_Malicious(proof), path)
    _refused(path, _network())
    assert not proof.exists()
    run(path)  # the file does hold code that a careless reader runs
    assert proof.exists()


def test_a_whole_model_is_refused_with_what_to_save(tmp_path: Path) -> None:
    torch.save(_network(), tmp_path / "w.pt")
    assert "Save model.state_dict(), not the model" in _refused(tmp_path / "w.pt", _network())


@pytest.mark.parametrize("thing", [[torch.zeros(2)], {"a": 1}, {"state_dict": 3}, torch.zeros(2)])
def test_what_is_no_state_dict(tmp_path: Path, thing: object) -> None:
    torch.save(thing, tmp_path / "w.pt")
    assert "holds no state dict" in _refused(tmp_path / "w.pt", _network())


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors", "w.npz"])
@pytest.mark.parametrize("keep", [0, 30, 0.5])
def test_a_broken_file(tmp_path: Path, name: str, keep: float) -> None:
    path = tmp_path / name
    WRITERS[name](_network().state_dict(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    assert repr(str(path)) in _refused(path, _network())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "There is no file" in _refused(tmp_path / "w.pt", _network())
    assert "There is no file" in _refused(tmp_path, _network())


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
def test_another_kind_of_number_does_not_fit(tmp_path: Path, dtype: torch.dtype) -> None:
    """Copied, integers would be the fractions' floor, and half of a complex number be lost."""
    state = {
        name: values.to(dtype) if values.is_floating_point() else values
        for name, values in _network().state_dict().items()
    }
    torch.save(state, tmp_path / "w.pt")
    message = _refused(tmp_path / "w.pt", _network())
    assert f"of another kind: 0.weight is {dtype}, not torch.float32" in message


def test_another_precision_fits(tmp_path: Path) -> None:
    source, network = _network().half(), _network()
    torch.save(source.state_dict(), tmp_path / "w.pt")
    load_weights(network, tmp_path / "w.pt")
    assert torch.equal(network[0].weight, source[0].weight.float())
