"""Where on this thread we are: how deep in a primitive, and in whose custom gradient."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Here(threading.local):
    depth = 0
    owner = ""
    quiet = False


_here = _Here()


def is_below() -> bool:
    """Return whether an observed primitive is being processed."""
    return _here.depth > 0


def owner_in_force() -> str:
    """Return the user's custom gradient inside which we are, or an empty string."""
    return _here.owner


@contextmanager
def below() -> Iterator[None]:
    """Hold while a primitive is processed, whose own primitives are no calls of the model."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


@contextmanager
def inside(owner: str) -> Iterator[None]:
    """Hold while a user's custom gradient runs, which is code of the model again."""
    before = _here.owner, _here.depth
    _here.owner, _here.depth = owner, 0
    try:
        yield
    finally:
        _here.owner, _here.depth = before


def is_quiet() -> bool:
    """Return whether what is met need not be noted, because it is read from a jaxpr after."""
    return _here.quiet


@contextmanager
def quiet() -> Iterator[None]:
    """Hold while a program is recorded that is read afterwards."""
    before, _here.quiet = _here.quiet, True
    try:
        yield
    finally:
        _here.quiet = before
