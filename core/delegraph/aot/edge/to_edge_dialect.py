"""Functional core ATen program -> edge program: what a kernel library or a backend has to know.

Against core ATen, the edge dialect has no aliases (views are `*_copy`), no Python scalar where a tensor belongs and one
dtype for the operands of arithmetic (`tensor_operands.py`), no assertions, no view of everything, and a dim order that
every copy and every empty tensor names (ExecuTorch: `exir/passes/memory_format_ops_pass.py`). The graph is edited in
place; a fake value is computed again only where a layout changed.

A view of another layout becomes a copy, which is contiguous. Calls that keep their input's layout follow it:

    before, x [3, 4]                            after
    v = permute(x, [1, 0])     strides (1, 4)   v = permute_copy(x, [1, 0])     strides (3, 1)
    r = relu(v)                        (1, 4)   r = relu(v)                             (3, 1)
    m = mm(r, w)               contiguous       m = mm(r, w)                    contiguous as before: no further
    c = m.to(float64)                           c = _to_dim_order_copy(m, dtype=float64, dim_order=[0, 1])
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.edge.dim_order_ops import BY_DIM_ORDER, dim_order
from delegraph.aot.edge.edge_ops import name_after_operators, use_edge_operators
from delegraph.aot.edge.memory_formats import get_dim_order
from delegraph.aot.edge.symbol_sources import read_sizes_early
from delegraph.aot.edge.tensor_operands import TensorOperands
from delegraph.aot.functional.functionalize import fake_mode_of
from delegraph.aot.graph.bodies import attributes, bodies
from delegraph.aot.graph.debug_handles import fill_debug_handles
from delegraph.aot.graph.edit import rebuild
from delegraph.aot.graph.mutating_calls import auto_functionalized
from delegraph.aot.graph.provenance import MEMORY_FORMAT
from delegraph.aot.graph.view_operators import KEEP_ORDER, VIEW_TO_COPY
from delegraph.aot.torch_internals import enable_python_dispatcher, is_contiguous_or_false

__all__ = ["to_edge_dialect"]

aten = torch.ops.aten


def to_edge_dialect(program: ExportedProgram) -> ExportedProgram:
    """The edge program of a functional program that nobody else holds: its graph is edited and taken over."""
    mode = fake_mode_of(program)
    operands = TensorOperands(program, mode)
    _EdgeRewriter(operands, mode).rewrite(program.graph_module)
    use_edge_operators(program.graph_module)
    name_after_operators(program.graph_module)
    fill_debug_handles(program.graph_module)
    root = attributes(program.graph_module)
    return rebuild(program, root, program.graph, program.graph_signature.output_specs, operands.constants)


@dataclass(slots=True)
class _EdgeRewriter:
    """Rewrites the graph of a program and of its control-flow bodies."""

    operands: TensorOperands
    mode: FakeTensorMode

    def rewrite(self, module: GraphModule, is_body: bool = False) -> None:
        graph = module.graph
        for body in bodies(module).values():
            self.rewrite(body, is_body=True)
        changed: set[Node] = set()  # nodes whose layout is no longer the exported one: their users are computed again
        for node in list(graph.nodes):
            if isinstance(node.target, OpOverload):
                self._rewrite_call(node, node.target, changed, is_body)
            if node.op == "call_function" and any(source in changed for source in node.all_input_nodes):
                self._propagate(node, changed)
        read_sizes_early(graph)
        graph.eliminate_dead_code()

    def _rewrite_call(self, node: Node, op: OpOverload, changed: set[Node], is_body: bool) -> None:
        if op in ASSERTIONS:
            node.graph.erase_node(node)
            return
        rewrite = REWRITES.get(op)
        if rewrite is not None:
            rewrite(node)
        if (source := _no_op_source(node)) is not None:
            node.replace_all_uses_with(source)
            node.graph.erase_node(node)
            _let_quantized_stand(source)
            return
        if node.target in _COPIES:
            self._make_contiguous(node, changed)
        _name_dim_order(node, changed)
        for added in self.operands.fit(node, is_body):
            _name_dim_order(added, changed)
            changed.update([added] if any(source in changed for source in added.all_input_nodes) else [])

    def _make_contiguous(self, node: Node, changed: set[Node]) -> None:
        """A `*_copy` result is contiguous, whatever the view was."""
        val = node.meta["val"]
        leaves = pytree.tree_leaves(val)
        if all(is_contiguous_or_false(leaf) for leaf in leaves):
            return
        with self.mode:
            node.meta["val"] = pytree.tree_map(
                lambda leaf: torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device), val
            )
        changed.add(node)

    def _propagate(self, node: Node, changed: set[Node]) -> None:
        """Compute the value again, since the layout of an input changed; its users follow if its own does."""
        if not _is_plain_call(node) or node.target in _COPIES:  # a copy is contiguous whatever it copies
            return
        if isinstance(node.target, OpOverload) and _makes_symbols(node.target):
            return  # computed again, `nonzero` and `item` would give a new size or number that nothing else knows
        args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (node.args, dict(node.kwargs)))
        with self.mode, enable_python_dispatcher():  # without which torch expands to no dynamic size
            new = node.target(*args, **kwargs)  # type: ignore[operator]
        if _layouts(new) != _layouts(node.meta["val"]):
            node.meta["val"] = new
            changed.add(node)


def _let_quantized_stand(dequantized: Node) -> None:
    """Without the no-op between them, a value is quantized twice alike: the first codes stand for the second.

    q = quantize(x, …);  d = dequantize(q, …);  r = quantize(d, …)        ->        r = q
    """
    op = dequantized.target
    if not isinstance(op, OpOverload) or not op.name().startswith("quantized_decomposed::dequantize_"):
        return
    quantize, parameters = op.name().replace("::de", "::"), dequantized.args[1:]

    def is_quantized_alike(node: object) -> TypeGuard[Node]:
        called = isinstance(node, Node) and isinstance(node.target, OpOverload) and node.target.name() == quantize
        return called and node.args[1:] == parameters  # type: ignore[attr-defined]

    if is_quantized_alike(quantized := dequantized.args[0]):
        for user in filter(is_quantized_alike, list(dequantized.users)):
            user.replace_all_uses_with(quantized)


# ---- rewrites of single calls ----------------------------------------------------------------------


def _retarget(op: OpOverload) -> Callable[[Node], None]:
    def rewrite(node: Node) -> None:
        node.target = op

    return rewrite


def _as_permute(dims: Callable[[Node], tuple[int, int] | None]) -> Callable[[Node], None]:
    def rewrite(node: Node) -> None:
        rank = node.meta["val"].dim()
        order = list(range(rank))
        pair = dims(node)
        if pair is not None and rank:
            a, b = (d % rank for d in pair)
            order[a], order[b] = order[b], order[a]
        node.target, node.args = aten.permute_copy.default, (node.args[0], order)

    return rewrite


def _name_dim_order(node: Node, changed: Collection[Node]) -> None:
    """A copy, or an empty tensor, by its dim order; without a memory format a copy keeps its argument's."""
    if node.target not in BY_DIM_ORDER or MEMORY_FORMAT in node.meta:
        return
    kwargs = dict(node.kwargs)
    value, source = node.meta["val"], node.args[0]
    order = get_dim_order(kwargs.pop("memory_format", None), value.dim())  # type: ignore[arg-type]
    if order is None:  # where the argument's order has changed, the value is not yet computed again
        order = list(dim_order(source.meta["val"] if isinstance(source, Node) and source in changed else value))
    node.target, node.kwargs = BY_DIM_ORDER[node.target], {**kwargs, "dim_order": order}


