"""The user's `backends=[…]` or `partitioner=` -> partitioners, by the name that reports use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from delegraph.aot.arguments import check_list, for_methods, made_by_name
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner, PartitionerAdapter
from delegraph.plugins.plugin_spec import PluginSpec, plugin_spec
from delegraph.plugins.registry import PluginRegistry

__all__ = ["Backend", "Backends", "checked_backends", "named_partitioners", "partitioners_by_method"]

Backend: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Partitioner"
"""A partitioner, or an installed one by name, `"npu"`, `"npu{optimize=size}"`, `("npu", {"optimize": "size"})`."""

Backends: TypeAlias = "Backend | Sequence[Backend] | Mapping[str, Backend | Sequence[Backend]] | None"
"""One or several in order of priority, for all methods or by method name."""


def partitioners_by_method(
    argument: str, backends: Backends, methods: Collection[str], plugins: PluginRegistry
) -> dict[str, dict[str, Partitioner]]:
    """For every method its partitioners. `argument` is what messages call `backends`.

    Raises `LoweringError` for a key that is not a method, `PluginError` for what cannot be made.
    """
    return _for_methods(argument, backends, methods, plugins, lambda name, own: named_partitioners(name, own, plugins))


def named_partitioners(
    argument: str, backends: Backend | Sequence[Backend] | None, plugins: PluginRegistry
) -> dict[str, Partitioner]:
    """Partitioners by the plug-in's name, or by their class's; the second of a name is `name (2)`."""
    partitioners = made_by_name(argument, _listed(argument, backends), "partitioners", _is_partitioner, plugins)
    return {name: _adapted(partitioner, plugins) for name, partitioner in partitioners.items()}


def checked_backends(backends: Any, methods: Collection[str], plugins: PluginRegistry) -> dict[str, list[Any]]:
    """For every method its backends, as somebody gets them who reads names alone, a quantizer's among them: what the
    options and objects are is told here already. Raises as `partitioners_by_method`.
    """
    return _for_methods("backends", backends, methods, plugins, lambda name, own: _checked(name, own, plugins))


def _checked(argument: str, backends: Iterable[Any] | None, plugins: PluginRegistry) -> list[Any]:
    check_list(argument, backends)
    listed = list(backends or ())
    for backend in map(plugin_spec, listed):
        if not isinstance(backend, PluginSpec):
            named_partitioners(argument, [backend], plugins)
        elif backend.name in plugins.names("partitioners"):
            if backend.options:
                plugins.create("partitioners", backend.name, backend.options)
        elif backend.name not in plugins.names("quantizers"):
            plugins.find("partitioners", backend.name)  # which says what there is
    return listed


_Read = TypeVar("_Read")


def _for_methods(
    argument: str,
    backends: object,
    methods: Collection[str],
    plugins: PluginRegistry,
    read: Callable[[str, Any], _Read],
) -> dict[str, _Read]:
    for key in backends if isinstance(backends, Mapping) else ():
        if key not in methods and key in plugins.names("partitioners"):
            raise LoweringError(
                f"{argument} is a list, in order of priority, or a mapping of such lists by method name: write"
                f' {argument}=[("{key}", {{…}})]'
            )
    return for_methods(argument, backends, methods, read)


def _adapted(partitioner: Any, plugins: PluginRegistry) -> Partitioner:
    """A partitioner of another package's class, as that package's installed adapter has it; any other as it is."""
    if isinstance(partitioner, Partitioner):
        return partitioner
    adapters = plugins.names("partitioner_adapters")
    packages = (cls.__module__.partition(".")[0] for cls in type(partitioner).__mro__)
    package = next((package for package in packages if package in adapters), None)
    if package is None:
        return cast(Partitioner, partitioner)
    adapter: PartitionerAdapter = plugins.load("partitioner_adapters", package)
    return adapter(partitioner)


def _is_partitioner(value: Any) -> bool:
    return hasattr(value, "partition") and not isinstance(value, (str, bytes, type))


def _listed(argument: str, backends: Any) -> Sequence[Backend]:
    if backends is None:
        return ()
    if isinstance(backends, str) or _is_pair(backends) or _is_partitioner(backends):
        return (backends,)
    check_list(argument, backends)
    return list(backends)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Mapping)
