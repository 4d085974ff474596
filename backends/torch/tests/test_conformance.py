"""The conformance kit on Torch: the specification's bits, in every mode."""

from __future__ import annotations

import os
import subprocess
import sys

from relurules.testing import Check, parametrize_with_checks

PROFILE = "ci" if "CI" in os.environ else "default"

FLUSHED = """
import torch
from relurules.testing import SubnormalsFlushedError, check_backend
assert torch.set_flush_denormal(True)
try:
    check_backend("torch")
except SubnormalsFlushedError as error:
    print(error)
"""


@parametrize_with_checks("torch", profile=PROFILE)
def test_conformance(check: Check) -> None:
    check()


def test_a_process_in_which_torch_flushes_subnormals_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FLUSHED], capture_output=True, text=True, check=True
    )
    assert "np.float32(1e-45) > 0" in run.stdout
    assert "torch.set_flush_denormal(True) does this" in run.stdout
