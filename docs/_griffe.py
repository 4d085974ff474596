"""Two habits of the docstrings here that Griffe would set as running text.

An example has the heading `Example:`, in the singular, and a short one has none at all.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEADING = re.compile(r"^Example:$", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Makes code of every example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _HEADING.sub("Examples:", obj.docstring.value)
            obj.docstring.value = _DOCTEST.sub("```pycon\n\\g<0>\n```", text)
