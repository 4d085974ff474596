"""How the core's tests run: the same draws in CI each time, and on a machine that can count.

Test modules share `oracle.py`, which no installed package holds, so this directory is put on the
path, whichever import mode pytest is told to use.

Some libraries switch the processor to flush subnormals to zero. Then the specification and
its oracle are both wrong, in the same way, so such a process is refused before any test.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("dev", max_examples=100, deadline=None, database=None)
settings.register_profile(
    "ci", max_examples=500, deadline=None, database=None, derandomize=True, print_blob=True
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if "CI" in os.environ else "dev")
)


@pytest.fixture(scope="session")
def subnormals_lost() -> list[str]:
    """The operations that flush subnormals in this process."""
    kept = {
        "np.float32(1e-45) > 0": bool(np.float32(1e-45) > 0),
        "2.0**-1073 != 0": math.ldexp(1.0, -1073) != 0,
        "np.array([2.0**-1000]) * 2.0**-73": bool((np.array([2.0**-1000]) * 2.0**-73)[0] != 0),
        "float32 subnormal sum": bool(np.sum(np.full(3, 1e-45, np.float32)) > 0),
    }
    return [operation for operation, survives in kept.items() if not survives]


@pytest.fixture(scope="session", autouse=True)
def _numbers_are_ieee(subnormals_lost: list[str]) -> None:
    if subnormals_lost:
        pytest.exit(
            f"Subnormals are flushed to zero in this process ({'; '.join(subnormals_lost)}), so "
            "the specification cannot be trusted. Some imported library was built with "
            "-ffast-math, or called torch.set_flush_denormal(True).",
            returncode=3,
        )
