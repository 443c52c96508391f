"""The user's `backends=[…]` or `partitioner=` -> partitioners, by the name that reports use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard, TypeVar, cast

from delegraph.aot.arguments import adapter_of, for_methods, made_by_name, read_plugins
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner, PartitionerAdapter
from delegraph.plugins.adaptation import adapted
from delegraph.plugins.hookspecs import group_named
from delegraph.plugins.plugin_spec import PluginName, PluginSpec
from delegraph.plugins.registry import PluginRegistry
from delegraph.plugins.validation import violations

__all__ = [
    "Backend",
    "Backends",
    "adapted_partitioner",
    "as_list",
    "checked_backends",
    "named_partitioners",
    "partitioners_by_method",
]

Backend: TypeAlias = "PluginName | Partitioner"
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
    chosen = read_plugins(argument, as_list(backends))
    partitioners = made_by_name(argument, chosen, "partitioners", _is_partitioner, plugins)
    return {name: adapted_partitioner(partitioner, plugins) for name, partitioner in partitioners.items()}


def checked_backends(
    backends: Iterable[Backend] | Mapping[str, Iterable[Backend]] | None,
    methods: Collection[str],
    plugins: PluginRegistry,
) -> dict[str, list[PluginSpec | Partitioner]]:
    """For every method its backends, as somebody gets them who reads names alone, a quantizer's among them: what the
    options and objects are is told here already. Raises as `partitioners_by_method`.
    """
    return _for_methods("backends", backends, methods, plugins, lambda name, own: _checked(name, own, plugins))


def _checked(
    argument: str, backends: Iterable[Backend] | None, plugins: PluginRegistry
) -> list[PluginSpec | Partitioner]:
    chosen = read_plugins(argument, backends)
    for backend in chosen:
        if not isinstance(backend, PluginSpec):
            named_partitioners(argument, [backend], plugins)
        elif backend.name in plugins.names("partitioners"):
            if backend.options:
                plugins.create("partitioners", backend.name, backend.options)
        elif backend.name not in plugins.names("quantizers"):
            plugins.find("partitioners", backend.name)  # which says what there is
    return chosen


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


def adapted_partitioner(partitioner: Partitioner, plugins: PluginRegistry) -> Partitioner:
    """A partitioner of another package's class, as that package's installed adapter has it; of no class of ours, one
    that has all that is called. Raises `LoweringError` for one that lacks something."""
    if isinstance(partitioner, Partitioner):
        return partitioner
    adapter: PartitionerAdapter | None = adapter_of(partitioner, "partitioner_adapters", plugins)
    if adapter is None:
        product = group_named("partitioners").product
        assert product is not None
        if faults := violations(product, partitioner):
            raise LoweringError(f"partitioner {type(partitioner).__name__}: {'; '.join(faults)}")
        return cast(Partitioner, adapted(product, partitioner))
    return adapter(partitioner)


def _is_partitioner(value: object) -> TypeGuard[Partitioner]:
    """By what it can do: ExecuTorch's own are of no class of ours."""
    return hasattr(value, "partition") and not isinstance(value, (str, bytes, type))


def as_list(backends: Backend | Sequence[Backend] | None) -> list[Backend]:
    """One backend, several or none, as several."""
    return list(backends or ()) if _are_several(backends) else [cast(Backend, backends)]


def _are_several(backends: object) -> TypeGuard[Iterable[Backend] | None]:
    """Whether that is not one backend; a tuple is one if it is a name with its options."""
    if isinstance(backends, tuple):
        return not (len(backends) == 2 and isinstance(backends[0], str) and isinstance(backends[1], Mapping))
    return not (isinstance(backends, (str, PluginSpec)) or _is_partitioner(backends))
