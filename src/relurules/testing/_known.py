"""Failures that are known, in ibis's three words, each with its reason.

A suite with failures that everybody ignores proves nothing. So what fails is declared by id,
with a reason, and strictly: a declared check that passes is a failure, and so is a declaration
that fits no check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["notimpl", "notyet", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure:
    """A check, or several, of which it is known that a backend fails it.

    Attributes:
        check: A check's id, or a shell pattern on ids (`"*-compiled]"`).
        kind: `"notimpl"`, the backend could and does not; `"notyet"`, the framework cannot at
            present; `"never"`, it makes no sense there.
        reason: One sentence.
        link: Where it is tracked or explained.

    Raises:
        ValueError: No reason, or another kind.

    Example:
        >>> KnownFailure(check="layouts[*]", kind="never", reason="It has no strides.")
        KnownFailure(check='layouts[*]', kind='never', reason='It has no strides.', link='')
    """

    check: str
    kind: Kind
    reason: str
    link: str = ""

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError(f"The known failure {self.check!r} needs a reason.")
        if self.kind not in get_args(Kind):
            allowed = ", ".join(get_args(Kind))
            raise ValueError(f"The kind of a known failure is one of {allowed}; got {self.kind!r}.")

    def covers(self, check_id: str, /) -> bool:
        """Return whether this is about the check of this id."""
        return self.check == check_id or fnmatchcase(check_id, _escaped(self.check))

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f" ({self.link})" if self.link else "")


def check_declared(known: Iterable[KnownFailure], ids: Iterable[str], /) -> None:
    """Raise where a declaration fits no check.

    Raises:
        ValueError: It does not; a check was renamed, or the id is misspelt.
    """
    ids = tuple(ids)
    for one in known:
        if not any(map(one.covers, ids)):
            raise ValueError(
                f"The known failure {one.check!r} fits no check; ids look like {ids[0]!r}."
            )


def _escaped(pattern: str) -> str:
    """Return the pattern with its brackets literal, since ids have brackets."""
    return pattern.replace("[", "[[]")
