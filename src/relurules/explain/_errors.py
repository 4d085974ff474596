"""One error for a request that cannot be met, so that the command line can show it plainly."""

from __future__ import annotations

from relurules.errors import RelurulesError


class ExplainError(RelurulesError, ValueError):
    """An image, model, class or unit that does not exist or cannot be read."""
