"""ExportedProgram -> the same, calls whose argument is not needed any more as calls that write into it.

Delegraph's lowering updates states in place without another operator (`aten::index_put` into its own argument); this
is for code that asks for ExecuTorch's in-place operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from delegraph.aot import ResolvedSignature, exir_ops
from delegraph_executorch.exir.dialect_ops import output_to_aliased_input_map, unwrap_op_overload
from delegraph_executorch.exir.program._transform import name_outputs

__all__ = ["DEFAULT_INPLACEABLE_OPS", "reinplace_pass"]

DEFAULT_INPLACEABLE_OPS: Final[frozenset[Any]] = frozenset({exir_ops.edge.aten.index_put.default})


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """The in-place operator of a functional one, and which arguments it writes; no operator: a mark is all."""

    op: Any
    written: tuple[int, ...] = ()


def reinplace_pass(
    ep: ExportedProgram,
    ops_to_inplace: Iterable[Any] | None = None,
    inplace_overrides: Mapping[Any, Any] | None = None,
) -> ExportedProgram:
    """Rewrite calls of `ops_to_inplace` (by default `DEFAULT_INPLACEABLE_OPS`), in place, where that is safe.

    Safe: nothing reads the argument later, it has the result's shape and dtype, and it is not an input, or one that the
    program changes. The in-place operator is found by name and schema (`index_put` -> `index_put_`), or named in
    `inplace_overrides`; a call of an operator that has none is marked by `meta["_share_alloc_with_arg_idx"]`. Raises
    `ValueError` for an override that is not the in-place form of its operator.
    """
    overrides = dict(inplace_overrides or {})
    asked = {*(DEFAULT_INPLACEABLE_OPS if ops_to_inplace is None else ops_to_inplace), *overrides}
    rewrites = {op: _rewrite_of(op, overrides.get(op)) for op in asked}
    inputs = set(ep.graph.find_nodes(op="placeholder"))
    kept = inputs - {write_back.target for write_back in ResolvedSignature.of(ep).write_backs}
    read_later: set[Node] = set()
    for node in reversed(list(ep.graph.nodes)):
        if node.op != "call_function":
            continue
        rewrite = rewrites.get(node.target)
        if rewrite is not None and _is_safe(node, rewrite, read_later, kept):
            node = _rewritten(ep, node, rewrite)
        read_later.update(node.all_input_nodes)
    name_outputs(ep.graph_signature, ep.graph_module)
    return ep


def _rewrite_of(op: Any, override: Any) -> _Rewrite:
    inplace = override or _derive_edge_inplace_overload(op)
    if inplace is None:
        return _Rewrite(None)
    if not _is_inplace_of(_schema(op), _schema(inplace)):
        raise ValueError(
            f"Schema mismatch: {inplace} does not take the arguments of {op}, the first of them as Tensor(a!):"
            f" {_schema(op)} against {_schema(inplace)}"
        )
    if not _schema(inplace).name.startswith(f"{_schema(op).name}_"):
        raise ValueError(f"Suspicious registration: {inplace} is not named {_schema(op).name}_, as {op} in place is")
    written = tuple(sorted(set(output_to_aliased_input_map(_schema(inplace)).values())))
    if not written:
        raise ValueError(
            f"{inplace} has no Tensor(a!) argument that it returns: its schema does not say what it writes"
        )
    return _Rewrite(inplace, written)


def _derive_edge_inplace_overload(functional_op: Any) -> Any:
    """`index_put.default` -> `index_put_.default`: the overload of the same arguments, as edge programs call it."""
    schema = _schema(functional_op)
    namespace, _, name = schema.name.partition("::")
    packet = getattr(torch.ops.aten, f"{name}_", None) if namespace == "aten" else None
    for overload in packet.overloads() if packet is not None else ():
        if _is_inplace_of(schema, getattr(packet, overload)._schema):
            return getattr(getattr(exir_ops.edge.aten, f"{name}_"), overload)
    return None


def _is_inplace_of(functional: Any, inplace: Any) -> bool:
    ours, theirs = functional.arguments, inplace.arguments
    if len(ours) != len(theirs) or not theirs:
        return False
    alias = theirs[0].alias_info
    return alias is not None and alias.is_write and all(a.type == b.type for a, b in zip(ours, theirs, strict=True))


def _schema(op: Any) -> Any:
    return unwrap_op_overload(op)._schema if isinstance(getattr(op, "_op", op), OpOverload) else op._schema


def _is_safe(node: Node, rewrite: _Rewrite, read_later: set[Node], kept: set[Node]) -> bool:
    written = [_argument(node, i) for i in rewrite.written] if rewrite.op else node.all_input_nodes[:1]
    return bool(written) and all(a not in read_later and a not in kept and _is_alike(a, node) for a in written)


def _argument(node: Node, position: int) -> Node:
    argument = node.args[position] if position < len(node.args) else None
    if not isinstance(argument, Node):
        raise ValueError(
            f"reinplace: {node.name} has no tensor at position {position}, which {node.target} would write"
        )
    return argument


def _is_alike(argument: Node, result: Node) -> bool:
    """Whether the result fits where the argument lies; where nothing is known of one, it is taken to."""
    a, b = argument.meta.get("val"), result.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return True
    same_rank = a.dtype == b.dtype and a.dim() == b.dim()
    return same_rank and all(statically_known_true(m == n) for m, n in zip(a.shape, b.shape, strict=True))


def _rewritten(ep: ExportedProgram, node: Node, rewrite: _Rewrite) -> Node:
    if rewrite.op is None:
        first = next(i for i, argument in enumerate(node.args) if isinstance(argument, Node))
        node.meta["_share_alloc_with_arg_idx"] = first
        return node
    with ep.graph.inserting_before(node):
        new: Node = ep.graph.call_function(rewrite.op, node.args, node.kwargs)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    ep.graph.erase_node(node)
    return new
