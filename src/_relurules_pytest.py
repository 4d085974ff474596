"""The pytest plugin: the options of the conformance suite, and nothing that costs anything.

pytest loads it in every run of every project beside which relurules is installed. So it is a
top-level module and imports nothing of relurules, which would also hide those imports from
coverage (https://github.com/zarr-developers/zarr-python/pull/3847).
"""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add the options of `relurules.testing.suite`."""
    group = parser.getgroup("relurules", "the conformance kit of relurules")
    group.addoption(
        "--relurules-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="a backend to check with `--pyargs relurules.testing.suite`; may be repeated",
    )
    group.addoption(
        "--relurules-profile",
        default="default",
        choices=("default", "ci", "nightly"),
        help="how long the conformance suite searches",
    )
