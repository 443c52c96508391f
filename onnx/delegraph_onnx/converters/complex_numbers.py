"""Complex tensors as pairs: complex64[a, b] is float32[a, b, 2] within a delegate, real part first.

They lie in memory so: they cross the delegate's border as they are, and a view as real numbers costs
nothing. A move of complex numbers moves pairs, with a dim more. Fourier transforms are in `fourier.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

import delegraph_onnx.converters.indexing  # the rows that pairs are moved by
import delegraph_onnx.converters.reductions
import delegraph_onnx.converters.scatter
import delegraph_onnx.converters.shapes  # noqa: F401
from delegraph.aot.authoring import named_arguments, numpy_dtype, operator_name, reduced_dims
from delegraph_onnx.converters.pointwise import arc_tangent, length
from delegraph_onnx.converters.table import TABLE, Check, OnnxConverter, aten, unless
from delegraph_onnx.dtypes import COMPLEX
from delegraph_onnx.graph_builder import Converted, GraphBuilder, Scalar
from delegraph_onnx.node_facts import CASTS, are_known, dtype_of, outer_dtype_of, rank_of, same_sizes, shape_of

__all__ = ["convert_complex", "parts"]

Operand: TypeAlias = "Node | complex | float"
_DTYPES: Final = frozenset({*COMPLEX, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool})


def convert_complex(names: str, check: Check | None = None) -> Callable[[Any], Any]:
    """Put the decorated function into the table of complex tensors, for names of aten overloads."""

    def register(function: Any) -> Any:
        for name in names.split():
            TABLE.of_complex.add(aten(name), OnnxConverter(function, _DTYPES, check))
        return function

    return register


# ---- parts --------------------------------------------------------------------------------------------------------


@convert_complex("view_as_real view_as_real_copy view_as_complex view_as_complex_copy resolve_conj")
def pairs_as_they_are(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.value(self)


@convert_complex("complex")
def complex_(g: GraphBuilder, node: Node, real: Node, imag: Node) -> ir.Value:
    values = (g.value(real), g.value(imag))
    if not same_sizes(shape_of(real), shape_of(imag)):
        whole = g.op("Shape", g.op("Add", *values))
        values = (g.op("Expand", values[0], whole), g.op("Expand", values[1], whole))
    return _pair(g, *values)


@convert_complex("polar")
def polar(g: GraphBuilder, node: Node, length: Node, angle: Node) -> ir.Value:
    factors = (g.op(name, g.value(angle)) for name in ("Cos", "Sin"))
    return _pair(g, *(g.op("Mul", g.value(length), factor) for factor in factors))


@convert_complex("real imag")
def part(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return parts(g, g.value(self))[int(node.target == aten("imag"))]


@convert_complex("abs")
def abs_(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return length(g, *parts(g, g.value(self)), dtype_of(node))


@convert_complex("angle", check=lambda node, self: (
    "an arc tangent in double precision" if outer_dtype_of(self) == torch.complex128 else None))  # fmt: skip
def angle(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    real, imag = parts(g, g.value(self))
    return arc_tangent(g, imag, real, dtype_of(node))


def _pair(g: GraphBuilder, real: ir.Value, imag: ir.Value) -> ir.Value:
    return g.op("Concat", *(g.op("Unsqueeze", component, g.ints([-1])) for component in (real, imag)), axis=-1)


def parts(g: GraphBuilder, pairs: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The real and the imaginary part."""
    real, imag = (g.op("Gather", pairs, g.tensor(i, torch.int64), axis=-1) for i in (0, 1))
    return real, imag


def _operand(g: GraphBuilder, operand: Operand, dtype: torch.dtype) -> tuple[ir.Value, ir.Value | None]:
    """The real and the imaginary part; None for the imaginary part of a real number."""
    if isinstance(operand, Node):
        if outer_dtype_of(operand) in COMPLEX:
            return parts(g, g.cast(g.value(operand), dtype) if dtype_of(operand) != dtype else g.value(operand))
        return g.tensor(operand, dtype), None
    number = complex(operand)
    return g.tensor(number.real, dtype), g.tensor(number.imag, dtype) if number.imag else None


# ---- arithmetic ---------------------------------------------------------------------------------------------------


