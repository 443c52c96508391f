"""What the tests of delegation share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.export import ExportedProgram

from delegraph.aot.delegation.backends import named_partitioners
from delegraph.aot.delegation.compose import Delegated, compile_partitions, delegate
from delegraph.aot.delegation.refusals import Refusal, until_compiled
from delegraph.interfaces import Partitioner
from delegraph.plugins.registry import PluginRegistry

__all__ = ["Delegated", "to_backend"]


def to_backend(
    programs: Mapping[str, ExportedProgram], partitioners: Sequence[Partitioner], plugins: PluginRegistry
) -> Delegated:
    """Cut and compile programs of any dialect, without the pipeline's checks."""
    named = named_partitioners("partitioners", partitioners, plugins)

    def attempt(refusals: tuple[Refusal, ...]) -> Delegated:
        delegated = delegate(programs, named, refusals=refusals)
        return delegated.with_blobs(compile_partitions(delegated, plugins, refusals))

    return until_compiled(attempt)
