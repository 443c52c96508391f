"""Which nodes the NPU takes: each run of neighbouring nodes that it can do becomes one delegate.

Nodes that follow one another in the graph's topological order can always be cut out together: no path leads out of a
run and back into it.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from acme_npu.aot.preprocess import OPCODES
from delegraph.interfaces import DelegationSpec, Partitioner, PartitionResult

BACKEND_ID = "AcmeNpu"


class AcmePartitioner(Partitioner):
    """Takes additions, products and rectifiers of float32 tensors of one static shape."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        declined: dict[str, str] = {}
        in_run = False
        for node in exported_program.graph.nodes:
            if node.op != "call_function":
                continue
            reason = _why_not(node)
            if reason:
                declined[node.name] = reason
                in_run = False
                continue
            if not in_run:
                tag = f"acme_{len(tags)}"
                tags[tag] = DelegationSpec(BACKEND_ID)
            node.meta["delegation_tag"] = tag
            in_run = True
        return PartitionResult(exported_program, tags, declined)


def acme_partitioner() -> AcmePartitioner:
    """The factory behind the entry point; the NPU has no options."""
    return AcmePartitioner()


def _why_not(node: Node) -> str:
    if "delegation_tag" in node.meta:
        return "another partitioner took it"
    if node.target not in OPCODES:
        return f"the NPU has no {node.target}"
    if node.kwargs.get("alpha", 1) != 1:
        return "the NPU adds without a factor"
    tensors = [argument.meta["val"] for argument in node.all_input_nodes] + [node.meta["val"]]
    if any(tensor.dtype != torch.float32 for tensor in tensors):
        return "the NPU computes in float32 alone"
    if any(not isinstance(size, int) for tensor in tensors for size in tensor.shape):
        return "the NPU needs static shapes"
    if len({tuple(tensor.shape) for tensor in tensors}) > 1:
        return "the NPU does not broadcast"
    return ""
