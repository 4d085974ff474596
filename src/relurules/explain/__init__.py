"""Pictures of what the rules do to a real network, without a download.

A rule is believed when its picture is seen. The weights and photographs used here travel
inside packages or are files of the user's own, so everything runs offline. The names below are
imported when they are first used: `import relurules.explain` must not cost the seconds that
importing torch takes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relurules.explain._errors import ExplainError
    from relurules.explain._images import find_images, load_image, samples
    from relurules.explain._maps import Explanation, explain, gini, magnitude
    from relurules.explain._models import Classifier, load_model
    from relurules.explain._pictures import maps_picture, wake_picture
    from relurules.explain._wake import Visualisation, wake

_HOME = {
    "Classifier": "_models",
    "ExplainError": "_errors",
    "Explanation": "_maps",
    "Visualisation": "_wake",
    "explain": "_maps",
    "find_images": "_images",
    "gini": "_maps",
    "load_image": "_images",
    "load_model": "_models",
    "magnitude": "_maps",
    "maps_picture": "_pictures",
    "samples": "_images",
    "wake": "_wake",
    "wake_picture": "_pictures",
}

__all__ = [
    "Classifier",
    "ExplainError",
    "Explanation",
    "Visualisation",
    "explain",
    "find_images",
    "gini",
    "load_image",
    "load_model",
    "magnitude",
    "maps_picture",
    "samples",
    "wake",
    "wake_picture",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
