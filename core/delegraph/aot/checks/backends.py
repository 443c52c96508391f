"""Partitions -> nothing, or an error: the backends that they go to have to be installed before any of them compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delegraph.aot.delegation.cut import CutPartition
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.errors import PluginNotFound
from delegraph.plugins.registry import PluginRegistry

__all__ = ["check_backends"]


def check_backends(partitions: Mapping[str, Sequence[CutPartition]], plugins: PluginRegistry) -> None:
    """Raise a `PluginError` for a backend id that nobody offers, naming the partitioner that asked for it."""
    asked = {part.lowered_module.backend_id: part.partitioner for parts in partitions.values() for part in parts}
    for backend_id, partitioner in asked.items():
        try:
            find_lowering(backend_id, plugins)
        except PluginNotFound as error:
            raise PluginNotFound(f"partitioner {partitioner} asked for the backend {backend_id!r}: {error}") from None
