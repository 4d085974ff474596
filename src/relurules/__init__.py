"""relurules: gradient rules for the ReLUs of any model of any framework.

A rule is one pure function of (activation input, incoming gradient); a backend is one way to
put that function behind every ReLU of a model. Importing this package imports no framework.

>>> import relurules
>>> relurules.spec.guided([-1.0, 1.0, 2.0], [1.0, -1.0, 2.0]).tolist()
[0.0, 0.0, 2.0]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relurules import errors, spec
from relurules._applied import Applied, AtStep
from relurules._apply import apply, rule
from relurules._library import filter_fn, leaky
from relurules._plugins import Installed, backends, rules
from relurules._report import STATUSES, Report, Row, Site
from relurules._rule import Rule
from relurules._schedule import Always, Schedule, Until, until
from relurules.errors import (
    BackendNotInstalledError,
    DuplicateNameError,
    InvalidRuleError,
    NoActivationError,
    PluginError,
    PluginLoadWarning,
    RelurulesError,
    ScheduleWarning,
    UncoveredActivationError,
    UncoveredActivationWarning,
    UnknownBackendError,
    UnknownRuleError,
    UnsupportedModelError,
)
from relurules.hookspecs import hookimpl

if TYPE_CHECKING:
    from relurules.maps import attribute, occlusion
    from relurules.pictures import save, show

__version__ = "0.1.0"

_WHEN_USED = {
    "attribute": "relurules.maps",
    "occlusion": "relurules.maps",
    "save": "relurules.pictures",
    "show": "relurules.pictures",
}
"""Where the names are that those who only apply a rule should not wait for."""

__all__ = [
    "STATUSES",
    "Always",
    "Applied",
    "AtStep",
    "BackendNotInstalledError",
    "DuplicateNameError",
    "Installed",
    "InvalidRuleError",
    "NoActivationError",
    "PluginError",
    "PluginLoadWarning",
    "RelurulesError",
    "Report",
    "Row",
    "Rule",
    "Schedule",
    "ScheduleWarning",
    "Site",
    "UncoveredActivationError",
    "UncoveredActivationWarning",
    "UnknownBackendError",
    "UnknownRuleError",
    "UnsupportedModelError",
    "Until",
    "__version__",
    "apply",
    "attribute",
    "backends",
    "errors",
    "filter_fn",
    "hookimpl",
    "leaky",
    "occlusion",
    "rule",
    "rules",
    "save",
    "show",
    "spec",
    "until",
]


def __getattr__(name: str) -> Any:
    if name not in _WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHEN_USED[name]), name)


def __dir__() -> list[str]:
    return __all__
