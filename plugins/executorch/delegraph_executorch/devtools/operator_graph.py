"""ExecuTorch's `executorch.devtools.debug_format`: a program's graph -> an `OperatorGraph`, by which events are told.

base ── inputs     one ValueNode for each placeholder
     ├─ forward    one OperatorNode for each call; a group for each module, if asked for
     └─ outputs    one ValueNode that reads what the program gives
"""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node as Call
from torch.utils import _pytree as pytree


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


_KEPT: Final = ("debug_handle", "stack_trace", "nn_module_stack")
_GROUPS: Final = {"placeholder": "inputs", "output": "outputs"}


class FXOperatorGraph(OperatorGraph):
    """The graph of a `GraphModule`."""

    @staticmethod
    def gen_operator_graph(
        model: torch.fx.GraphModule, skip_stack_trace: bool | None = False, enable_module_hierarchy: bool = False
    ) -> FXOperatorGraph:
        """The graph of `model`; with `enable_module_hierarchy` its calls in groups, by module."""
        made: dict[Call, Node] = {}
        groups: dict[str, list[Any]] = {"inputs": [], "forward": [], "outputs": []}
        modules: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for call in model.graph.nodes:
            if call.target is operator.getitem:
                made[call] = made[call.args[0]]
                continue
            metadata = {key: call.meta[key] for key in _KEPT if key in call.meta}
            if skip_stack_trace:
                metadata.pop("stack_trace", None)
            values = [v for v in pytree.tree_leaves(call.meta.get("val")) if isinstance(v, torch.Tensor)]
            about = [made[source] for source in call.all_input_nodes], [list(v.shape) for v in values], metadata
            if call.op == "call_function":
                name = str(getattr(call.target, "__name__", call.target))
                made[call] = OperatorNode(f"{call.name}_", *about, op=name)
            else:
                made[call] = ValueNode(f"{call.name}_", *about, dtype=str([v.dtype for v in values]))
            stacks = call.meta.get("source_fn_stack"), call.meta.get("nn_module_stack")
            if enable_module_hierarchy and all(stacks) and call.op == "call_function":
                name, kind = stacks[0][-1]
                modules[str(name), getattr(kind, "__name__", str(kind))].append(made[call])
            else:
                groups[_GROUPS.get(call.op, "forward")].append(made[call])
        groups["forward"] += [OperatorGraph(name, own, {"module_type": kind}) for (name, kind), own in modules.items()]
        return FXOperatorGraph("base", [FXOperatorGraph(name, elements) for name, elements in groups.items()])
