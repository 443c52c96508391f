"""ExecuTorch's `executorch.exir.backend.utils`: reading graphs with delegates, and reasons why a node was left."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers `quantized_decomposed`, which callers look up
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import has_free_symbols
from torch.fx.passes.operator_support import OperatorSupportBase

from delegraph.aot import CompileSpec, LoweredBackendModule, is_delegate_call
from delegraph.aot import DelegateMappingBuilder as DelegateMappingBuilder
from delegraph.aot import tag_constant_data as tag_constant_data
from delegraph.aot import tag_mutated_buffer as tag_mutated_buffer
from delegraph_executorch.exir.backend.partitioners import duplicate_constant_node as duplicate_constant_node
from delegraph_executorch.finding import wheel_names

__getattr__ = wheel_names(
    __name__,
    "create_submodule_from_nodes",
    "is_same_node",
    "remove_first_quant_and_last_dequant",
    "replace_quantized_partition_with_op",
)

# ---- comparing graphs ------------------------------------------------------------------------------


def is_identical_graph(graph_left: GraphModule, graph_right: GraphModule) -> bool:
    """Whether the two have equal nodes in one order: kinds, targets, and which nodes each reads."""
    left, right = list(graph_left.graph.nodes), list(graph_right.graph.nodes)
    position = {node: i for nodes in (left, right) for i, node in enumerate(nodes)}

    def shape(node: Node) -> tuple[Any, ...]:
        return node.op, node.target, [position[read] for read in node.all_input_nodes]

    return [shape(node) for node in left] == [shape(node) for node in right]


# ---- delegates in a graph --------------------------------------------------------------------------


def get_non_lowered_nodes(graph: Graph) -> list[Node]:
    """The calls that no delegate has; elements of what delegates give do not count."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function" and not is_delegate_call(node) and not _is_delegates_element(node)
    ]


def _is_delegates_element(node: Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[0], Node) and is_delegate_call(node.args[0])


def get_delegates(graph: Graph) -> list[Node]:
    """The get_attr nodes that refer to lowered modules."""
    return [node for node in graph.find_nodes(op="get_attr") if node.name.startswith("lowered_module_")]


def get_delegated_payload(graph_module: GraphModule) -> dict[str, tuple[str, list[CompileSpec], bytes]]:
    """By the name of each lowered module in the graph: its backend's id, compile specs and blob."""
    return {
        node.name: (lowered.backend_id, lowered.compile_specs, lowered.processed_bytes)
        for node, lowered in _lowered(graph_module)
    }


def _lowered(graph_module: GraphModule) -> Iterator[tuple[Node, LoweredBackendModule]]:
    for node in get_delegates(graph_module.graph):
        module = graph_module.get_submodule(str(node.target))
        if isinstance(module, LoweredBackendModule):
            yield node, module


def format_delegated_graph(graph_module: GraphModule) -> str:
    """The graph, a node a line, and under each lowered module its backend's id and its own graph."""
    lowered = dict(_lowered(graph_module))
    lines = ["graph():"]
    for node in graph_module.graph.nodes:
        lines.append(f"  {node.format_node()}")
        if node in lowered:
            module = lowered[node]
            lines += [f"    backend_id: {module.backend_id}", "    lowered graph():"]
            lines += [f"      {inner.format_node()}" for inner in module.original_module.graph.nodes]
    return "\n".join(lines) + "\n"


def print_delegated_graph(graph_module: GraphModule) -> None:
    """Print what `format_delegated_graph` gives."""
    print(format_delegated_graph(graph_module))


def is_shape_dynamic(node: Node) -> bool:
    """Whether a size of `node`'s value is not known before it runs."""
    return bool(has_free_symbols(node.meta["val"].shape))


# ---- why a node was left ---------------------------------------------------------------------------

_REASON = "declined_because"  # the report of the lowering reads it


class WhyNoPartition:
    """Logs why a node is left, and tells the report: `why = WhyNoPartition(logger)`, then `why(node, "too large")`."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.node: Node | None = None
        self.reason = ""

    def __call__(self, node: Node, reason: str) -> None:
        self.node, self.reason = node, reason
        node.meta.setdefault(_REASON, reason)
        self.logger.debug(self)

    def __str__(self) -> str:
        return f"WhyNoPartition: Node {self.node} was not partitioned because {self.reason}."


class WhyNoPartitionReporter:
    """Collects why nodes are left, the first reason for each, for a table and for the report of the lowering."""

    def __init__(self) -> None:
        self._rejected_nodes: dict[Node, str] = {}

    def report_reject(self, node: Node, reason: str) -> None:
        """Say that `node` is left, and why."""
        self._rejected_nodes.setdefault(node, reason)
        node.meta.setdefault(_REASON, reason)

    def get_table_report(self) -> str:
        """A table of the calls that were left: name, operator, what it was in the model, reason."""
        rows = [
            (node.name, str(getattr(node.target, "_op", node.target)), str(node.meta.get("torch_fn", "-")), reason)
            for node, reason in self._rejected_nodes.items()
            if node.op not in ("placeholder", "output")
        ]
        if not rows:
            return "No nodes rejected."
        rows = [("Node name", "Target", "Torch func", "Reason"), *rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def wrap_check(self, operator_support: OperatorSupportBase, message: str) -> OperatorSupportBase:
        """The same check, which reports `message` for each node that it rejects."""
        return ReportRejected(operator_support, self, message)


class ReportRejected(OperatorSupportBase):
    """A check that tells a reporter of each node that it rejects."""

    def __init__(self, operator_support: OperatorSupportBase, reporter: WhyNoPartitionReporter, message: str) -> None:
        self.operator_support = operator_support
        self.reporter = reporter
        self.message = message

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """What the wrapped check says."""
        is_supported = self.operator_support.is_node_supported(submodules, node)
        if not is_supported:
            self.reporter.report_reject(node, self.message)
        return is_supported