def _prim_convert(node: Node) -> None:
    """torch's decompositions leave some prims behind where core ATen has the same."""
    node.target, node.args, node.kwargs = aten._to_copy.default, node.args[:1], {"dtype": node.meta["val"].dtype}


def _positional_dims(node: Node) -> tuple[int, int]:
    return node.args[1], node.args[2]  # type: ignore[return-value]


REWRITES: dict[OpOverload, Callable[[Node], None]] = {
    **{view: _retarget(copy) for view, copy in VIEW_TO_COPY.items()},
    aten.transpose.int: _as_permute(_positional_dims),
    aten.transpose_copy.int: _as_permute(_positional_dims),
    aten.t.default: _as_permute(lambda node: (0, 1) if node.meta["val"].dim() == 2 else None),
    aten.t_copy.default: _as_permute(lambda node: (0, 1) if node.meta["val"].dim() == 2 else None),
    aten._conj.default: _retarget(aten._conj_physical.default),
    aten._neg_view.default: _retarget(aten.neg.default),
    aten.__lshift__.Scalar: _retarget(aten.bitwise_left_shift.Tensor_Scalar),
    aten.__rshift__.Scalar: _retarget(aten.bitwise_right_shift.Tensor_Scalar),
    torch.ops.prims.scalar_tensor.default: _retarget(aten.scalar_tensor.default),
    torch.ops.prims.convert_element_type.default: _prim_convert,
}

ASSERTIONS = frozenset(
    {
        aten._assert_tensor_metadata.default,
        aten._assert_scalar.default,
        aten._assert_async.msg,
        aten._assert_async.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
        aten._functional_sym_constrain_range.default,
        aten._functional_sym_constrain_range_for_size.default,
    }
)
"""Checks of the traced program that leave no trace in the file (ExecuTorch drops them too)."""

_COPIES = frozenset(VIEW_TO_COPY.values())


def _no_op_source(node: Node) -> Node | None:
    """The input that the call would only repeat, or None. Equal shapes suffice: slices here have a positive step."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or not isinstance(source.meta.get("val"), torch.Tensor):
        return None
    old, new = source.meta["val"], node.meta["val"]
    if node.target == aten.permute_copy.default:
        order = node.args[1]
        return source if list(order) == list(range(old.dim())) else None  # type: ignore[arg-type]
    if node.target == aten._to_copy.default:
        same = (old.dtype, old.device, dim_order(old)) == (new.dtype, new.device, dim_order(new))
        return source if same else None
    if node.target not in KEEP_ORDER or len(old.shape) != len(new.shape) or old.dtype != new.dtype:
        return None
    same = all(_statically_equal(a, b) for a, b in zip(old.shape, new.shape, strict=True))
    return source if same and is_contiguous_or_false(old) else None


def _statically_equal(a: object, b: object) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt) and a.node.expr == b.node.expr


def _is_plain_call(node: Node) -> bool:
    return isinstance(node.target, OpOverload) or node.target in (operator.getitem, auto_functionalized)


def _makes_symbols(op: OpOverload) -> bool:
    return torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags


def _layouts(value: object) -> list[object]:
    return [
        (tuple(map(str, leaf.shape)), tuple(map(str, leaf.stride())), leaf.dtype)
        for leaf in pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    ]
