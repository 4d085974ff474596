"""What a run of the kit leaves behind: plain data that a page, a badge or a diff can read."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

import relurules
from relurules.testing._case import BackendCase
from relurules.testing._catalogue import find_profile
from relurules.testing._check import Profile
from relurules.testing._guard import lost_subnormals
from relurules.testing._run import CheckResult

SCHEMA = 1


def record(
    case: BackendCase, results: Iterable[CheckResult], /, *, profile: str | Profile = "default"
) -> dict[str, Any]:
    """Return the results with everything on which they depend, ready for JSON.

    Example:
        >>> from relurules.testing import check_backend, find_case
        >>> results = check_backend("torch", only=lambda id: id.startswith("empty_arrays"))
        >>> record(find_case("torch"), results)["counts"]["passed"]
        28
    """
    results = tuple(results)
    chosen = find_profile(profile)
    return {
        "schema": SCHEMA,
        "backend": case.name,
        "versions": _versions(case),
        "platform": f"{platform.system()} {platform.machine()}",
        "profile": {
            "name": chosen.name,
            "examples": chosen.examples,
            "seed": chosen.seed,
        },
        "subnormals": "flushed" if lost_subnormals() else "ieee",
        "compared": sum(result.compared for result in results),
        "seconds": round(sum(result.seconds for result in results), 1),
        "counts": dict(Counter(result.status for result in results)),
        "results": [result.to_dict() for result in results],
    }


def _versions(case: BackendCase) -> dict[str, str]:
    return {
        "relurules": relurules.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **case.versions,
    }
