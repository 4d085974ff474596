"""The examples import each other as scripts in one folder do, so that folder must be found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks so small are slower on several threads, much so while other tests run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
