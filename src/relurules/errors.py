"""Every error relurules raises, so that a caller can catch one kind and no other.

A saliency map with the wrong gradient looks as convincing as the right one, so each of
these exists to stop a number that nobody asked for. All derive from `RelurulesError`, and
each also from the built-in exception a caller would expect (`LookupError`, `ImportError`,
`TypeError`, `ValueError`). A message says what was found, what was expected, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable


class RelurulesError(Exception):
    """The base of every error of this package."""


class UnknownNameError(RelurulesError, LookupError):
    """A name that no rule or backend has."""


class UnknownRuleError(UnknownNameError):
    """No installed rule has this name."""


class UnknownBackendError(UnknownNameError):
    """No installed backend has this name."""


class DuplicateNameError(RelurulesError, ValueError):
    """Two distributions claim one name, so neither can be used by it."""


class InvalidRuleError(RelurulesError, ValueError):
    """A `Rule` whose declaration contradicts itself."""


class PluginError(RelurulesError, ImportError):
    """A plugin failed to load, and something it should provide was asked for."""


class BackendNotInstalledError(RelurulesError, ImportError):
    """The model belongs to a framework whose backend is not installed."""


class UnsupportedModelError(RelurulesError, TypeError):
    """The object is no model, or one that no rule can be put behind."""


class NoActivationError(RelurulesError, ValueError):
    """A rule was applied and no activation took it: the gradient would be the plain one."""


class UncoveredActivationError(RelurulesError, ValueError):
    """Some activation kept its plain gradient although nobody excluded it."""


class PluginLoadWarning(RuntimeWarning):
    """A plugin could not be loaded; using what it provides raises `PluginError`."""


class UncoveredActivationWarning(UserWarning):
    """What `missing="warn"` gives instead of an error, and the note on gates left alone."""


class ScheduleWarning(UserWarning):
    """A schedule was given and the step never moved, so the rule never ended."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'guided'?"` for the closest of `known`, or an empty string.

    >>> did_you_mean("guidde", ["guided", "deconv"])
    "; did you mean 'guided'?"
    """
    import difflib  # noqa: PLC0415 - only for a message

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
