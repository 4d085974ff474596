"""The pages are tests: every `>>>` in them runs, as in `pytest --doctest-glob='*.md' docs`.

Error messages are long and pages are narrow, so an ellipsis may stand for part of an output
and white space counts as one blank.
"""

from __future__ import annotations

import pytest

collect_ignore = ["_griffe.py", "conftest.py"]  # the site's, which tests need not import


def pytest_configure(config: pytest.Config) -> None:
    for flag in ("ELLIPSIS", "NORMALIZE_WHITESPACE"):
        config.addinivalue_line("doctest_optionflags", flag)
