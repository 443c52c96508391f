"""A backend's supported nodes -> the fewest delegates that can hold them, in linear time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import (
    graph_modules,
    is_delegate_call,
    is_scalar,
    tag_constant_data,
    tag_mutated_buffer,
)
from delegraph.aot.authoring import Support, checked_support, operator_name
from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec, DelegationSpec, Partitioner, PartitionResult
from delegraph_partitioners.propose_partitions import Unit, components, propose_partitions

__all__ = ["TRIVIAL_OPERATORS", "CapabilityBasedPartitioner", "Support"]

_ATEN_TRIVIAL = """
    alias alias_copy clone contiguous detach detach_copy expand expand_copy full lift_fresh_copy permute permute_copy
    reshape select select_copy slice slice_copy squeeze squeeze_copy t t_copy transpose transpose_copy unsqueeze
    unsqueeze_copy _unsafe_view view view_copy _to_copy
"""

TRIVIAL_OPERATORS: frozenset[str] = frozenset(
    [f"aten::{name}" for name in _ATEN_TRIVIAL.split()]
    + ["dim_order_ops::_to_dim_order_copy", "dim_order_ops::_clone_dim_order"]
)
"""Operators that only rename, move or copy elements, or repeat a number: a delegate of nothing else costs more than it
saves, and hides these nodes from other backends."""


class CapabilityBasedPartitioner(Partitioner):
    """Delegates all nodes that `support` accepts, in as few delegates as possible.

    The partitions are maximal: no two of them could be one without a dependency cycle, and no other choice that takes
    the same nodes has fewer. Nodes need not be connected to share a delegate. Costs one pass or two over the graph.

    `minimum_nodes` is the size from which a delegate is worth its call. Unless `allow_trivial`, connected pieces that
    consist of `TRIVIAL_OPERATORS` only are left. Sizes and other scalars are computed outside and enter as inputs,
    unless `take_scalars`; then `support` is asked about their nodes too, but an input of the graph does not become an
    argument of a delegate for its sizes alone. Buffers that the model changes stay outside,
    unless `take_mutated_buffers`: then a delegate that alone reads and changes one keeps it as its own state.
    With `apart`, nodes that are not connected do not share a delegate, so that those of a backend that submits them can
    be at work together. `max_duplicated_nbytes`: see `tag_constant_data`. Bodies of control flow are partitioned like
    the graph itself, except for those of a call that `support` accepts.
    """

    def __init__(
        self,
        backend_id: str,
        support: Support,
        compile_specs: Sequence[CompileSpec] = (),
        *,
        minimum_nodes: int = 1,
        allow_trivial: bool = False,
        take_scalars: bool = False,
        take_mutated_buffers: bool = False,
        apart: bool = False,
        max_duplicated_nbytes: int | None = None,
        keep_whole: Sequence[torch._ops.OpOverload] = (),
    ) -> None:
        if minimum_nodes < 1:
            raise InvalidArgument(f"minimum_nodes is {minimum_nodes}; a partition has at least one node")
        self.delegation_spec = DelegationSpec(backend_id, list(compile_specs))
        self.support = support
        self.minimum_nodes = minimum_nodes
        self.allow_trivial = allow_trivial
        self.take_scalars = take_scalars
        self.take_mutated_buffers = take_mutated_buffers
        self.apart = apart
        self.max_duplicated_nbytes = max_duplicated_nbytes
        self.keep_whole = list(keep_whole)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """`keep_whole`, wherever `support` accepts the node."""
        return self.keep_whole, lambda node: self._supported(node) is None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the partitions, and give a reason for every other call."""
        tags: dict[str, DelegationSpec] = {}
        declined: dict[str, str] = {}
        taken_bodies: set[str] = set()
        for path, module in graph_modules(exported_program.graph_module):
            if any(path == taken or path.startswith(f"{taken}.") for taken in taken_bodies):
                continue
            groups, reasons = self.groups(module.graph)
            for nodes in groups:
                tag = f"{self.delegation_spec.backend_id}_{len(tags)}"
                tags[tag] = self.delegation_spec
                for node in nodes:
                    node.meta["delegation_tag"] = tag
                taken_bodies.update(_bodies(nodes, path))
            prefix = f"{path}." if path else ""
            declined.update({prefix + node.name: reason for node, reason in reasons.items()})
        tag_constant_data(exported_program, self.max_duplicated_nbytes)
        if self.take_mutated_buffers:
            tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, tags, declined)

    def groups(self, graph: Graph) -> tuple[list[list[Node]], dict[Node, str]]:
        """The partitions of one graph, each in graph order, and why the other calls are in none. Tags nothing."""
        calls = [node for node in graph.nodes if node.op == "call_function"]
        units = self.units(graph)
        reasons = self._unsupported(calls)
        supported = {node for node in calls if node not in reasons}
        while True:
            groups = propose_partitions(units, supported)
            if self.apart:  # what leads from one piece to another would have been a cycle of the whole
                groups = [piece for group in groups for piece in components(group)]
            dropped = self._not_worthwhile(groups)
            if not dropped:
                return groups, {node: reasons[node] for node in calls if node in reasons}
            supported.difference_update(dropped)
            reasons.update(dropped)

    def units(self, graph: Graph) -> Sequence[Unit]:
        """The units that are taken as a whole: each call with the elements of its result, if that is a tuple."""
        units: dict[Node, list[Node]] = {}
        for node in graph.nodes:
            if node.op == "call_function":
                head = node.args[0] if node.target is operator.getitem else node
                assert isinstance(head, Node)
                units.setdefault(head if head in units else node, []).append(node)
        return list(units.values())

    def _unsupported(self, calls: Iterable[Node]) -> dict[Node, str]:
        reasons: dict[Node, str] = {}
        for node in calls:
            reason = self._reason(node, reasons)
            if reason is not None:
                reasons[node] = reason
        return reasons

    def _reason(self, node: Node, reasons: Mapping[Node, str]) -> str | None:
        if is_delegate_call(node):
            return "is a delegate already"
        if node.target is operator.getitem:
            producer = node.args[0]
            assert isinstance(producer, Node)
            return f"is an element of {producer.name}, which was left" if producer in reasons else None
        if is_scalar(node):
            return self._reason_of_scalar(node)
        return self._supported(node)

    def _reason_of_scalar(self, node: Node) -> str | None:
        if not self.take_scalars:
            return "computes a size or another scalar, which goes into delegates as an input"
        source = next((read for read in node.all_input_nodes if _gives_sizes_alone(read)), None)
        return self._supported(node) if source is None else f"nothing but sizes of {source.name} is read"

    def _supported(self, node: Node) -> str | None:
        """The answer of `support`. Raises `InvalidPartition` if it is neither None nor a reason."""
        return checked_support(self.support, self.delegation_spec.backend_id, node)

    def _not_worthwhile(self, groups: Iterable[Collection[Node]]) -> dict[Node, str]:
        """Supported nodes for which no delegate is worth its call, with reasons."""
        dropped: dict[Node, str] = {}
        for group in groups:
            kept = len(group)
            for piece in () if self.allow_trivial else components(group):
                if all(is_trivial(node) for node in piece):
                    kept -= len(piece)
                    dropped.update({node: _NUMBER if is_scalar(node) else _TRIVIAL for node in piece})
            size = sum(_counts(node) for node in group if node not in dropped)
            if kept and size < self.minimum_nodes:
                reason = f"its partition would have {size} nodes, fewer than the {self.minimum_nodes} asked for"
                dropped.update({node: reason for node in group if node not in dropped})
        return dropped


_TRIVIAL = "is supported, but only together with views and copies: not worth a delegate"

_NUMBER = "computes a size or another scalar that no delegate needs"


def _counts(node: Node) -> bool:
    """Whether `node` counts as work of a delegate: it is neither an element of a tuple nor a number."""
    return node.target is not operator.getitem and not is_scalar(node)


def is_trivial(node: Node) -> bool:
    """Whether `node` computes nothing: a view, a copy, an element of a tuple; or a number alone."""
    if node.target is operator.getitem or is_scalar(node):
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in TRIVIAL_OPERATORS


def _gives_sizes_alone(source: Node) -> bool:
    """Whether `source` is an input of the graph whose users all read sizes."""
    return source.op == "placeholder" and all(operator_name(user) in _SIZES for user in source.users)


_SIZES = frozenset({"aten::sym_size.int", "aten::sym_numel"})


def _bodies(nodes: Iterable[Node], path: str) -> Iterable[str]:
    """The paths of the control-flow bodies that calls among `nodes` of the graph at `path` run."""
    for node in nodes:
        for read in node.all_input_nodes:
            if read.op == "get_attr":
                yield f"{path}.{read.target}" if path else str(read.target)
