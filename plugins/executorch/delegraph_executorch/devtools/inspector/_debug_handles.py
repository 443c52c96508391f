"""Debug handles of edge nodes -> those of the nodes that torch.export gave, and from them to names and operators.

    exported    conv ─────── relu ─────── to
    edge        conv (1)     relu (2)      (a no-op: gone)        handle of `to`: UNSET_DEBUG_HANDLE

An edge node's `from_node` names its ancestors, each by its name and the id of its graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot import graph_modules
from delegraph_executorch.devtools.debug_format.base_schema import OperatorGraph, OperatorNode
from delegraph_executorch.exir.graph_module import DEBUG_HANDLE_KEY, FROM_NODE_KEY, UNSET_DEBUG_HANDLE

__all__ = [
    "DebugHandle",
    "NodeFilter",
    "as_key",
    "create_debug_handle_to_op_node_mapping",
    "find_op_names",
    "get_ancestor_node_identifiers",
    "get_aot_debug_handle_to_op_name_mapping",
    "get_parent_node_identifier",
    "is_captured",
    "propagate_back_debug_handle",
]

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
