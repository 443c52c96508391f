"""ExecuTorch's `executorch.devtools.debug_format`: the graph of a program -> an `OperatorGraph`, for viewers.

    base ── inputs     one ValueNode for each placeholder
         ├─ forward    one OperatorNode for each call, ValueNodes for constants; a group for each module, if asked for
         └─ outputs    one ValueNode that reads what the program gives

Names end in "_": TensorBoard puts nodes together whose names differ in a number at their end alone.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch


@dataclass
class Node:
    """A node: what it reads, the shapes of its results, what is known about it, the names of its arguments."""

    name: str
    inputs: list[Any] | None = None
    output_shapes: list[list[int]] | None = None
    metadata: dict[str, Any] | None = None
    named_args: list[str] | None = None


@dataclass
class OperatorGraph:
    """Nodes and groups of nodes under one name."""

    graph_name: str
    elements: list[Node | OperatorGraph]
    metadata: dict[str, Any] | None = None


@dataclass
class ValueNode(Node):
    """An input, an output or a constant; `val` is the constant as text."""

    dtype: str = ""
    val: Any = None


@dataclass
class OperatorNode(Node):
    """A call of the operator named `op`."""

    op: str | None = None


class RESERVED_METADATA_ARG(Enum):
    """Keys of metadata, and headings of viewers' tables."""

    DEBUG_HANDLE = "debug_handle"
    MODULE_STACK = "nn_module_stack"
    SOURCE_FN_STACK = "source_fn_stack"
    MODULE_TYPE = "module_type"
    PROFILE_START_TIME = "profile_start_time"
    PROFILE_END_TIME = "profile_end_time"
    LOAD_START_TIME = "load_start_time"
    LOAD_END_TIME = "load_end_time"
    MEMORY_USAGE = "memory_usage"
    DEBUG_ENTRY = "debug_entry"
    STACK_TRACE = "stack_trace"
    DEBUG_DATA = "debug_data"
    METRICS_KEYWORD = "metrics"
    PROFILE_SUMMARY_COLDSTART = "Coldstart"
    PROFILE_SUMMARY_AVERAGE = "Average"
    PROFILE_SUMMARY_P90 = "P90"
    PROFILE_SUMMARY_P10 = "P10"
    PROFILE_SUMMARY_MIN = "Min"
    PROFILE_SUMMARY_MAX = "Max"
    AGGREGATED_OP_TABLE = "Aggregated op stats"
    RUN_SUMMARY_INDIVIDUAL_RUNS_TABLE = "Run summary individual stats"
    RUN_SUMMARY_TABLE = "Aggregated run summary stats"
    OP_INSTANCE_SUMMARY_TABLE = "Individual op stats"
    TABLES_KEYWORD = "tables"
    KV_KEYWORD = "kv"
    MODEL_LOAD_TIME_KEY = "Model load time (ms)"


class FXOperatorGraph(OperatorGraph):
    """The graph of a `GraphModule`."""

    @staticmethod
    def gen_operator_graph(
        model: torch.fx.GraphModule, skip_stack_trace: bool | None = False, enable_module_hierarchy: bool = False
    ) -> FXOperatorGraph:
        """The graph of `model`; with `enable_module_hierarchy` its calls in groups, by module."""
        kept = [key for key in _KEPT if not (skip_stack_trace and key == "stack_trace")]
        return _GraphReader(kept, enable_module_hierarchy).graph(model.graph)


_KEPT = ("debug_handle", "stack_trace", "nn_module_stack")


