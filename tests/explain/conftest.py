"""One load of the trained network serves every test here."""

from __future__ import annotations

import pytest

from relurules.explain import Classifier, load_model


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    return load_model()