@convert_complex("neg")
def neg(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Neg", g.value(self))


@convert_complex("_conj _conj_copy _conj_physical conj_physical")
def conj(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    real, imag = parts(g, g.value(self))
    return _pair(g, real, g.op("Neg", imag))


@convert_complex("add.Tensor add.Scalar sub.Tensor sub.Scalar", check=lambda node, self, other, alpha: (
    "a complex alpha" if isinstance(alpha, complex) else None))  # fmt: skip
def total(g: GraphBuilder, node: Node, self: Operand, other: Operand, alpha: Scalar) -> ir.Value:
    op_type, dtype = "Add" if operator_name(node).startswith("aten::add") else "Sub", dtype_of(node)
    (a, b), (c, d) = _operand(g, self, dtype), _operand(g, other, dtype)
    if alpha != 1:
        factor = g.tensor(alpha, dtype)
        c, d = g.op("Mul", c, factor), None if d is None else g.op("Mul", d, factor)
    if d is not None and (op_type == "Sub" or alpha != 1):
        # torch multiplies by a complex 1 or -1: a part that is not finite makes NaN of the other
        c, d = g.op("Add", c, g.op("Sub", d, d)), g.op("Add", d, g.op("Sub", c, c))
    real, zero = g.op(op_type, a, c), g.op("Sub", a, a) if b is None else g.op("Sub", c, c)
    imag = g.op(op_type, b if b is not None else zero, d if d is not None else zero)
    return _pair(g, real, imag)


@convert_complex("mul.Tensor mul.Scalar mm bmm matmul")
def product(g: GraphBuilder, node: Node, self: Operand, other: Operand) -> ir.Value:
    (a, b), (c, d) = (_operand(g, operand, dtype_of(node)) for operand in (self, other))
    op_type = "Mul" if operator_name(node).startswith("aten::mul") else "MatMul"
    if b is None or d is None:
        real, imag = g.op(op_type, a, c), g.op(op_type, *((a, d) if b is None else (b, c)))
        return _pair(g, real, imag)
    real = g.op("Sub", g.op(op_type, a, c), g.op(op_type, b, d))
    return _pair(g, real, g.op("Add", g.op(op_type, a, d), g.op(op_type, b, c)))


@convert_complex("div.Tensor div.Scalar")
def div(g: GraphBuilder, node: Node, self: Operand, other: Operand) -> ir.Value:
    """(a + bi) / (c + di) by Smith's method, as torch has it, infinities and all (c10/util/complex.h):

    |c| >= |d|:  r = d / c, s = c + d r,   (a + b r) / s + (b - a r) / s i
    otherwise:   r = c / d, s = d + c r,   (b + a r) / s - (a - b r) / s i
    """
    dtype = dtype_of(node)
    (a, b), (c, d) = _operand(g, self, dtype), _operand(g, other, dtype)
    if d is None:
        scale = g.op("Reciprocal", c)
        return _pair(g, *(g.op("Mul", component, scale) for component in (a, b) if component is not None))
    b = g.op("Sub", a, a) if b is None else b
    first = g.op("GreaterOrEqual", g.op("Abs", c), g.op("Abs", d))
    larger, smaller = g.op("Where", first, c, d), g.op("Where", first, d, c)
    p, q = g.op("Where", first, a, b), g.op("Where", first, b, a)
    ratio = g.op("Div", smaller, larger)
    scale = g.op("Reciprocal", g.op("Add", larger, g.op("Mul", smaller, ratio)))
    real = g.op("Mul", g.op("Add", p, g.op("Mul", q, ratio)), scale)
    imag = g.op("Mul", g.op("Sub", q, g.op("Mul", p, ratio)), scale)
    return _pair(g, real, g.op("Where", first, imag, g.op("Neg", imag)))


@convert_complex("reciprocal")
def reciprocal(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    result: ir.Value = div(g, node, 1.0, self)
    return result


@convert_complex("sum.dim_IntList mean.dim")
def reduced(
    g: GraphBuilder, node: Node, self: Node, dims: Sequence[int] | None, keepdim: bool, dtype: object
) -> ir.Value:
    """Each part by itself."""
    rank, name = rank_of(self), "ReduceMean" if node.target == aten("mean.dim") else "ReduceSum"
    value = g.cast(g.value(self), dtype_of(node)) if dtype_of(self) != dtype_of(node) else g.value(self)
    return g.op(name, value, g.ints(reduced_dims(rank, dims)), keepdims=int(keepdim)) if rank else value


@convert_complex("where.self", check=lambda node, condition, self, other: (
    None if self.meta["val"].dtype == other.meta["val"].dtype else "real beside complex numbers"))  # fmt: skip
def where(g: GraphBuilder, node: Node, condition: Node, self: Node, other: Node) -> ir.Value:
    return g.op(
        "Where", g.op("Unsqueeze", g.tensor(condition, torch.bool), g.ints([-1])), g.value(self), g.value(other)
    )


@convert_complex("full", check=lambda node, size, *_: (
    None if are_known(*size) else "a dynamic size"))  # fmt: skip
def full(g: GraphBuilder, node: Node, size: Sequence[int], value: complex, *_: object) -> ir.Value:
    pair = np.array([complex(value).real, complex(value).imag], numpy_dtype(dtype_of(node)))
    return g.op("Expand", g.constant(pair), g.ints([*size, 2]))


@convert_complex("exp")
def exp(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    """Of a real part of -inf 0, whatever the angle."""
    real, imag = parts(g, g.value(self))
    nothing = g.op("Equal", real, g.tensor(-math.inf, dtype_of(node)))
    length, angle = g.op("Exp", real), g.op("Where", nothing, g.tensor(0.0, dtype_of(node)), imag)
    return _pair(g, *(g.op("Mul", length, g.op(name, angle)) for name in ("Cos", "Sin")))


# ---- moves: those of the pairs ------------------------------------------------------------------------------------

_MOVES: Final = """
view view_copy _unsafe_view reshape expand expand_copy unsqueeze unsqueeze_copy squeeze.dim squeeze_copy.dim
squeeze.dims squeeze_copy.dims slice.Tensor slice_copy.Tensor cat select.int select_copy.int index_select cumsum flip
transpose.int transpose_copy.int permute permute_copy split_with_sizes split_with_sizes_copy unbind.int slice_scatter
select_scatter clone alias alias_copy detach detach_copy index.Tensor constant_pad_nd"""
_CHECKS: Final = {
    "constant_pad_nd": unless(lambda node, self, pad, value: not value, "a padding other than 0"),  # of both parts
    **dict.fromkeys(  # the first dim cannot be the pairs' own
        ("index_select", "cumsum", "flip"),
        unless(lambda node, self, *_: rank_of(self) > 0, "a complex number without dims"),
    ),
}
"""The checks of moves, in the place of those of real tensors."""
_JOINS: Final = frozenset(map(aten, ("cat", "slice_scatter", "select_scatter")))
"""Operators that cast their operands to their result's dtype."""


def _move(operator: torch._ops.OpOverload) -> None:
    """Let pairs be moved as `operator` moves real tensors, its arguments changed for the additional dim."""
    real = TABLE[operator]
    check = _CHECKS.get(str(operator).split(".")[1], real.check)

    def convert(g: GraphBuilder, node: Node, *arguments: Any) -> Converted:
        joins = operator in _JOINS
        twins = {operand: _as_pairs(g, operand, node if joins else operand) for operand in node.all_input_nodes}
        changed = _with_a_dim_more(node, arguments)
        twin = Graph().call_function(operator, ())
        twin.meta = {**node.meta, "val": pytree.tree_map_only(torch.Tensor, _with_pairs, node.meta["val"])}
        moved: Converted = real.convert(g, twin, *pytree.tree_map_only(Node, lambda n: twins.get(n, n), changed))
        return moved

    TABLE.of_complex.add(operator, OnnxConverter(convert, _DTYPES, check))


def _as_pairs(g: GraphBuilder, operand: Node, like: Node) -> Node:
    """`operand`, or if it is complex a twin of it that is pairs of the dtype of `like`."""
    if outer_dtype_of(like) not in COMPLEX:
        return operand
    twin = Graph().placeholder(operand.name)
    twin.meta["val"] = _with_pairs(operand.meta["val"].to(outer_dtype_of(like)))
    g.values[twin] = g.value(operand) if outer_dtype_of(operand) == outer_dtype_of(like) else _cast(g, like, operand)
    return twin


def _with_pairs(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the pairs' shape and dtype, without content."""
    if value.dtype not in COMPLEX:
        return value
    dtype = torch.float64 if value.dtype == torch.complex128 else torch.float32
    return torch.empty([*value.shape, 2], dtype=dtype, device="meta")


def _with_a_dim_more(node: Node, arguments: Sequence[Any]) -> list[Any]:
    """The arguments for pairs: dims are counted from the front, since the last dim is that of the pairs."""
    first = arguments[0] if isinstance(arguments[0], Node) else arguments[0][0]
    rank, name = rank_of(first), operator_name(node)
    count = rank + 1 if "unsqueeze" in name else max(rank, 1)

    def changed(argument: str, value: Any) -> Any:
        if argument.startswith("dim"):
            dims = value % count if isinstance(value, int) else [dim % count for dim in value]
            return [*dims, rank] if "permute" in name and isinstance(dims, list) else dims
        if argument in ("size", "shape"):
            return [*value, 2]
        return [0, 0, *value] if argument == "pad" else value

    return list(map(changed, named_arguments(node), arguments))


for _name in _MOVES.split():
    _move(aten(_name))


def _cast(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    """A cast from real numbers, with imaginary parts of 0, or between complex dtypes."""
    dtype = dtype_of(node)
    real, imag = _operand(g, self, dtype)
    if imag is None:
        imag = g.op("Expand", g.tensor(0.0, dtype), g.op("Shape", real))
    return _pair(g, real, imag)


for _operator in CASTS:
    TABLE.of_complex.add(_operator, OnnxConverter(_cast, _DTYPES, lambda node, *_: (
        None if outer_dtype_of(node) in COMPLEX else "a complex number made real")))  # fmt: skip
