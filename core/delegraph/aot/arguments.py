"""An argument that a user gave -> what is meant by it, or an error that says what it should have been."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import FunctionType
from typing import Any, TypeGuard, TypeVar

from delegraph.errors import LoweringError
from delegraph.plugins.discovery import did_you_mean
from delegraph.plugins.plugin_spec import PluginName, PluginSpec, plugin_spec
from delegraph.plugins.registry import PluginRegistry

__all__ = [
    "adapter_of",
    "check_list",
    "check_method_names",
    "for_methods",
    "made_by_name",
    "read_plugins",
    "unique_name",
]

_T = TypeVar("_T")
_Read = TypeVar("_Read")


def check_list(name: str, value: object) -> None:
    """Raise `LoweringError` if `value`, the argument called `name`, is a string or a lone object where a list is meant.

    None stands for "not given".
    """
    if value is None or (hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Mapping))):
        return
    shown = repr(value) if isinstance(value, (str, bytes)) else f"<{type(value).__name__}>"
    raise LoweringError(f"{name} is {shown}, but it takes a list: write [{shown}]")


def check_method_names(name: str, by_method: Mapping[str, object], methods: Collection[str]) -> None:
    """Raise `LoweringError` if a key of `by_method`, the argument called `name`, is not among `methods`."""
    for key in by_method:
        if key not in methods:
            raise LoweringError(
                f"{name} has an entry for {key!r}, but the methods are {', '.join(sorted(methods)) or '(none)'}"
                f"{did_you_mean(str(key), methods)}"
            )


def read_plugins(name: str, entries: Iterable[PluginName | _T] | None) -> list[PluginSpec | _T]:
    """The argument called `name`, a list of plug-ins by name and of objects, as everything behind takes it.

    Raises `LoweringError` as `check_list`, and `PluginError` as `plugin_spec`.
    """
    check_list(name, entries)
    return [plugin_spec(entry) for entry in entries or ()]


def for_methods(
    name: str, value: object, methods: Collection[str], read: Callable[[str, Any], _Read]
) -> dict[str, _Read]:
    """For every method, what `read` makes of its own value, which it may call by the name that it gets: of `value`, the
    argument called `name`, or of what that has for the method, None where there is none. Raises `LoweringError` for a
    key that is not a method."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(methods, read(name, value))
    check_method_names(name, value, methods)
    return {method: read(f"{name}[{method!r}]", value.get(method)) for method in methods}


def made_by_name(
    name: str,
    entries: Iterable[PluginSpec | object],
    group: str,
    fits: Callable[[object], TypeGuard[_T]],
    plugins: PluginRegistry,
) -> dict[str, _T]:
    """The objects in `entries`, the argument called `name`, and those of `group` that it names, made with options.

    In order, by the plug-in's name or the object's class; the second of a name is `name (2)`. Raises `LoweringError`
    for an object that does not fit, `PluginError` for what cannot be made.
    """
    by_name: dict[str, _T] = {}
    for chosen in entries:
        if isinstance(chosen, PluginSpec):
            by_name[unique_name(chosen.name, by_name)] = plugins.create(group, chosen.name, chosen.options)
        elif fits(chosen):
            by_name[unique_name(type(chosen).__name__, by_name)] = chosen
        else:
            raise LoweringError(
                f"{name} has {chosen!r}; it takes names of installed {group}, (name, options) pairs and {group}"
            )
    return by_name


def unique_name(name: str, taken: Collection[str]) -> str:
    """`name`, or `name (2)`, `name (3)` … if it is taken."""
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name} ({number})"
    return unique


def adapter_of(value: object, group: str, plugins: PluginRegistry) -> Any:
    """The adapter, of `group`, of the package that has the function `value`, its class or one that this is derived
    from; None where nobody adapts these."""
    known = plugins.names(group)
    homes = (kind.__module__ for kind in (value, *type(value).__mro__) if isinstance(kind, (type, FunctionType)))
    package = next((package for home in homes if (package := home.partition(".")[0]) in known), None)
    return None if package is None else plugins.load(group, package)
