"""The user's passes, some by name -> passes: those that are named are made by their plug-ins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeGuard

from torch.fx.passes.infra.pass_manager import PassManager

from delegraph.aot.arguments import check_method_names, made_by_name, read_plugins
from delegraph.aot.config import Pass, Passes
from delegraph.interfaces.graph_pass import GraphPass
from delegraph.plugins.registry import PluginRegistry

__all__ = ["passes_by_method"]


def passes_by_method(
    argument: str, passes: Passes | None, methods: Collection[str], plugins: PluginRegistry
) -> dict[str, list[GraphPass]]:
    """For every method its passes, in order. `argument` is what messages call `passes`.

    Raises `LoweringError` for a key that is not a method or what is not a pass, `PluginError` for a name.
    """
    if isinstance(passes, Mapping):
        check_method_names(argument, passes, methods)
        return {m: _made(f"{argument}[{m!r}]", passes.get(m), plugins) for m in methods}
    own = _made(argument, [passes] if isinstance(passes, PassManager) else passes, plugins)
    return dict.fromkeys(methods, own)


def _made(argument: str, passes: Iterable[Pass] | None, plugins: PluginRegistry) -> list[GraphPass]:
    return list(made_by_name(argument, read_plugins(argument, passes), "passes", _is_pass, plugins).values())


def _is_pass(value: object) -> TypeGuard[GraphPass]:
    return callable(value)
