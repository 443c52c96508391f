"""Debug handles of edge nodes -> those of exported nodes; values of nodes and of instructions -> pairs of them.

    exported        conv ─────── relu ─────── to
    edge            conv (1)     relu (2)      (a no-op: gone)        handle of `to`: UNSET_DEBUG_HANDLE

    ahead of time   (1,) a   (2,) b   (3,) c            a delegate has the handles of all nodes in it,
    at run time     (1, 2) x          (3,) y            and gives what the last of them gives
    pairs           b = x              c = y

An edge node's `from_node` names its ancestors, each by its name and the id of its graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.interpreter import Interpreter

from delegraph.aot import graph_modules
from delegraph_executorch.devtools.operator_graph import OperatorGraph, OperatorNode
from delegraph_executorch.exir.graph_module import DEBUG_HANDLE_KEY, FROM_NODE_KEY, UNSET_DEBUG_HANDLE

DebugHandle: TypeAlias = tuple[int, ...]


class NodeFilter:
    """Nodes of one kind whose metadata has a key, and whose name contains none of `exclude_ops`."""

    def __init__(self, metadata_key: str, op_type: str, exclude_ops: Sequence[str] | None = None) -> None:
        self.metadata_key = metadata_key
        self.op_type = op_type
        self.exclude_ops = list(exclude_ops or ())

    def matches(self, node: Node) -> bool:
        """Whether `node` is one of them."""
        return (
            node.meta.get(self.metadata_key) is not None
            and node.op == self.op_type
            and not any(name in node.name for name in self.exclude_ops)
        )


is_captured = NodeFilter(DEBUG_HANDLE_KEY, "call_function", ["getitem"]).matches
"""Whether a node's value is compared with the runtime's."""


def as_key(debug_handle: int | Sequence[int]) -> DebugHandle:
    """A handle, or several, as a tuple."""
    return (debug_handle,) if isinstance(debug_handle, int) else tuple(debug_handle)


def get_aot_debug_handle_to_op_name_mapping(graph_module: GraphModule) -> dict[DebugHandle, list[str]]:
    """The names of the nodes that have a handle, in the order of the graph."""
    names: dict[DebugHandle, list[str]] = {}
    for node in filter(is_captured, graph_module.graph.nodes):
        names.setdefault(as_key(node.meta[DEBUG_HANDLE_KEY]), []).append(node.name)
    return names


def find_op_names(
    target_debug_handle: DebugHandle, debug_handle_to_op_names: Mapping[DebugHandle, Sequence[str]]
) -> list[str]:
    """The names whose handles are among `target_debug_handle`."""
    wanted = set(target_debug_handle)
    return [name for handle, names in debug_handle_to_op_names.items() if wanted.issuperset(handle) for name in names]


def create_debug_handle_to_op_node_mapping(op_graph: OperatorGraph) -> dict[int, list[OperatorNode]]:
    """The calls that have a handle, at any depth of the groups."""
    nodes: dict[int, list[OperatorNode]] = {}
    for node in _operators(op_graph):
        handle = (node.metadata or {}).get(DEBUG_HANDLE_KEY)
        if handle is not None:
            nodes.setdefault(handle, []).append(node)
    return nodes


def _operators(graph: OperatorGraph) -> Iterator[OperatorNode]:
    for element in graph.elements:
        if isinstance(element, OperatorGraph):
            yield from _operators(element)
        elif isinstance(element, OperatorNode):
            yield element


# ---- from edge nodes back to exported ones ---------------------------------------------------------


def get_ancestor_node_identifiers(node: Node) -> list[str]:
    """`"name.graph_id"` of all that `node` was made from, the nearest first."""
    found: list[str] = []
    sources: Any = node.meta.get(FROM_NODE_KEY)
    while sources:
        found.append(f"{sources[-1].name}.{sources[-1].graph_id}")
        sources = sources[-1].from_node
    return found


def get_parent_node_identifier(node: Node) -> str | None:
    """`"name.graph_id"` of what `node` was made from, None if that is not known."""
    return next(iter(get_ancestor_node_identifiers(node)), None)


def propagate_back_debug_handle(
    exported_program: ExportedProgram,
    exported_program_graph_id: int,
    edge_dialect_program: ExportedProgram,
    disable_debug_handle_valdiation: bool = False,
) -> bool:
    """Give each exported node the handle of the edge nodes that it became, or `UNSET_DEBUG_HANDLE` if it became none.

    `exported_program_graph_id` is the graph's id when it was lowered. False, and nothing is changed, if some edge node
    has a handle that no exported node would have, unless validation is disabled.
    """
    handles = _handles_of_ancestors(edge_dialect_program)
    given = {node: _handle(node, exported_program_graph_id, handles) for node in _calls(exported_program.graph_module)}
    needed = {node.meta[DEBUG_HANDLE_KEY] for node in _calls(edge_dialect_program.graph_module)}
    if not disable_debug_handle_valdiation and not needed <= set(given.values()):
        return False
    for node, handle in given.items():
        node.meta[DEBUG_HANDLE_KEY] = UNSET_DEBUG_HANDLE if handle is None else handle
    return True


def _calls(module: GraphModule) -> Iterator[Node]:
    for _, body in graph_modules(module):
        yield from (node for node in body.graph.nodes if node.op not in ("placeholder", "output"))


def _handles_of_ancestors(edge_dialect_program: ExportedProgram) -> dict[str, int]:
    handles: dict[str, int] = {}
    for node in _calls(edge_dialect_program.graph_module):
        for ancestor in get_ancestor_node_identifiers(node):
            handle = handles.setdefault(ancestor, node.meta[DEBUG_HANDLE_KEY])
            assert handle == node.meta[DEBUG_HANDLE_KEY], (
                f"{node.name} and another node come from {ancestor} and have different debug handles"
            )
    return handles


def _handle(node: Node, graph_id: int, handles: Mapping[str, int]) -> int | None:
    names = [f"{node.name}.{graph_id}", *get_ancestor_node_identifiers(node)]
    return next((handles[name] for name in names if name in handles), None)


RuntimeOutput = tuple[int, Any, int]
"""Instruction, value, number of results."""


class NodeSource(Enum):
    """Where a value is from."""

    AOT = 1
    RUNTIME = 2


@dataclass
class NodeData:
    """A value with its handles."""

    source: NodeSource
    debug_handle: DebugHandle
    output: Any
    num_outputs: int


def merge_runtime_overlapping_debug_handles(
    runtime_intermediate_outputs: Mapping[DebugHandle, RuntimeOutput],
) -> dict[DebugHandle, RuntimeOutput]:
    """Values whose handles overlap, as one: that of the last instruction, with the handles of all, its own last."""
    merged: dict[DebugHandle, RuntimeOutput] = {}
    for handles, value in runtime_intermediate_outputs.items():
        overlapping = [other for other in merged if set(other) & set(handles)]
        for other in overlapping:
            earlier = merged.pop(other)
            if earlier[0] < value[0]:
                handles = _joined(other, handles)
            else:
                handles, value = _joined(handles, other), earlier
        merged[handles] = value
    return merged


def _joined(first: DebugHandle, last: DebugHandle) -> DebugHandle:
    """All of `last` behind what `first` alone has, each once."""
    return tuple(dict.fromkeys([*(handle for handle in first if handle not in last), *last]))


def map_runtime_aot_intermediate_outputs(
    aot_intermediate_outputs: Mapping[DebugHandle, Any],
    runtime_intermediate_outputs: Mapping[DebugHandle, tuple[Any, int]],
) -> dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]]:
    """(handles, value) of the graph -> (handles, value) of the runtime, for each result that has both.

    Raises `ValueError` where handles of several instructions overlap: merge those first.
    """
    pairs: dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]] = {}
    for handles, (value, count) in runtime_intermediate_outputs.items():
        known = {own: output for own, output in aot_intermediate_outputs.items() if set(own) & set(handles)}
        for own in known:
            instructions = [other for other in runtime_intermediate_outputs if set(other) & set(own)]
            if len(instructions) > 1:
                raise ValueError(
                    f"Expected only one runtime debug handle, but found {len(instructions)}: {instructions}"
                )
        for expected, given in _results(known, handles, value, count):
            pairs[handles, expected] = handles, given
    return pairs


def _results(
    known: Mapping[DebugHandle, Any], handles: DebugHandle, value: Any, count: int
) -> Iterator[tuple[Any, Any]]:
    """(expected, given) for each of `count` results, the last first: those are the last handles'."""
    if not known or not {handle[0] for handle in known} <= set(handles):
        return
    for place in range(-1, -1 - min(count, len(handles)), -1):
        key = (handles[place],)
        if key in known:
            expected = known[key]
            if isinstance(expected, Sequence):
                yield tuple(expected), tuple(_as_list(value, place))
            else:
                yield expected, _as_one(expected, value, count, place)


