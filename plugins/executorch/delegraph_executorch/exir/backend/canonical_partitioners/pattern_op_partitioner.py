"""ExecuTorch's `executorch.exir.backend.canonical_partitioners.pattern_op_partitioner`: partitions of matched nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import Partition
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from delegraph_executorch.exir.backend.canonical_partitioners.group_partitioner import GroupBasedPartitioner

__all__ = [
    "generate_grouped_partitions_from_list_of_nodes",
    "generate_partitions_from_list_of_nodes",
    "generate_pattern_op_partitions",
]


def generate_partitions_from_list_of_nodes(
    graph_module: GraphModule,
    pattern_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[Partition]:
    """The largest partitions of the nodes in `pattern_list` and of those that `op_support` takes."""
    support = _support(_nodes(pattern_list), op_support, pattern_list is not None)
    return GroupBasedPartitioner(graph_module, support, allows_single_node_partition=True).propose_partitions()


def generate_grouped_partitions_from_list_of_nodes(
    graph_module: GraphModule,
    pattern_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[Partition]:
    """The same; the nodes of one list of `pattern_list` come into one partition."""
    support = _support(_nodes(pattern_list), op_support, pattern_list is not None)
    return GroupBasedPartitioner(
        graph_module, support, node_groups=pattern_list, allows_single_node_partition=True
    ).propose_partitions()


def generate_pattern_op_partitions(
    graph_module: GraphModule,
    patterns: Sequence[Graph] | None = None,
    partitions_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
    ignore_literals: bool = False,
) -> list[Partition]:
    """The largest partitions of the nodes that one of `patterns` matches, of those in `partitions_list` and of those
    that `op_support` takes. A pattern is the graph of an edge program; with `ignore_literals`, whatever its numbers.
    """
    matched = {*_nodes(partitions_list), *_matches(graph_module, patterns or (), ignore_literals)}
    support = _support(matched, op_support, patterns is not None or partitions_list is not None)
    return GroupBasedPartitioner(graph_module, support, allows_single_node_partition=True).propose_partitions()


def _nodes(lists: Iterable[Iterable[Node]] | None) -> set[Node]:
    return {node for nodes in lists or () for node in nodes}


def _matches(graph_module: GraphModule, patterns: Iterable[Graph], ignore_literals: bool) -> set[Node]:
    return {
        found
        for pattern in patterns
        for match in SubgraphMatcher(pattern, ignore_literals=ignore_literals).match(graph_module.graph)
        for wanted, found in match.nodes_map.items()
        if wanted.op != "placeholder" and isinstance(found, Node) and found.op != "placeholder"
    }


class _IsAmong(OperatorSupportBase):
    def __init__(self, nodes: Collection[Node]) -> None:
        self.nodes = nodes

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node in self.nodes


def _support(nodes: Collection[Node], op_support: OperatorSupportBase | None, is_given: bool) -> OperatorSupportBase:
    if op_support is None and not is_given:
        raise AssertionError("give patterns, lists of nodes or an op_support: nothing says what to partition")
    return _IsAmong(nodes) if op_support is None else any_chain(op_support, _IsAmong(nodes))
