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
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# No check of speed: a busy machine is no reason to fail.
COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("dev", max_examples=100, **COMMON)
settings.register_profile("ci", max_examples=500, derandomize=True, print_blob=True, **COMMON)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if "CI" in os.environ else "dev")
)


@pytest.fixture(scope="session", autouse=True)
def _numbers_are_ieee() -> None:
    tiny = np.array([2.0**-1000])
    kept = {
        "np.float32(1e-45) > 0": np.float32(1e-45) > 0,
        "2.0**-1073 != 0": math.ldexp(1.0, -1073) != 0,
        "np.array([2.0**-1000]) * 2.0**-73 != 0": (tiny * 2.0**-73)[0] != 0,
    }
    lost = [operation for operation, survives in kept.items() if not survives]
    if lost:
        pytest.exit(
            f"Subnormals are flushed to zero in this process (false: {'; '.join(lost)}), so the "
            "specification cannot be trusted. Some imported library was built with -ffast-math "
            "or changed the mode of the processor, as torch.set_flush_denormal(True) does.",
            returncode=3,
        )