def _as_list(value: Any, place: int) -> Sequence[Any]:
    if not isinstance(value, Sequence):
        raise TypeError("a node gives several values, and the runtime one; were both from one program?")
    last = value[place]
    if isinstance(last, list) and all(isinstance(one, torch.Tensor) for one in last):
        return last
    if isinstance(last, torch.Tensor):
        return value
    raise ValueError(f"a node gives several tensors, and the runtime {type(last).__name__}")


def _as_one(expected: Any, value: Any, count: int, place: int) -> Any:
    """Of several values that an instruction wrote, the only one of the shape, or of shape and dtype; else the last."""
    if not isinstance(value, Sequence):
        return value
    if count == 1 and len(value) > 1 and isinstance(expected, torch.Tensor):
        fitting = [one for one in value if isinstance(one, torch.Tensor) and one.shape == expected.shape]
        if len(fitting) > 1:
            fitting = [one for one in fitting if one.dtype == expected.dtype]
        return fitting[0] if len(fitting) == 1 else value[-1]
    return value[place]


def convert_to_float_tensor(input_data: Any) -> torch.Tensor:
    """A tensor or number as a float64 tensor on the CPU, NaN as 0. Raises `ValueError`; a list is an assertion's."""
    assert not isinstance(input_data, Sequence), "lists are compared item by item"
    try:
        tensor = torch.as_tensor(input_data, dtype=torch.float64)
    except Exception as error:
        raise ValueError(f"Cannot convert value of type {type(input_data)} to a tensor: {error}") from error
    return torch.nan_to_num(tensor.detach().cpu()) if tensor.isnan().any() else tensor.detach().cpu()


class IntermediateOutputCapturer(Interpreter):
    """Runs a graph and keeps copies of the values on the way; of nodes that share a handle, the last one's."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.captured: dict[DebugHandle, Any] = {}

    def run_and_capture(self, *args: Any, **kwargs: Any) -> dict[DebugHandle, Any]:
        """Run, and give the values by handle."""
        self.captured = {}
        self.run(*args, **kwargs)
        return self.captured

    def run_node(self, n: Node) -> Any:
        """Run one node, as `Interpreter` does, and keep what it gives."""
        result = super().run_node(n)
        if is_captured(n):
            several = isinstance(result, (tuple, list))
            self.captured[as_key(n.meta["debug_handle"])] = [*map(_copy, result)] if several else _copy(result)
        return result


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