class _GraphReader:
    def __init__(self, kept: list[str], by_module: bool) -> None:
        self.kept = kept
        self.by_module = by_module
        self.constants = 0
        self.nodes: dict[str, Node] = {}
        self.modules: dict[tuple[str, str], list[Node | OperatorGraph]] = defaultdict(list)

    def graph(self, graph: torch.fx.Graph) -> FXOperatorGraph:
        for node in graph.nodes:
            if node.target is not operator.getitem:
                self.nodes[_name(node)] = self._operator(node) if node.op == "call_function" else self._value(node)
        groups: dict[str, list[Node | OperatorGraph]] = {"inputs": [], "forward": [], "outputs": []}
        group_of = {_name(node): _GROUPS.get(node.op, "forward") for node in graph.nodes}
        in_modules = {id(node) for nodes in self.modules.values() for node in nodes}
        for name, read in self.nodes.items():
            if id(read) not in in_modules:
                groups[group_of.get(name, "forward")].append(read)
        groups["forward"] += [
            OperatorGraph(name, nodes, {"module_type": kind}) for (name, kind), nodes in self.modules.items()
        ]
        return FXOperatorGraph("base", [FXOperatorGraph(name, elements) for name, elements in groups.items()])

    def _value(self, node: torch.fx.Node) -> ValueNode:
        inputs = self._inputs(node, []) if node.op == "output" else None
        return ValueNode(_name(node), inputs, _shapes(node), self._metadata(node), dtype=_dtypes(node))

    def _operator(self, node: torch.fx.Node) -> OperatorNode:
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema is not None else []
        op = str(getattr(node.target, "__name__", node.target))
        inputs = self._inputs(node, names)
        read = OperatorNode(_name(node), inputs, _shapes(node), self._metadata(node), names, op)
        self._place(read, node)
        return read

    def _inputs(self, node: torch.fx.Node, names: list[str]) -> list[Node]:
        found: list[Node] = []
        arguments = node.args[0] if node.op == "output" else (*node.args, *node.kwargs.values())
        assert isinstance(arguments, (list, tuple))
        for position, argument in enumerate(arguments):
            name = names[position] if position < len(names) else "CONST"
            nodes = torch.fx.node.map_arg(argument, lambda one: one)
            if isinstance(argument, torch.fx.Node):
                found.append(self.nodes[_name(argument)])
            elif isinstance(argument, (list, tuple)) and any(isinstance(one, torch.fx.Node) for one in argument):
                found += [self.nodes[_name(one)] for one in nodes if isinstance(one, torch.fx.Node)]
            elif argument is not None:
                found.append(self._constant(name, argument, node))
        return found

    def _constant(self, name: str, value: Any, user: torch.fx.Node) -> ValueNode:
        read = ValueNode(f"{name}_{self.constants}", val=value if isinstance(value, list) else str(value))
        self.constants += 1
        self.nodes[read.name] = read
        self._place(read, user)
        return read

    def _place(self, read: Node, node: torch.fx.Node) -> None:
        """Put `read` with the module that `node` belongs to."""
        if self.by_module and "source_fn_stack" in node.meta and "nn_module_stack" in node.meta:
            name, kind = node.meta["source_fn_stack"][-1]
            self.modules[str(name), kind if isinstance(kind, str) else kind.__name__].append(read)

    def _metadata(self, node: torch.fx.Node) -> dict[str, Any]:
        return {key: node.meta[key] for key in self.kept if key in node.meta}


_GROUPS = {"placeholder": "inputs", "output": "outputs"}


def _name(node: torch.fx.Node) -> str:
    """The name of the node, of that it takes an item of for a `getitem`."""
    while node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        node = source
    return f"{node.name}_"


def _tensors(node: torch.fx.Node) -> list[torch.Tensor] | None:
    value = node.meta.get("val")
    values: list[Any] = list(value) if isinstance(value, (tuple, list)) else [value]
    return values if all(isinstance(one, torch.Tensor) for one in values) else None


def _shapes(node: torch.fx.Node) -> list[list[int]] | None:
    tensors = _tensors(node)
    return None if tensors is None else [list(tensor.shape) for tensor in tensors]


def _dtypes(node: torch.fx.Node) -> str:
    tensors = _tensors(node)
    return "" if tensors is None else str([tensor.dtype for tensor in tensors])
