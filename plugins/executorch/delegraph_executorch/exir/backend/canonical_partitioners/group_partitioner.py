"""ExecuTorch's `executorch.exir.backend.canonical_partitioners.group_partitioner`.

What ExecuTorch asks of torch's `CapabilityBasedPartitioner`, in time that is linear in the graph: the groups come from
`delegraph_partitioners`, which makes as few as there can be without a cycle.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

from torch.fx import GraphModule, Node
from torch.fx.node import _get_qualified_name
from torch.fx.passes.infra.partitioner import Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from delegraph.aot import DependencyCycle, condensed_order
from delegraph_partitioners.propose_partitions import propose_partitions

__all__ = ["GroupBasedPartitioner"]


class GroupBasedPartitioner:
    """Proposes partitions of the nodes that `operator_support` takes; those of one of `node_groups` stay together.

    Partitions come last in the graph first, numbered in that order. Without `allows_single_node_partition` a partition
    needs two calls that compute; `non_compute_ops` (qualified names, `torch.ops.aten.view`) do not count, and one of
    `allowed_single_node_partition_ops` is enough. Raises `ValueError` for a node in two groups.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        node_groups: Iterable[Iterable[Node]] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = list(non_compute_ops or ())
        self.allowed_single_node_partition_ops = list(allowed_single_node_partition_ops or ())
        self.node_to_group: dict[Node, int] = {}
        for number, group in enumerate(node_groups or ()):
            for node in dict.fromkeys(group):
                if node in self.node_to_group:
                    raise ValueError(f"Node {node} exists in multiple groups.")
                self.node_to_group[node] = number

    def propose_partitions(self) -> list[Partition]:
        """The partitions. Nodes keep their order; a supported placeholder goes with the first that reads it."""
        modules = dict(self.graph_module.named_modules())
        nodes = self.graph_module.graph.nodes
        supported = {node for node in nodes if self.operator_support.is_node_supported(modules, node)}
        groups = [group for group in self._groups(supported) if self._is_worthwhile(group)]
        _join_inputs(groups, supported)
        position = {node: i for i, node in enumerate(nodes)}
        return [
            Partition(id=number, nodes=sorted(group, key=position.__getitem__))
            for number, group in enumerate(reversed(groups))
        ]

    def _groups(self, supported: Collection[Node]) -> list[list[Node]]:
        """The calls among `supported`, in groups that can each run as one."""
        calls = [node for node in self.graph_module.graph.nodes if node.op == "call_function"]
        unit = self._units(calls, supported)
        while True:
            try:
                order = condensed_order(self.graph_module.graph, lambda node: unit.get(node, node))
            except DependencyCycle as cycle:  # groups that wait for each other cannot stay together
                for _, members in cycle.groups:
                    unit.update({node: _head(node) for node in members})
            else:
                return propose_partitions([members for _, members in order], supported)

    def _units(self, calls: Iterable[Node], supported: Collection[Node]) -> dict[Node, object]:
        """What is taken together: a group, or a call; and always what reads an element of a call's tuple."""
        return {
            node: self.node_to_group[head] if head in self.node_to_group and head in supported else head
            for node in calls
            for head in [_head(node)]
        }

    def _is_worthwhile(self, group: Iterable[Node]) -> bool:
        if self.allows_single_node_partition:
            return True
        ignored = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        names = [_get_qualified_name(node.target) for node in group if callable(node.target)]
        computing = sum(name not in ignored for name in names)
        return computing + sum(name in self.allowed_single_node_partition_ops for name in names) > 1


def _head(node: Node) -> Node:
    """The call that `node` is an element of the results of, or `node`."""
    while node.target is operator.getitem and isinstance(node.args[0], Node) and node.args[0].op == "call_function":
        node = node.args[0]
    return node


def _join_inputs(groups: Sequence[list[Node]], supported: Collection[Node]) -> None:
    """Add supported nodes that are not calls, weights above all, to the first group that reads them."""
    group_of: Mapping[Node, list[Node]] = {node: group for group in groups for node in group}
    for node in supported:
        if node.op in ("placeholder", "get_attr"):
            reader = next((user for user in node.users if user in group_of), None)
            if reader is not None:
                group_of[reader].append(node)
