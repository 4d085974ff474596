"""Finding plugins without being broken by one.

pluggy's own `load_setuptools_entrypoints` lets the first broken entry point abort all others
(https://github.com/simonw/llm/issues/1280 shows the effect on a host), and silently skips the
second of two entry points with one name. So the core owns its loader: sorted, each load
guarded, a broken plugin warned about once and raised only when what it provides is asked for.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pluggy

from relurules import _library, hookspecs
from relurules._backend import BackendInfo
from relurules._rule import Bounds, Rule
from relurules.errors import (
    DuplicateNameError,
    PluginError,
    PluginLoadWarning,
    UnknownNameError,
    did_you_mean,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "relurules"
CORE = "relurules"

T = TypeVar("T", Rule, BackendInfo)


@dataclass(frozen=True, slots=True)
class Installed(Generic[T]):
    """A rule or backend that is installed, or a plugin that failed to load.

    Attributes:
        name: The name to use it by; for a failed plugin the name of its entry point.
        distribution: The distribution that provides it.
        version: That distribution's version.
        item: The `Rule` or `BackendInfo`, or None where the plugin failed.
        error: Why the plugin failed, or None.
    """

    name: str
    distribution: str
    version: str
    item: T | None = None
    error: str | None = None

    @property
    def origin(self) -> str:
        """The distribution and its version, as in messages."""
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A plugin that could not be loaded."""

    name: str
    distribution: str
    version: str
    error: BaseException

    @property
    def reason(self) -> str:
        """The error's type and message."""
        return f"{type(self.error).__name__}: {self.error}"

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}"
        return f"plugin {self.name!r} of {origin} failed to load: {self.reason}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that was found, in the order in which it was found."""

    manager: pluggy.PluginManager
    rules: list[Installed[Rule]] = field(default_factory=list)
    backends: list[Installed[BackendInfo]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


@functools.cache
def catalogue() -> Catalogue:
    """Return everything installed; discovers it on the first call."""
    from importlib.metadata import version  # noqa: PLC0415 - a third of our import time

    manager = pluggy.PluginManager("relurules")
    manager.add_hookspecs(hookspecs)
    found = Catalogue(manager)
    core = version(CORE)
    found.rules.extend(Installed(r.name, CORE, core, r) for r in _library.BUILTIN)
    for entry in _entry_points():
        _guard(found, entry, lambda entry=entry: _load(found, entry))  # type: ignore[misc]
    return found


def rules() -> tuple[Installed[Rule], ...]:
    """Return every installed rule, and every plugin that failed to load and why.

    Example:
        >>> [rule.name for rule in rules() if rule.distribution == "relurules"][:3]
        ['standard', 'deconv', 'guided']
    """
    found = catalogue()
    return (*found.rules, *_failed(found))


def backends() -> tuple[Installed[BackendInfo], ...]:
    """Return every installed backend, and every plugin that failed to load and why.

    Example:
        >>> isinstance(backends(), tuple)
        True
    """
    found = catalogue()
    return (*found.backends, *_failed(found))


def find(
    name: str,
    known: Iterable[Installed[T]],
    /,
    *,
    what: str,
    unknown: type[UnknownNameError],
    aliases: Callable[[T], tuple[str, ...]] = lambda item: (),
) -> T:
    """Return the one item called `name`, or `distribution:name`.

    Raises:
        UnknownNameError: Of the class `unknown`; the message has the close matches.
        DuplicateNameError: Two distributions claim the name.
        PluginError: The plugin of this name failed to load.
    """
    table = _claims(known, aliases)
    claims = table.get(name, [])
    own = [one for one in claims if one.distribution == CORE]
    if len(claims) > 1 and not own:
        raise DuplicateNameError(
            f"The {what} name {name!r} is claimed by {' and by '.join(c.origin for c in claims)}. "
            f"Write '{claims[0].distribution}:{name}' to say which, or uninstall one."
        )
    for claim in own or claims:
        if claim.item is not None:
            return claim.item
    _raise_if_broken(name)
    raise unknown(_unknown_message(name, table, what))


def kernel_for(rule: Rule, backend: str, /) -> hookspecs.Kernel | None:
    """Return a plugin's native kernel for this rule and backend, or None."""
    kernel: hookspecs.Kernel | None = catalogue().manager.hook.relurules_kernel(
        rule=rule, backend=backend
    )
    return kernel


def recognise(backend: str, obj: object, /) -> Bounds | None:
    """Return the bounds of a third-party activation that some plugin knows, or None."""
    bounds: Bounds | None = catalogue().manager.hook.relurules_recognise(backend=backend, obj=obj)
    return bounds


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415

    switch = os.environ.get("RELURULES_DISABLE_PLUGINS", "").strip()
    if switch.lower() in {"1", "true", "all", "*"}:
        return
    disabled = {name.strip() for name in switch.split(",") if name.strip()}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (_origin(e), e.name)):
        if not disabled & {entry.name, _origin(entry)[0]}:
            yield entry


