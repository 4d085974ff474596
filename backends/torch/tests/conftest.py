"""Torch tests share `reference.py`, which no installed package holds, and run on one thread."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import Net


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().double().eval()


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(4, 3, 14, 12, generator=torch.Generator().manual_seed(1)).double()


def pytest_sessionstart() -> None:
    torch.set_num_threads(1)
