"""Partitioners for any backend (ExecuTorch `exir/backend/canonical_partitioners`).

The groups come from `delegraph_partitioners`: what ExecuTorch asks of torch's `CapabilityBasedPartitioner`, in time
that is linear in the graph, and as few as there can be without a cycle.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch._export.utils import is_buffer, is_lifted_tensor_constant, is_param
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import _get_qualified_name
from torch.fx.passes.infra.partitioner import Partition
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from delegraph.aot import CompileSpec, DelegationSpec, DependencyCycle, Partitioner, PartitionResult, condensed_order
from delegraph_partitioners.propose_partitions import propose_partitions


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


_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def duplicate_constant_node(exported_program: ExportedProgram, candidate_node: str) -> set[str]:
    """Give each reader of a parameter, buffer or constant, the first apart, a placeholder of its own.

    `candidate_node` is the placeholder's name. Its copies are called `<name>_copy_0` … and refer to the same weight,
    which is not copied; their names are returned. Raises `RuntimeError` for an input of the program.
    """
    graph, signature = exported_program.graph, exported_program.graph_signature
    node = next((node for node in graph.find_nodes(op="placeholder") if node.name == candidate_node), None)
    if node is None:
        return set()
    position = next(i for i, spec in enumerate(signature.input_specs) if spec.arg.name == node.name)
    spec = signature.input_specs[position]
    if spec.kind not in _HELD:
        raise RuntimeError(f"{candidate_node} is an input of the program, not a parameter, buffer or constant of it")
    copies = []
    for number, user in enumerate(list(node.users)[1:]):
        name = f"{candidate_node}_copy_{number}"
        with graph.inserting_before(node):
            copy = graph.placeholder(name)
        copy.meta = dict(node.meta)
        user.replace_input_with(node, copy)
        copies.append(InputSpec(spec.kind, TensorArgument(copy.name), spec.target, spec.persistent))
    signature.input_specs[position:position] = copies
    exported_program.graph_module.recompile()
    exported_program.validate()
    return {copy.arg.name for copy in copies}


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
