"""Torch tests share `reference.py`, which no installed package holds, and run on one thread."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)


def pytest_sessionstart() -> None:
    torch.set_num_threads(1)
