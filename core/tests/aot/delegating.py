"""What the tests of delegation share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.export import ExportedProgram

from delegraph.aot.delegation.backends import named_partitioners
from delegraph.aot.delegation.compose import Delegated, compile_partitions, delegate
from delegraph.interfaces import Partitioner
from delegraph.plugins.registry import PluginRegistry

__all__ = ["Delegated", "to_backend"]


def to_backend(
    programs: Mapping[str, ExportedProgram], partitioners: Sequence[Partitioner], plugins: PluginRegistry
) -> Delegated:
    """Cut and compile programs of any dialect, without the pipeline's checks."""
    delegated = delegate(programs, named_partitioners("partitioners", partitioners, plugins))
    return delegated.with_blobs(compile_partitions(delegated, plugins))
