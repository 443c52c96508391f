"""Linear layers as products of integers. The program quantizes their rows at run time, each by itself (token by token)
or all together; or the rows are floats that are rounded to int8 here, each with a scale of its own, an option where
weights alone are quantized (`int8_inputs`, `int8_products`).

    x ── QuantizeLinear ── QGemm ── Mul ── Add bias
         with a scale of each row      that scale

    x ── Mul ── Add ── QuantizeLinear ── QGemm ── Sub ── Mul ── Add bias
         the program's scales and zero points     their part, from the weight's sums

    x ── DynamicQuantizeLinear ── QGemm ── Add bias
         a scale and a zero point for all rows; or they are known, and x comes as integers

onnxruntime multiplies integers several times faster than its products with codes, which unpack them. Codes of 4 bits
become int8 when a delegate is loaded (`delegraph_cpu/codes.py`), which takes three times their memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import (
    Granularity,
    Quantizations,
    QuantizeCall,
    named_arguments,
    operator_name,
    quantize_call,
)
from delegraph_cpu.aot.graph import CONTRIB, CpuGraph
from delegraph_cpu.aot.quantized.table import activation
from delegraph_cpu.aot.quantized.weights import KnownWeight, constant_weight
from delegraph_cpu.codes import MIDDLE, Codes
from delegraph_onnx.converters.quantization import chosen_as_it_comes
from delegraph_onnx.node_facts import shape_of

__all__ = ["is_rounded", "product_by_row"]


@dataclass(frozen=True, slots=True, eq=False)
class _Factors:
    """The inputs of a product of integers for a weight."""

    inputs: tuple[ir.Value, ir.Value, ir.Value]
    """The values, int8 (rows, inner), the scales, the zero points."""
    sums: ir.Value
    """float32 (rows,): the sums of the real weight."""


def is_rounded(g: CpuGraph, input: Node) -> bool:
    """Whether the program itself rounds the input to 8 bits: on a known grid, or one chosen at run time, token by token
    or for the whole tensor."""
    return any(rounding is not None for rounding in (activation(g, input), chosen_as_it_comes(input), _grids(input)))


def product_by_row(g: CpuGraph, input: Node, weight: Node, *, bytes: bool = True, codes: bool) -> ir.Value | None:
    """`input @ weight.T`, if the weight has 8 bits around 0 and `bytes` may be multiplied, or 4 bits and its `codes`
    may be unpacked."""
    factors = (_int8(g, weight) if bytes else None) or (_unpacked(g, weight) if codes else None)
    return None if factors is None else _product(g, input, factors, int(shape_of(weight)[0]))


def _product(g: CpuGraph, input: Node, weight: _Factors, outputs: int) -> ir.Value:
    *outer, _ = shape_of(input)
    known = [size for size in outer if isinstance(size, int)]
    count = prod(known) if len(known) == len(outer) else "rows"
    product = g.record(_product_of_rows(g, input, weight, count), [count, outputs])
    return g.reshape(product, (*outer, outputs), lambda: g.sizes_but_last(g.value(input), outputs))


def _product_of_rows(g: CpuGraph, input: Node, weight: _Factors, count: int | str) -> ir.Value:
    inner, known, whole = shape_of(input)[-1], activation(g, input), chosen_as_it_comes(input)
    if known is not None:
        integers, scale, zero_point = g.reshape(known[0].value, (count, inner)), *known[0].inputs(g)
        return g.op("QGemm", integers, scale, zero_point, *weight.inputs, domain=CONTRIB, transB=1)
    if whole is not None:
        x = g.reshape(g.tensor(whole, torch.float32), (count, inner))
        return g.op("QGemm", *g.ops("DynamicQuantizeLinear", 3, x), *weight.inputs, domain=CONTRIB, transB=1)
    grids = _grids(input)
    integers, steps, zeros = _rounded(g, input, count) if grids is None else _quantized(g, grids, count)
    product = g.op("QGemm", integers, *_unscaled(g), *weight.inputs, domain=CONTRIB, transB=1)
    if zeros is not None:
        # the integers are x / step + zero, and QGemm has no zero point for each row
        product = g.op("Sub", product, g.op("Mul", zeros, weight.sums))
    return g.op("Mul", product, steps)


# ---- rows of floats, and of what is quantized already --------------------------------------------------------------


_Rows = tuple[ir.Value, ir.Value, ir.Value | None]
"""uint8 (rows, inner), 128 being zero; float32 (rows, 1) steps; and float32 (rows, 1) zero points or None."""


def _rounded(g: CpuGraph, input: Node, count: int | str) -> _Rows:
    x = _matrix(g, input, count)
    steps = _steps(g, x)
    scale = g.reshape(steps, (count,))
    if isinstance(count, int):
        zero = g.constant(np.full(count, _ZERO, np.uint8))
    else:
        zero = g.op("Expand", g.constant(np.array(_ZERO, np.uint8)), g.op("Shape", scale))
    return g.op("QuantizeLinear", x, scale, zero, axis=0), steps, None


def _quantized(g: CpuGraph, grids: QuantizeCall, count: int | str) -> _Rows:
    of = 1 if grids.granularity is Granularity.TENSOR else count
    steps = _column(g, grids.scale, of)
    zeros = None if _is_zero(g, grids.zero_point) else _column(g, grids.zero_point, of)
    quantize = quantize_call(grids.source)
    if quantize is None or not _is_inverse(quantize, grids):
        # int8 as uint8, 128 higher: only the highest bit changes
        bits = g.cast(_matrix(g, grids.source, count), torch.uint8)
        return g.op("BitwiseXor", bits, g.constant(np.array(_ZERO, np.uint8))), steps, zeros
    # Multiply by the inverse as torch does: a row's lowest may be halfway between two integers, -127.5.
    counted = g.op("Mul", _matrix(g, quantize.source, count), g.op("Reciprocal", steps))
    moved = counted if zeros is None else g.op("Add", counted, zeros)
    return g.op("QuantizeLinear", moved, *_unscaled(g)), steps, zeros


def _unscaled(g: CpuGraph) -> tuple[ir.Value, ir.Value]:
    """A scale of 1, and the zero point."""
    return g.constant(np.array(1, np.float32)), g.constant(np.array(_ZERO, np.uint8))


def _matrix(g: CpuGraph, node: Node, count: int | str) -> ir.Value:
    return g.reshape(g.value(node), (count, shape_of(node)[-1]))


def _column(g: CpuGraph, parameter: object, count: int | str) -> ir.Value:
    assert isinstance(parameter, Node)
    return g.reshape(g.tensor(parameter, torch.float32), (count, 1))


def _grids(input: Node) -> QuantizeCall | None:
    """The call that dequantizes `input` from int8, with a grid for each row, or one for all, that is chosen at run
    time; perhaps with views behind it."""
    if operator_name(input) == "aten::view_copy":
        seen = input.args[0]
        assert isinstance(seen, Node)
        return _grids(seen) if shape_of(seen) and shape_of(seen)[-1] == shape_of(input)[-1] else None
    call = quantize_call(input)
    if call is None or call.quantizes or call.dtype != torch.int8 or not isinstance(call.scale, Node):
        return None
    if isinstance(call.zero_point, int) and call.zero_point:
        return None
    return call if call.granularity in (Granularity.TOKEN, Granularity.TENSOR) else None


def _is_inverse(quantize: QuantizeCall, grids: QuantizeCall) -> bool:
    """Whether `grids` dequantizes the result of `quantize`, which has all of 8 bits."""
    same = (quantize.scale, quantize.zero_point) == (grids.scale, grids.zero_point)
    return quantize.quantizes and same and (quantize.qmin, quantize.qmax) == (-128, 127)


def _is_zero(g: CpuGraph, zero_point: object) -> bool:
    if not isinstance(zero_point, Node):
        return not zero_point
    match operator_name(zero_point).partition(".")[0]:
        case "aten::view_copy" | "aten::view":
            return _is_zero(g, zero_point.args[0])
        case "aten::full" | "aten::full_like":
            return bool(named_arguments(zero_point)["fill_value"] == 0)
    known = g.constants.array(zero_point)
    return known is not None and not known.any()


_ZERO: Final = 128
"""The zero point in uint8: see `integers.py`."""
_LEAST_STEP: Final = float(np.finfo(np.float32).tiny)
"""The step of a row of zeros."""


def _steps(g: CpuGraph, x: ir.Value) -> ir.Value:
    """(rows, 1): the steps for which a row's largest magnitude is 127."""
    largest = g.op("ReduceMax", g.op("Abs", x), g.ints([-1]), keepdims=1)
    scaled = g.op("Mul", largest, g.constant(np.array(1 / 127, np.float32)))
    return g.op("Max", scaled, g.constant(np.array(_LEAST_STEP, np.float32)))


