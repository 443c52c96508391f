"""Linear layers and experts whose weights alone are quantized, to 8 or 4 bits: MatMulNBits, which reads them packed.

For many rows, a weight of 8 bits is dequantized in each run, which then costs less than the second
product that it is packed for (`packed_weights.py`). Where the program rounds the input, integers are
multiplied: of one row by MatMulNBits, which rounds it once more, in blocks, and reads half the bytes; of several, or
where there may be several, as int8 (`by_row.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.graph import CONTRIB, CpuGraph
from delegraph_cpu.aot.quantized.by_row import is_rounded, product_by_row
from delegraph_cpu.aot.quantized.packed_weights import PackedPart, packed_parts
from delegraph_cpu.aot.quantized.weights import constant_weight
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of

__all__ = ["float_linear", "products_of_experts"]


def float_linear(g: CpuGraph, input: Node, weight: Node, bias: Node | None) -> ir.Value | None:
    """`input @ weight.T + bias` in float32, or None if the weight is no constant of a form known here."""
    if dtype_of(input) != torch.float32:
        return None
    several = _rows(g, input)[1] > 1
    product = product_by_row(g, input, weight, codes=several) if is_rounded(g, input) else None
    product = product or _of_many_rows(g, input, weight)
    product = product or _of_codes(g, input, weight)
    return product if product is None or bias is None else g.op("Add", product, g.value(bias))


def _of_many_rows(g: CpuGraph, input: Node, weight: Node) -> ir.Value | None:
    """A product of integers or of floats, if that is faster than one of codes."""
    fewest, most = _rows(g, input)
    rounds = g.int8_inputs or is_rounded(g, input)
    if g.int8_inputs and fewest >= MANY_ROWS:
        return product_by_row(g, input, weight, codes=g.int8_products)
    if not rounds and (fewest >= MANY_ROWS or 1 < fewest == most):
        return _product_of_floats(g, input, weight)
    shares = fewest > 1 and most >= MANY_ROWS and g.int8_products  # the codes with a method of few rows
    return product_by_row(g, input, weight, bytes=False, codes=True) if shares else None


def products_of_experts(g: CpuGraph, matrices: Node, rows: Node) -> Callable[[ir.Value, int], ir.Value] | None:
    """`(x, expert) -> x @ matrices[expert]`, or None if the matrices, (experts, inner, outputs), have no form known
    here; `rows` are the rows of (experts, outputs, inner), one after the other."""
    if dtype_of(matrices) != torch.float32:
        return None
    parts = packed_parts(g, rows, g.int8_inputs)
    if not parts:
        return None
    _, inner, outputs = map(int, shape_of(matrices))  # of what is not packed they may be dynamic

    def product(x: ir.Value, expert: int) -> ir.Value:
        own = [part.some(g, expert * outputs, outputs) for part in parts]
        return _product_of_codes(g, x, 2, own, inner, g.int8_inputs)

    return product


def _of_codes(g: CpuGraph, input: Node, weight: Node) -> ir.Value | None:
    # The kernel for 4 bits dequantizes for many rows, and only if it rounds no input is that a product of floats.
    rounded = (g.int8_inputs or is_rounded(g, input)) and _rows(g, input)[0] < MANY_ROWS
    parts = packed_parts(g, weight, rounded)
    if not parts:
        return None
    return _product_of_codes(g, g.value(input), rank_of(input), parts, int(shape_of(weight)[1]), rounded)


def _product_of_codes(
    g: CpuGraph, x: ir.Value, rank: int, parts: Sequence[PackedPart], inner: int, rounded: bool
) -> ir.Value:
    first = parts[0]
    if first.filled_from:
        x, inner = _filled(g, x, rank, first), first.shape[1] * first.shape[2]
    return g.total([_matmul(g, x, part, inner, rounded) for part in parts])


def _filled(g: CpuGraph, x: ir.Value, rank: int, weight: PackedPart) -> ir.Value:
    """`x` with zeros behind the elements of each group, as the weight has been padded."""
    rows, groups = [0] * (rank - 1), weight.shape[1]
    parts = g.op("Reshape", x, g.ints([*rows, groups, weight.filled_from]))  # 0: keeps the size
    ends = [*[0] * rank, weight.shape[2] - weight.filled_from]
    filled = g.op("Pad", parts, g.ints([*[0] * (rank + 1), *ends]))
    return g.op("Reshape", filled, g.ints([*rows, groups * weight.shape[2]]))


def _matmul(g: CpuGraph, x: ir.Value, weight: PackedPart, inner: int, rounded: bool) -> ir.Value:
    return g.op(
        "MatMulNBits",
        x,
        weight.codes,
        weight.scales,
        weight.zero_points,
        domain=CONTRIB,
        K=inner,
        N=weight.shape[0],
        bits=weight.bits,
        block_size=weight.shape[2],
        accuracy_level=_ROUNDED if rounded else _FLOAT32,
    )


def _product_of_floats(g: CpuGraph, input: Node, node: Node) -> ir.Value | None:
    """Gemm on an int8 weight that is dequantized at run time: for a MatMul onnxruntime would round the input."""
    weight = constant_weight(g, node, 0)
    if weight is None or len(weight.shape) != 2 or weight.zero_point.any():
        return None
    rows, inner = weight.shape
    floats = g.op("DequantizeLinear", *weight.inputs, axis=0)
    product = g.op("Gemm", g.reshape(g.value(input), (-1, inner)), floats, transB=1)
    return g.reshape(product, (*shape_of(input)[:-1], rows), lambda: g.sizes_but_last(g.value(input), rows))


def _rows(g: CpuGraph, input: Node) -> tuple[int, float]:
    """The least and the largest number of rows of `input`."""
    *outer, _ = shape_of(input)
    bounds = [(size, size) if isinstance(size, int) else g.bounds(size) for size in outer]
    return prod(least for least, _ in bounds), prod(most for _, most in bounds)


MANY_ROWS: Final = 16
"""From this number of rows on (onnxruntime 1.31, one thread) one product of 4 bits with rounded inputs takes longer
than one of integers: 192 x 768 at 16 rows 165 us against 141, at 197 rows 2320 against 993. Two of 4 bits take longer
than one of floats, dequantized before, from 2 rows on: 768 x 768 238 us against 151, at 8 rows 361 against 215, at 15
507 against 322 (in float32, 90 and 161). Where there may be a single row as well, the same codes serve both."""

_FLOAT32: Final = 1
_ROUNDED: Final = 4
"""An `accuracy_level` of MatMulNBits: it rounds blocks of the input to int8. By default it computes in float32."""
