"""Complex tensors as pairs: complex64[a, b] is float32[a, b, 2] within a delegate, real part first.

That is how they lie in memory, so that they cross the delegate's border as they are, and a view as real numbers costs
nothing. Moves are those of the pairs, with a dim more. Fourier transforms are in `fourier.py`.
"""

from __future__ import annotations

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
from delegraph.aot.authoring import numpy_dtype, reduced_dims
from delegraph_onnx.converters.pointwise import arc_tangent, length
from delegraph_onnx.converters.table import TABLE, Check, OnnxConverter, aten
from delegraph_onnx.copies import CASTS
from delegraph_onnx.dtypes import COMPLEX
from delegraph_onnx.graph_builder import Converted, GraphBuilder, Scalar
from delegraph_onnx.node_facts import are_known, dtype_of, outer_dtype_of, rank_of, same_sizes, shape_of

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
    return g.op("Concat", *(g.op("Unsqueeze", one, g.ints([-1])) for one in (real, imag)), axis=-1)


def parts(g: GraphBuilder, pairs: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The real and the imaginary part."""
    real, imag = (g.op("Gather", pairs, g.tensor(i, torch.int64), axis=-1) for i in (0, 1))
    return real, imag


def _operand(g: GraphBuilder, operand: Operand, dtype: torch.dtype) -> tuple[ir.Value, ir.Value | None]:
    """Real and imaginary part; None for that of a real number."""
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


for _names, _op_type in (("add.Tensor add.Scalar", "Add"), ("sub.Tensor sub.Scalar", "Sub")):

    def _sum(
        g: GraphBuilder, node: Node, self: Operand, other: Operand, alpha: Scalar, op_type: str = _op_type
    ) -> ir.Value:
        dtype = dtype_of(node)
        (a, b), (c, d) = _operand(g, self, dtype), _operand(g, other, dtype)
        if alpha != 1:
            factor = g.tensor(alpha, dtype)
            c, d = g.op("Mul", c, factor), None if d is None else g.op("Mul", d, factor)
        real, zero = g.op(op_type, a, c), g.op("Sub", a, a) if b is None else g.op("Sub", c, c)
        imag = g.op(op_type, b if b is not None else zero, d if d is not None else zero)
        return _pair(g, real, imag)

    convert_complex(_names, check=lambda node, self, other, alpha: (
        "a complex alpha" if isinstance(alpha, complex) else None))(_sum)  # fmt: skip


@convert_complex("mul.Tensor mul.Scalar")
def mul(g: GraphBuilder, node: Node, self: Operand, other: Operand) -> ir.Value:
    dtype = dtype_of(node)
    return _product(g, _operand(g, self, dtype), _operand(g, other, dtype), "Mul")


@convert_complex("mm bmm matmul")
def matmul(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    dtype = dtype_of(node)
    return _product(g, _operand(g, self, dtype), _operand(g, other, dtype), "MatMul")


def _product(
    g: GraphBuilder, one: tuple[ir.Value, ir.Value | None], two: tuple[ir.Value, ir.Value | None], op_type: str
) -> ir.Value:
    (a, b), (c, d) = one, two
    if b is None or d is None:
        real, imag = g.op(op_type, a, c), g.op(op_type, *((a, d) if b is None else (b, c)))
        return _pair(g, real, imag)
    real = g.op("Sub", g.op(op_type, a, c), g.op(op_type, b, d))
    return _pair(g, real, g.op("Add", g.op(op_type, a, d), g.op(op_type, b, c)))


@convert_complex("div.Tensor div.Scalar")
def div(g: GraphBuilder, node: Node, self: Operand, other: Operand) -> ir.Value:
    """(a + bi) / (c + di), where c and d are divided by the larger one before they are multiplied: their squares may
    be too large for their dtype (Smith)."""
    dtype = dtype_of(node)
    (a, b), (c, d) = _operand(g, self, dtype), _operand(g, other, dtype)
    if d is None:
        return _pair(g, *(g.op("Div", one, c) for one in (a, b) if one is not None))
    b = g.op("Sub", a, a) if b is None else b
    larger = g.op("Max", g.op("Abs", c), g.op("Abs", d))
    e, f = g.op("Div", c, larger), g.op("Div", d, larger)
    divisor = g.op("Add", g.op("Mul", c, e), g.op("Mul", d, f))
    real = g.op("Add", g.op("Mul", a, e), g.op("Mul", b, f))
    imag = g.op("Sub", g.op("Mul", b, e), g.op("Mul", a, f))
    return _pair(g, g.op("Div", real, divisor), g.op("Div", imag, divisor))


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
    real, imag = parts(g, g.value(self))
    length = g.op("Exp", real)
    return _pair(g, *(g.op("Mul", length, g.op(name, imag)) for name in ("Cos", "Sin")))


# ---- moves: those of the pairs ------------------------------------------------------------------------------------

_SIZED: Final = "view view_copy _unsafe_view reshape expand expand_copy"
_ALONG_A_DIM: Final = """unsqueeze unsqueeze_copy squeeze.dim squeeze_copy.dim slice.Tensor slice_copy.Tensor cat
select.int select_copy.int index_select cumsum transpose.int transpose_copy.int split_with_sizes
split_with_sizes_copy unbind.int slice_scatter select_scatter"""
_NEVER_OF_SCALARS: Final = frozenset({"index_select", "cumsum", "flip"})
_WITHOUT_DIMS: Final = "clone alias alias_copy detach detach_copy index.Tensor"
_DIM_AT: Final = {"cat": 1, "split_with_sizes": 2, "split_with_sizes_copy": 2, "slice_scatter": 2, "select_scatter": 2}
_JOINS: Final = frozenset(map(aten, ("cat", "slice_scatter", "select_scatter")))
"""What casts its operands to its result's dtype."""


def _move(
    operator: torch._ops.OpOverload, rewrite: Callable[[Node, list[Any]], list[Any]], check: Check | None = None
) -> None:
    """Let pairs be moved as `operator` moves real tensors, its arguments changed by `rewrite` for the dim more.

    `check` is in place of that of real tensors.
    """
    real = TABLE[operator]
    check = check or real.check
    if str(operator).split(".")[1] in _NEVER_OF_SCALARS:
        check = _has_a_dim(check)

    def convert(g: GraphBuilder, node: Node, *arguments: Any) -> Converted:
        joins = operator in _JOINS
        twins = {operand: _as_pairs(g, operand, node if joins else operand) for operand in node.all_input_nodes}
        changed = rewrite(node, list(arguments))
        twin = Graph().call_function(operator, ())
        twin.meta = {**node.meta, "val": pytree.tree_map_only(torch.Tensor, _with_pairs, node.meta["val"])}
        moved: Converted = real.convert(g, twin, *pytree.tree_map_only(Node, lambda n: twins.get(n, n), changed))
        return moved

    TABLE.of_complex.add(operator, OnnxConverter(convert, _DTYPES, check))


def _has_a_dim(check: Check | None) -> Check:
    """`check`, where the first dim cannot be the pairs' own."""

    def checked(node: Node, self: Node, *arguments: Any) -> str | None:
        if not rank_of(self):
            return "a complex number without dims"
        return None if check is None else check(node, self, *arguments)

    return checked


def _as_pairs(g: GraphBuilder, operand: Node, like: Node) -> Node:
    """A twin of `operand` that is pairs of the dtype of `like`, if that is complex; else itself."""
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


def _one_size_more(node: Node, arguments: list[Any]) -> list[Any]:
    return [arguments[0], [*arguments[1], 2], *arguments[2:]]


def _dims_from_the_front(node: Node, arguments: list[Any]) -> list[Any]:
    name = str(node.target).split(".")[1]
    rank = rank_of(arguments[0]) if isinstance(arguments[0], Node) else rank_of(arguments[0][0])
    rank = rank + 1 if "unsqueeze" in name else max(rank, 1)
    at = [1, 2] if name.startswith("transpose") else [_DIM_AT.get(name, 1)]
    return [argument % rank if i in at else argument for i, argument in enumerate(arguments)]


def _last_dim_stays(node: Node, arguments: list[Any]) -> list[Any]:
    rank = rank_of(node)
    return [arguments[0], [*(dim % rank for dim in arguments[1]), rank]]


def _listed_dims_from_the_front(node: Node, arguments: list[Any]) -> list[Any]:
    return [arguments[0], [dim % max(rank_of(arguments[0]), 1) for dim in arguments[1]]]


for _name in ("squeeze.dims", "squeeze_copy.dims", "flip"):
    _move(aten(_name), _listed_dims_from_the_front)
for _name in _SIZED.split():
    _move(aten(_name), _one_size_more)
for _name in _ALONG_A_DIM.split():
    _move(aten(_name), _dims_from_the_front)
for _name in _WITHOUT_DIMS.split():
    _move(aten(_name), lambda node, arguments: arguments)
_move(
    aten("constant_pad_nd"),
    lambda node, arguments: [arguments[0], [0, 0, *arguments[1]], *arguments[2:]],
    lambda node, self, pad, value, *_: "a padding other than 0" if value else None,  # of both parts it would be
)
for _name in ("permute", "permute_copy"):
    _move(aten(_name), _last_dim_stays)


def _cast(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    """From real numbers, with imaginary parts of 0, or between complex dtypes."""
    dtype = dtype_of(node)
    real, imag = _operand(g, self, dtype)
    if imag is None:
        imag = g.op("Expand", g.tensor(0.0, dtype), g.op("Shape", real))
    return _pair(g, real, imag)


for _operator in CASTS:
    TABLE.of_complex.add(_operator, OnnxConverter(_cast, _DTYPES, lambda node, *_: (
        None if outer_dtype_of(node) in COMPLEX else "a complex number made real")))  # fmt: skip
