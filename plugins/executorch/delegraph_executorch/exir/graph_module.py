"""Graphs -> the bodies of their control flow, and who calls them; and ExecuTorch's small helpers around graphs.

New code walks with `delegraph.aot.graph_modules`, which goes to any depth.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch._decomp import core_aten_decompositions
from torch.fx import GraphModule, Node

LeafValue: TypeAlias = (
    torch.Tensor
    | str
    | int
    | float
    | bool
    | complex
    | torch.dtype
    | torch.device
    | torch.memory_format
    | torch.layout
    | None
)

Body: TypeAlias = tuple[str, GraphModule, Node]
"""The name of a body in its module, the body, and the node that calls it."""

Positions: TypeAlias = dict[Any, tuple[int, ...]]
"""Operator -> where its bodies stand among its arguments."""

_higher_order: Any = torch.ops.higher_order
_COND: Positions = {_higher_order.cond: (1, 2)}
_LOOPS: Positions = {_higher_order.map_impl: (0,), _higher_order.scan: (0,)}
_SCAN: Positions = {_higher_order.scan: (0,)}
_WHILE: Positions = {_higher_order.while_loop: (0, 1)}


def get_control_flow_submodules(graph_module: GraphModule) -> list[Body]:
    """Of `cond`, `map` and `scan`."""
    return _get_control_flow_submodules(graph_module, _COND | _LOOPS)


def get_cond_while_submodules(graph_module: GraphModule) -> list[Body]:
    """Of `cond` and `while_loop`."""
    return _get_control_flow_submodules(graph_module, _COND | _WHILE)


def get_scan_submodules(graph_module: GraphModule) -> list[Body]:
    """Of `scan`."""
    return _get_control_flow_submodules(graph_module, _SCAN)


def contains_any_call_fn_target_op(graph_module: GraphModule, ops: Collection[Any]) -> bool:
    """Whether a graph, or a body of its control flow, calls one of `ops`, itself or as an operator of the dialect."""
    called: set[Any] = set()
    bfs_trace_with_node_process(graph_module, lambda node: called.add(node.target))
    return not called.isdisjoint(ops) or any(getattr(target, "_op", None) in ops for target in called)


def bfs_trace_with_node_process(gm: GraphModule, node_op: Callable[[Node], None]) -> None:
    """Call `node_op` with every node of a graph, then with those of its bodies, level by level."""
    queue = [gm]
    while queue:
        for node in (module := queue.pop(0)).graph.nodes:
            node_op(node)
        queue.extend(body for _, body, _ in _get_control_flow_submodules(module, _COND | _LOOPS | _WHILE))


def _get_control_flow_submodules(
    graph_module: GraphModule, op_to_submodule_arg_index: Mapping[Any, Sequence[int]]
) -> list[Body]:
    """The bodies at these positions of the arguments of calls of these operators."""
    return [
        _get_submodule(graph_module, node, position)
        for node in graph_module.graph.nodes
        if node.op == "call_function"
        for position in op_to_submodule_arg_index.get(node.target, ())
    ]


def _get_submodule(graph_module: GraphModule, node: Node, arg_index: int) -> Body:
    name = str(node.args[arg_index].target)  # type: ignore[union-attr]
    body: Any = graph_module.get_submodule(name)  # a body of control flow, or a lowered module
    return name, body, node


T = TypeVar("T")


@contextmanager
def no_dispatch() -> Iterator[None]:
    """Without `__torch_dispatch__` of modes and tensor classes."""
    guard = torch._C._DisableTorchDispatch()
    try:
        yield
    finally:
        del guard


def get_schema_for_operators(ops: Sequence[str]) -> dict[str, str]:
    """`torch.ops.aten.add.Tensor` … -> `{"aten::add.Tensor": its schema}`, for reading: it asks for all of them."""
    known = {f"{s.name}.{s.overload_name or 'default'}": str(s) for s in torch._C._jit_get_all_schemas()}
    names = [re.sub(r"^torch\.ops\.([^.]+)\.", r"\1::", op) for op in ops]
    return {name: known.get(name, "<No Schema Found>") for name in names}


def extract_out_arguments(schema: Any, keyword_args: Mapping[str, T]) -> tuple[str, T] | list[tuple[str, T]]:
    """The out arguments among `keyword_args`, each with its name; the pair alone where there is one."""
    found = [(a.name, keyword_args[a.name]) for a in schema.arguments if a.is_out and a.name in keyword_args]
    if not found and "out" in keyword_args:  # a list of tensors is not marked as out
        found = [("out", keyword_args["out"])]
    return found[0] if len(found) == 1 else found


def format_schema_name(schema: Any) -> str:
    """`aten::add.Tensor`, or `aten::relu` for a default overload."""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


@contextmanager
def override_logger(
    newLevel: int = logging.DEBUG,
    fmtstr: str = "%(message)s",
    filename: str | None = None,
) -> Iterator[None]:
    """The root logger at another level and in another format, and written to a file that is made anew."""
    root = logging.getLogger()
    level, formatters = root.level, [(handler, handler.formatter) for handler in root.handlers]
    added = logging.FileHandler(filename, mode="w") if filename else None
    try:
        root.setLevel(newLevel)
        for handler, _ in formatters if fmtstr else ():
            handler.setFormatter(logging.Formatter(fmtstr))
        if added is not None:
            root.addHandler(added)
        yield
    finally:
        root.setLevel(level)
        for handler, formatter in formatters:
            handler.setFormatter(formatter)
        if added is not None:
            root.removeHandler(added)
            added.close()


@contextmanager
def setting_python_recursive_limit(limit: int = 10000) -> Iterator[None]:
    """Python's recursion limit at least `limit`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, before))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


FROM_NODE_KEY = "from_node"
DEBUG_HANDLE_KEY = "debug_handle"
UNSET_DEBUG_HANDLE = 0


def get_greatest_ancestor_node_identifier(node: Node) -> str:
    """The name and graph of the first node that `node` was made from: `"name.graph_id"`."""
    source = node.meta[FROM_NODE_KEY][-1]
    while source.from_node:
        source = source.from_node[-1]
    return f"{source.name}.{source.graph_id}"


Value = Any


@dataclass
class ExirDynamoConfig:
    """Settings of the tracer that is gone."""

    allow_rnn: bool = True
    verbose: bool = True
    assume_static_by_default: bool = False


def _default_decomposition_table(_use_old_decomp_table: bool = False) -> dict[torch._ops.OperatorBase, Any]:
    """What brings a program to core ATen: for `ExportedProgram.run_decompositions`."""
    return dict(core_aten_decompositions().items())


ScalarSpec: TypeAlias = int | float
LeafValueSpec: TypeAlias = Any
"""A `TensorSpec` or a number."""
ValueSpec: TypeAlias = Any
"""A `LeafValueSpec`, or a list or tuple of such."""


_DelegateDebugIdentifierMap: TypeAlias = dict[int, tuple[int, ...]] | dict[str, tuple[int, ...]]
"""A delegate's own instruction ids, to debug handles."""


EXECUTORCH_SCHEMA_VERSION = 0