# ---- weights -------------------------------------------------------------------------------------------------------


def _int8(g: CpuGraph, node: Node) -> _Factors | None:
    weight = constant_weight(g, node, 0)
    if weight is None or len(weight.shape) != 2 or weight.zero_point.any():
        return None
    if isinstance(weight, KnownWeight):
        return _Factors(weight.inputs, _sums(g, weight.content, weight.scale))
    values, scales, _ = weight.inputs
    counted = g.op("ReduceSum", g.cast(values, torch.float32), g.ints([1]), keepdims=0)
    return _Factors(weight.inputs, g.op("Mul", counted, scales))


def _sums(g: CpuGraph, content: NDArray[np.int8], scale: NDArray[np.float32]) -> ir.Value:
    return g.constant(np.asarray(content.sum(1, dtype=np.int64) * scale, np.float32))


def _unpacked(g: CpuGraph, node: Node) -> _Factors | None:
    weight = Quantizations(g.constants).weight(node)
    if weight is None or weight.packed is None:
        return None
    rows, inner = weight.shape
    of = weight.quantization
    zero_point = of.zero_point.reshape(rows, -1).astype(np.uint8)
    scale = of.scale.reshape(rows, -1).astype(np.float32)
    if inner % 2 or inner % scale.shape[1]:
        return None
    codes = Codes(weight.packed.reshape(rows, -1), scale, None if (zero_point == MIDDLE).all() else zero_point)
    row_scale = codes.row_scale()
    content = codes.as_int8(row_scale)
    value = g.weight(node.name, content)
    g.codes[str(value.name)] = codes
    inputs = (value, g.constant(row_scale), g.weight(f"{node.name}.zeros", np.zeros(rows, np.int8)))
    return _Factors(inputs, _sums(g, content, row_scale))
