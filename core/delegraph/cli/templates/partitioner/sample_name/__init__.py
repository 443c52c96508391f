"""The partitioner SampleName for Delegraph: another one's choice, without partitions that are not worth a delegate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import Partitioner, PartitionResult, graph_modules
from delegraph.plugins import default_registry

__all__ = ["SampleNamePartitioner", "sample_name_partitioner"]


class SampleNamePartitioner(Partitioner):
    """Lets `inner` choose, and takes back what has fewer than `minimum_calls` calls."""

    def __init__(self, inner: Partitioner, minimum_calls: int) -> None:
        super().__init__()
        self.inner = inner
        self.minimum_calls = minimum_calls

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        return self.inner.ops_to_not_decompose(ep)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        result = self.inner.partition(exported_program)
        placed = [
            (node, f"{path}.{node.name}" if path else node.name)
            for path, module in graph_modules(result.tagged_exported_program.graph_module)
            for node in module.graph.nodes
            if "delegation_tag" in node.meta
        ]
        calls = Counter(node.meta["delegation_tag"] for node, _ in placed if node.op == "call_function")
        declined = dict(result.declined)
        for node, name in placed:
            count = calls[node.meta["delegation_tag"]]
            if count < self.minimum_calls:
                del node.meta["delegation_tag"]
                if node.op == "call_function":
                    declined[name] = f"of {count} calls, and sample_name takes {self.minimum_calls} or more"
        kept = {tag: spec for tag, spec in result.partition_tags.items() if calls[tag] >= self.minimum_calls}
        return PartitionResult(result.tagged_exported_program, kept, declined)


def sample_name_partitioner(*, backend: str = "cpu", minimum_calls: int = 2) -> SampleNamePartitioner:
    """Users write `backends=["sample_name{backend=npu,minimum_calls=4}"]`: keyword parameters are the options."""
    if minimum_calls < 1:
        raise ValueError(f"minimum_calls is {minimum_calls}; a partition has at least one")
    return SampleNamePartitioner(default_registry().create("partitioners", backend), minimum_calls)
