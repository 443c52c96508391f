"""ExecuTorch's `executorch.exir.backend.canonical_partitioners.all_node_partitioner`."""

from __future__ import annotations

from collections.abc import Sequence

from torch._export.utils import is_buffer, is_lifted_tensor_constant, is_param
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import CompileSpec, DelegationSpec, Partitioner, PartitionResult

__all__ = ["AllNodePartitioner", "is_non_tensor_placeholder"]


def is_non_tensor_placeholder(node: Node, ep: ExportedProgram) -> bool:
    """Whether `node` is an input of the program, and not a parameter, buffer or constant of the model."""
    return node.op == "placeholder" and not any(
        kind(ep, node) for kind in (is_param, is_buffer, is_lifted_tensor_constant)
    )


class AllNodePartitioner(Partitioner):
    """Gives every node of the method's own graph to one backend, whatever it is; control flow goes as a whole."""

    def __init__(self, backend_id: str, compile_specs: Sequence[CompileSpec]) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(backend_id, compile_specs)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag all of it with the backend's id."""
        tag = self.delegation_spec.backend_id
        for node in exported_program.graph.nodes:
            if node.op != "output" and not is_non_tensor_placeholder(node, exported_program):
                node.meta["delegation_tag"] = tag
        return PartitionResult(exported_program, {tag: self.delegation_spec})
