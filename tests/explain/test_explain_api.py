"""The package's names are real, and importing it is cheap."""

from __future__ import annotations

import pytest

import relurules.explain


def test_every_public_name_is_there() -> None:
    for name in relurules.explain.__all__:
        assert getattr(relurules.explain, name).__module__.startswith("relurules.explain.")
    assert dir(relurules.explain) == sorted(relurules.explain.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'saliency'"):
        _ = relurules.explain.saliency
