"""Weights that a `.ptd` is to hold -> marked for the backends; kept from those that would write them into their blobs.

    backend takes external weights              it does not
    d = call_delegate(lowered, x)               d = call_delegate(lowered, x, fc_weight)
    blob: "the data under 'fc.weight'"          blob: "the second input"

The mark is ExecuTorch's (`exir/passes/external_constants_pass.py`): `meta["custom"]["delegate_constant_tag"]`, which
outlives export, so that a program may as well come with its marks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.aot.delegation.partition import TAG, Partitioned
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.errors import PluginNotFound
from delegraph.plugins.registry import PluginRegistry

__all__ = ["external_tag", "keep_from_blobs", "mark_external"]

_MARK: Final = "delegate_constant_tag"


def external_tag(node: Node) -> str | None:
    """The name of the `.ptd` that a backend is to put the weight of this placeholder into; None: into its blob."""
    name = node.meta.get("custom", {}).get(_MARK)
    return None if name is None else str(name)


def mark_external(program: ExportedProgram, tag: Callable[[Node], str | None]) -> None:
    """Mark the weights that `tag` gives the name of a `.ptd` for."""
    for node in ResolvedSignature.of(program).constants:
        name = tag(node)
        if name is not None:
            node.meta["custom"] = {**node.meta.get("custom", {}), _MARK: name}


def keep_from_blobs(partitioned: Partitioned, plugins: PluginRegistry) -> None:
    """Make external weights inputs of the delegates of those backends that do not take them through named data."""
    for node in ResolvedSignature.of(partitioned.program).constants:
        if external_tag(node) is not None and TAG in node.meta:
            backend_id = partitioned.tags[node.meta[TAG]].backend_id
            if not _takes_external_weights(backend_id, plugins):
                del node.meta[TAG]


def _takes_external_weights(backend_id: str, plugins: PluginRegistry) -> bool:
    try:
        lowering = find_lowering(backend_id, plugins)[1]
    except PluginNotFound:  # `checks.backends` says so, with the partitioner that asked for it
        return False
    return bool(getattr(lowering, "takes_external_weights", False))
