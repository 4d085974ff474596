"""Maps of what an output rests on, computed alike for every framework.

Nothing here knows a framework: the arrays, the gradient and the model's call are the backend's
(`relurules.backend.Arrays`), so that one map is one piece of code, and the same numbers.
"""

from __future__ import annotations

from relurules.maps._attribute import attribute
from relurules.maps._call import Call
from relurules.maps._occlusion import occlusion
from relurules.maps._target import Target

__all__ = ["Call", "Target", "attribute", "occlusion"]
