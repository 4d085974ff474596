"""Everything an author of a backend needs, in one import.

Users of relurules do not need this module. It is public and versioned with the plugin API
(`relurules.hookspecs.API_VERSION`), so that a backend in another repository can rely on it.
"""

from __future__ import annotations

from relurules._backend import Arrays, Attachment, Backend, BackendInfo
from relurules._coverage import judge, judge_gates
from relurules._library import STANDARD
from relurules._plan import Decision, Plan
from relurules._plugins import kernel_for, recognise
from relurules._report import Report, Row, Site
from relurules._rule import Bounds, GradientOf, Rule, evaluate, flips, kind_of
from relurules._state import State

__all__ = [
    "STANDARD",
    "Arrays",
    "Attachment",
    "Backend",
    "BackendInfo",
    "Bounds",
    "Decision",
    "GradientOf",
    "Plan",
    "Report",
    "Row",
    "Rule",
    "Site",
    "State",
    "evaluate",
    "flips",
    "judge",
    "judge_gates",
    "kernel_for",
    "kind_of",
    "recognise",
]
