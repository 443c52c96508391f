"""What the user wrote in `backends=[…]` or `partitioner=` -> partitioners, by the name that reports use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from delegraph.aot.arguments import check_list, check_method_names
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.registry import PluginRegistry
from delegraph.plugins.selection import Selected, selected

__all__ = ["Backend", "Backends", "named_partitioners", "partitioners_by_method"]

Backend: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Partitioner"
"""An installed partitioner by name, `"npu"`, `"npu{optimize=3}"`, `("npu", {"optimize": 3})`, or a partitioner."""

Backends: TypeAlias = "Backend | Sequence[Backend] | Mapping[str, Backend | Sequence[Backend]] | None"
"""One or several in order of priority, for all methods or by method name."""


def partitioners_by_method(
    argument: str, backends: Backends, methods: Collection[str], plugins: PluginRegistry
) -> dict[str, dict[str, Partitioner]]:
    """For every method its partitioners. `argument` is what messages call `backends`.

    Raises `LoweringError` for a key that is not a method, `PluginError` for what cannot be made.
    """
    if not isinstance(backends, Mapping):
        return dict.fromkeys(methods, named_partitioners(argument, backends, plugins))
    check_method_names(argument, backends, methods)
    return {method: named_partitioners(f"{argument}[{method!r}]", backends.get(method), plugins) for method in methods}


def named_partitioners(
    argument: str, backends: Backend | Sequence[Backend] | None, plugins: PluginRegistry
) -> dict[str, Partitioner]:
    """Partitioners by the plug-in's name, or by their class's; the second of a name is `name (2)`."""
    named: dict[str, Partitioner] = {}
    for one in _listed(argument, backends):
        chosen = selected(one)
        if isinstance(chosen, Selected):
            partitioner = plugins.create("partitioners", chosen.name, chosen.options)
            named[_unique(chosen.name, named)] = partitioner
        elif hasattr(chosen, "partition"):
            named[_unique(type(chosen).__name__, named)] = chosen
        else:
            raise LoweringError(
                f"{argument} has {chosen!r}; it takes names of installed partitioners, (name, options) pairs and"
                " partitioners"
            )
    return named


def _listed(argument: str, backends: Any) -> Sequence[Backend]:
    if backends is None:
        return ()
    if isinstance(backends, str) or _is_pair(backends) or hasattr(backends, "partition"):
        return (backends,)
    check_list(argument, backends)
    return list(backends)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Mapping)


def _unique(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name (2)`, `name (3)` … if it is taken."""
    known, number, unique = set(taken), 1, name
    while unique in known:
        number += 1
        unique = f"{name} ({number})"
    return unique
