"""Whether the code that runs is the code for which a rule was applied.

A rule belongs to the thread that applied it, and where that was an asyncio task, to that task
and to those it starts: another task of the loop shares the thread and knows nothing of it. A
task that has ended, such as the cell of a notebook, gives its rule to the thread.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

_applied: ContextVar[tuple[object, ...]] = ContextVar("relurules_torch_applied", default=())


class Here:
    """The thread and the task in which a rule was applied.

    Attributes:
        thread: Has the attribute `on` in the thread of the rule and in no other, which is the
            one form in which Dynamo can ask.
    """

    def __init__(self) -> None:
        self.thread = threading.local()
        self.thread.on = True
        self._id = threading.get_ident()
        self._task = _current_task()
        if self._task is not None:
            _applied.set((*_applied.get(), self))

    @property
    def in_thread(self) -> bool:
        """Whether this is the rule's thread."""
        return threading.get_ident() == self._id

    @property
    def reason(self) -> str:
        """Why this is elsewhere, or "" where it is not."""
        if threading.get_ident() != self._id:
            return "in another thread"
        if self._task is not None and self._is_another_task():
            return "in another asyncio task"
        return ""

    def leave(self) -> None:
        """Forget the task."""
        self._task = None

    def _is_another_task(self) -> bool:
        here = _current_task()
        if here is self._task or self._task is None or self._task.done():
            return False
        return self not in _applied.get()


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
