"""Linear layers of many rows whose weights alone are quantized, as products of integers: each row of the input is
rounded to int8 in steps of its own, which may be asked for (`int8_inputs`, `int8_products`).

    x ── QuantizeLinear ── QGemm ── Mul ── Add bias
         with a scale of each row      that scale

onnxruntime multiplies integers several times faster than what its products with codes unpack. Codes of 4 bits become
int8 when a delegate is loaded (`delegraph_cpu/codes.py`), which takes three times their memory.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
import onnx_ir as ir
from torch.fx import Node

from delegraph.aot.authoring import Quantizations
from delegraph_cpu.aot.graph_builder import GraphBuilder, shape_of
from delegraph_cpu.aot.quantized.values import CONTRIB
from delegraph_cpu.aot.quantized.weights import symmetric_weight
from delegraph_cpu.codes import MIDDLE, Codes

__all__ = ["product_by_row", "unpacked_product_by_row"]

_Factors = tuple[ir.Value, ir.Value, ir.Value]
"""A weight as products of integers take it: the values, (rows, inner), the scales, the zero points."""


def product_by_row(g: GraphBuilder, input: Node, weight: Node) -> ir.Value | None:
    """`input @ weight.T`, if the weight is of 8 bits around 0, or of 4 and `int8_products` is asked for."""
    factors = _int8(g, weight) or (_unpacked(g, weight) if g.int8_products else None)
    return None if factors is None else _product(g, input, factors, int(shape_of(weight)[0]))


def unpacked_product_by_row(g: GraphBuilder, input: Node, weight: Node) -> ir.Value | None:
    """The same for a weight of 4 bits alone, whose codes a method of few rows shares."""
    factors = _unpacked(g, weight) if g.int8_products else None
    return None if factors is None else _product(g, input, factors, int(shape_of(weight)[0]))


def _product(g: GraphBuilder, input: Node, factors: _Factors, outputs: int) -> ir.Value:
    *outer, inner = shape_of(input)
    known = [size for size in outer if isinstance(size, int)]
    count = prod(known) if len(known) == len(outer) else "rows"
    x = g.reshape(g.value(input), (count, inner))
    steps = _steps(g, x)
    scale = g.reshape(steps, (count,))
    integers = g.op("QuantizeLinear", x, scale, _zeros(g, scale, count), axis=0)
    one, zero = g.constant(np.array(1, np.float32)), g.constant(np.array(_ZERO, np.uint8))
    product = g.op("QGemm", integers, one, zero, *factors, domain=CONTRIB, transB=1)
    scaled = g.record(g.op("Mul", product, steps), [count, outputs])
    return g.reshape(scaled, (*outer, outputs), lambda: g.sizes_but_last(g.value(input), outputs))


def _zeros(g: GraphBuilder, scale: ir.Value, count: int | str) -> ir.Value:
    if isinstance(count, int):
        return g.constant(np.full(count, _ZERO, np.uint8))
    return g.op("Expand", g.constant(np.array(_ZERO, np.uint8)), g.op("Shape", scale))


_ZERO: Final = 128
"""In uint8: see `values.py`."""
_LEAST_STEP: Final = float(np.finfo(np.float32).tiny)
"""Of a row of zeros."""


def _steps(g: GraphBuilder, x: ir.Value) -> ir.Value:
    """(rows, 1): a row's largest magnitude is 127 of them."""
    largest = g.op("ReduceMax", g.op("Abs", x), g.ints([-1]), keepdims=1)
    scaled = g.op("Mul", largest, g.constant(np.array(1 / 127, np.float32)))
    return g.op("Max", scaled, g.constant(np.array(_LEAST_STEP, np.float32)))


def _int8(g: GraphBuilder, node: Node) -> _Factors | None:
    weight = symmetric_weight(g, node, 0)
    return None if weight is None or weight.content.ndim != 2 else weight.inputs


def _unpacked(g: GraphBuilder, node: Node) -> _Factors | None:
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
    value = g.weight(node.name, codes.as_int8(row_scale))
    g.codes[str(value.name)] = codes
    return value, g.constant(row_scale), g.weight(f"{node.name}.zeros", np.zeros(rows, np.int8))
