"""What the page speaks of: an exported program, two partitioners for it, and one of its nodes."""

import torch
from torch.export import ExportedProgram, export  # noqa: F401

from delegraph_executorch.exir import to_edge
from delegraph_executorch.exir.backend.backend_api import to_backend  # noqa: F401
from delegraph_executorch.exir.backend.partitioner import DelegationSpec, Partitioner  # noqa: F401
from delegraph_partitioners.capability import CapabilityBasedPartitioner


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + torch.cos(x)


def _partitioner(operator: str) -> object:
    wanted = getattr(torch.ops.aten, operator).default
    return CapabilityBasedPartitioner("CpuBackend", lambda node: None if node.target == wanted else "another's")


def backend_1_parititioner() -> object:
    return _partitioner("sin")


def backend_2_parititioner() -> object:
    return _partitioner("cos")


exported_program = to_edge(export(_Model(), (torch.ones(2),))).exported_program()
graph = exported_program.graph_module.graph
node = next(n for n in graph.nodes if n.op == "call_function")
