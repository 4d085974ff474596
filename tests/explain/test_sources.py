"""A network is built as it was published, from whichever source, and nothing is downloaded."""

from __future__ import annotations

import re
import socket
import sys
import urllib.request
from pathlib import Path

import pytest
import torch
import torchvision

from relurules.explain import ExplainError, load_model

SMALL = "torchvision:squeezenet1_1"
TINY = "timm:test_resnet.r160_in1k"

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))

    def forward(self, x):
        return self.net(x)

ready = Net(1000)
needs = lambda classes: Net(classes)
number = 3

def pair():
    return nn.Identity()

def no_network():
    return 3

class Large(Net):
    def forward(self, x):
        assert x.shape[-1] == 32, "only 32 pixels"
        return super().forward(x)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module in the current folder, which is not on the path."""
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return name


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("something was to be downloaded")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.mark.parametrize(("name", "size"), [(SMALL, 224), (TINY, 160)])
def test_a_library_gives_size_and_normalisation_and_no_weights(name: str, size: int) -> None:
    model = load_model(name)
    assert model.size == size
    assert len(model.labels) == 1000
    assert model.labels[285] == "Egyptian cat"
    assert "RANDOM WEIGHTS" in model.warning
    assert not any(module.training for module in model.network.modules())


def test_the_normalisation_is_that_of_the_published_weights() -> None:
    pixels = torch.rand(3, 224, 224)
    published = torchvision.models.get_model_weights("squeezenet1_1").DEFAULT.transforms()
    wanted = torchvision.transforms.functional.normalize(pixels, published.mean, published.std)
    torch.testing.assert_close(load_model(SMALL).normalise(pixels), wanted)


def test_weights_end_the_warning_and_are_used(tmp_path: Path) -> None:
    source = torchvision.models.squeezenet1_1(weights=None, num_classes=7)
    torch.save(source.state_dict(), tmp_path / "w.pt")
    model = load_model(SMALL, weights=tmp_path / "w.pt", classes=7)
    assert model.warning == ""
    assert model.labels[3] == "output 3"
    inputs = torch.rand(1, 3, 64, 64)
    assert torch.equal(model.network(inputs), source.eval()(inputs))


def test_weights_of_another_number_of_classes_are_named(tmp_path: Path) -> None:
    source = torchvision.models.squeezenet1_1(weights=None, num_classes=7)
    torch.save(source.state_dict(), tmp_path / "w.pt")
    with pytest.raises(ExplainError, match=r"classifier.1.weight is \(7, .*--classes"):
        load_model(SMALL, weights=tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["Net", "ready"])
def test_a_callable_or_a_network_of_the_current_folder(module: str, name: str) -> None:
    model = load_model(f"{module}:{name}", size=8)
    assert model.warning == ""
    assert model.size == 8
    assert model.mean == (0.485, 0.456, 0.406)
    assert model.labels[1] == {"Net": "output 1", "ready": "goldfish"}[name]


def test_size_and_normalisation_can_be_said(module: str) -> None:
    model = load_model(f"{module}:Net", size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert torch.equal(model.normalise(torch.ones(3, 2, 2)), torch.full((3, 2, 2), 2.0))
    with pytest.raises(ExplainError, match="must be above 0"):
        load_model(f"{module}:Net", std=(1.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "torchvision:resnet81",
            "torchvision has no classifier named 'resnet81'; did you mean 'resnet",
        ),
        ("torchvision:fasterrcnn_resnet50_fpn", "torchvision has no classifier named"),
        ("timm:resnet81", "timm has no model named 'resnet81'; did you mean 'resnet"),
        ("timm:hf-hub:someone/something", "timm has no model named 'hf-hub:someone/something'"),
        ("torchvison:resnet18", "no module 'torchvison' to import; did you mean 'torchvision'"),
        ("MODULE:Nett", "has no 'Nett'; did you mean 'Net'"),
        ("MODULE:number", "is a int; expected a callable"),
        ("MODULE:needs", "called without arguments, but needs classes"),
        ("MODULE:no_network", "gave a int; expected a torch.nn.Module"),
        ("MODULE:pair", r"gives \(1, 3, 224, 224\) for one picture; expected scores"),
        ("MODULE:Large", "does not take a picture of 3 colours and 224 x 224.*only 32 pixels"),
        ("MODULE:", "lacks a part; expected module:callable"),
        (":Net", "lacks a part; expected module:callable"),
    ],
)
def test_a_model_that_is_none(module: str, name: str, message: str) -> None:
    with pytest.raises(ExplainError, match=message):
        load_model(name.replace("MODULE", module))


@pytest.mark.parametrize("name", ["efficientnet_lite0", "MODULE:Net"])
def test_classes_are_for_libraries(module: str, name: str) -> None:
    with pytest.raises(ExplainError, match=re.escape("--classes is for torchvision and timm")):
        load_model(name.replace("MODULE", module), classes=3)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_published_weights_see_the_colours_they_were_trained_on(name: str) -> None:
    """torchvision sets `transform_input` with its own weights only."""
    assert load_model(f"torchvision:{name}").network.transform_input
