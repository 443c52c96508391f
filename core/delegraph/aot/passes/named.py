"""The user's passes, some by name -> passes: those that are named are made by their plug-ins."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeGuard

from torch.fx.passes.infra.pass_manager import PassManager

from delegraph.aot.arguments import adapter_of, for_methods, made_by_name, read_plugins
from delegraph.aot.config import Passes
from delegraph.interfaces.graph_pass import GraphPass, PassAdapter
from delegraph.plugins.registry import PluginRegistry

__all__ = ["passes_by_method"]


def passes_by_method(
    argument: str, passes: Passes | None, methods: Collection[str], plugins: PluginRegistry
) -> dict[str, list[GraphPass]]:
    """For every method its passes, in order. `argument` is what messages call `passes`.

    Raises `LoweringError` for a key that is not a method or what is not a pass, `PluginError` for a name.
    """

    def made(name: str, own: Any) -> list[GraphPass]:
        chosen = made_by_name(name, read_plugins(name, own), "passes", _is_pass, plugins).values()
        return [_adapted(graph_pass, plugins) for graph_pass in chosen]

    return for_methods(argument, [passes] if isinstance(passes, PassManager) else passes, methods, made)


def _is_pass(value: object) -> TypeGuard[GraphPass]:
    return callable(value)


def _adapted(graph_pass: GraphPass, plugins: PluginRegistry) -> GraphPass:
    """A pass of another package, as that package's installed adapter has it."""
    adapter: PassAdapter | None = adapter_of(graph_pass, "pass_adapters", plugins)
    return graph_pass if adapter is None else adapter(graph_pass)
