"""How much of a graph delegates have, by kind of node (ExecuTorch `devtools/backend_debug`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch.fx import GraphModule, Node

from delegraph.aot import is_delegate_call
from delegraph_executorch.exir.lowered_backend_module import get_lowered_backend_modules

COLUMNS = ("op_type", "occurrences_in_delegated_graphs", "occurrences_in_non_delegated_graphs")


@dataclass
class DelegationBreakdown:
    """How often one kind of node stands in delegates, and outside of them."""

    op_type: str = ""
    delegated: int = 0
    non_delegated: int = 0


@dataclass
class DelegationInfo:
    """How much of a graph delegates have. Kinds of nodes are their names without a number: `aten_add_tensor`."""

    num_delegated_subgraphs: int
    num_delegated_nodes: int
    num_non_delegated_nodes: int
    delegation_by_operator: dict[str, DelegationBreakdown]

    def get_summary(self) -> str:
        """The three numbers, a line each."""
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )

    def rows(self) -> list[tuple[str, int, int]]:
        """(kind, in delegates, outside), sorted, and the sums."""
        kinds = sorted(self.delegation_by_operator.values(), key=lambda kind: kind.op_type)
        total = ("Total", self.num_delegated_nodes, self.num_non_delegated_nodes)
        return [*((kind.op_type, kind.delegated, kind.non_delegated) for kind in kinds), total]

    def get_operator_delegation_dataframe(self) -> Any:
        """The rows as a `pandas.DataFrame`; needs pandas."""
        return import_module("pandas").DataFrame(self.rows(), columns=list(COLUMNS))


def get_delegation_info(graph_module: GraphModule) -> DelegationInfo:
    """Count the calls of the module's own graph, and those in the delegates that it calls; elements of tuples count."""
    lowered = get_lowered_backend_modules(graph_module)
    kinds: dict[str, DelegationBreakdown] = {}
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and not is_delegate_call(node):
            _kind(kinds, node).non_delegated += 1
    for module in lowered:
        for node in module.original_module.graph.nodes:
            if node.op == "call_function":
                _kind(kinds, node).delegated += 1
    return DelegationInfo(
        num_delegated_subgraphs=len(lowered),
        num_delegated_nodes=sum(kind.delegated for kind in kinds.values()),
        num_non_delegated_nodes=sum(kind.non_delegated for kind in kinds.values()),
        delegation_by_operator=kinds,
    )


def _kind(kinds: dict[str, DelegationBreakdown], node: Node) -> DelegationBreakdown:
    name = re.sub(r"_\d+$", "", node.name)
    return kinds.setdefault(name, DelegationBreakdown(name))


def print_delegation_info(graph_module: GraphModule) -> None:
    """Print the summary and the table."""
    info = get_delegation_info(graph_module)
    print(info.get_summary())
    table = [COLUMNS, *((kind, str(inside), str(outside)) for kind, inside, outside in info.rows())]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