def _origin(entry: EntryPoint) -> tuple[str, str]:
    return (entry.dist.name, entry.dist.version) if entry.dist else ("unknown", "unknown")


def _guard(found: Catalogue, entry: EntryPoint, load: Callable[[], None]) -> None:
    try:
        load()
    except (Exception, SystemExit) as error:  # a plugin may raise anything, and must not stop us
        failure = Failure(entry.name, *_origin(entry), error)
        found.failures.append(failure)
        if os.environ.get("RELURULES_STRICT_PLUGINS", "") not in {"", "0"}:
            raise PluginError(f"The {failure}. RELURULES_STRICT_PLUGINS is set.") from error
        warnings.warn(f"The {failure}.", PluginLoadWarning, stacklevel=4)


def _load(found: Catalogue, entry: EntryPoint) -> None:
    plugin = entry.load()
    stated = getattr(plugin, "RELURULES_API", hookspecs.API_VERSION)
    if stated != hookspecs.API_VERSION:
        raise PluginError(
            f"it is written for plugin API {stated}, and this relurules has "
            f"{hookspecs.API_VERSION}; install a matching version of one of them"
        )
    key = f"{_origin(entry)[0]}:{entry.name}"
    found.manager.register(plugin, name=key)
    try:
        found.manager.check_pending()
        rules = _provided(found, "relurules_register_rules", plugin, Rule)
        backends = _provided(found, "relurules_register_backends", plugin, BackendInfo)
    except BaseException:
        found.manager.unregister(name=key)
        raise
    _warn_of_builtin_names(entry, rules)
    found.rules.extend(Installed(r.name, *_origin(entry), r) for r in rules)
    found.backends.extend(Installed(b.name, *_origin(entry), b) for b in backends)


def _warn_of_builtin_names(entry: EntryPoint, rules: list[Rule]) -> None:
    builtin = {name for rule in _library.BUILTIN for name in (rule.name, *rule.aliases)}
    for name in sorted(builtin.intersection(rule.name for rule in rules)):
        origin = _origin(entry)
        warnings.warn(
            f"{origin[0]} {origin[1]} registers a rule {name!r}, which is built in and cannot be "
            f"replaced; use it as '{origin[0]}:{name}'.",
            PluginLoadWarning,
            stacklevel=5,
        )


def _provided(found: Catalogue, hook: str, plugin: object, kind: type[T]) -> list[T]:
    caller = getattr(found.manager.hook, hook)
    implementations = [one for one in caller.get_hookimpls() if one.plugin is plugin]
    items = [item for one in implementations for item in one.function()]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{hook} must return {kind.__name__} objects, got {item!r}")
    return items


def _failed(found: Catalogue) -> Iterator[Installed[Any]]:
    for one in found.failures:
        yield Installed(one.name, one.distribution, one.version, error=one.reason)


def _claims(
    known: Iterable[Installed[T]], aliases: Callable[[T], tuple[str, ...]]
) -> dict[str, list[Installed[T]]]:
    table: dict[str, list[Installed[T]]] = {}
    for one in known:
        item = one.item
        extra: tuple[str, ...] = () if item is None else aliases(item)
        for name in dict.fromkeys((one.name, *extra)):
            table.setdefault(name, []).append(one)
            table.setdefault(f"{one.distribution}:{name}", []).append(one)
    return table


def _raise_if_broken(name: str) -> None:
    for failure in catalogue().failures:
        if name in {failure.name, f"{failure.distribution}:{failure.name}"}:
            raise PluginError(f"The {failure}. Repair or uninstall it.") from failure.error


def _unknown_message(name: str, table: dict[str, list[Any]], what: str) -> str:
    names = [known for known in table if ":" not in known]
    broken = "".join(f" Note: the {failure}." for failure in catalogue().failures)
    return (
        f"No {what} is called {name!r}{did_you_mean(name, names)}. "
        f"Installed: {', '.join(names) or 'none'}.{broken}"
    )
