"""Elementwise operators -> sums, products, tables of functions, limits; softmax by its parts."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot import lifted_number, schema_arguments
from delegraph.aot.authoring import clamp_limits
from delegraph_machines.fixed_point import not_interpolated, table_of
from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import QuantizedCall, grid_of, operator_name, shape_of
from delegraph_npu.aot.folding import Folding
from delegraph_npu.aot.ir import Laid
from delegraph_npu.aot.layout import raised, rows
from delegraph_npu.aot.operators.table import Annotate, operator

__all__: list[str] = []


# ---- two tensors ----------------------------------------------------------------------------------------------------


def _check_binary(node: Node, a: Any, b: Any, alpha: Any = 1) -> str | None:
    if alpha != 1:
        return f"alpha is {alpha}: the NPU adds and subtracts without a factor"
    numbers = [number for number in map(number_of, (a, b)) if number is not None]
    if not numbers:
        return None
    if len(numbers) == 2 or not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        return f"of {' and '.join(map(str, numbers))}: the NPU computes tensors, with finite numbers beside them"
    return "times 0: there is nothing to compute" if operator_name(node) == "mul" and 0 in numbers else None


@operator("add sub mul", Annotate.VALUES, _check_binary, int16=True)
def binary(f: Folding, call: QuantizedCall, a: Any, b: Any, alpha: int = 1) -> Laid:
    """Both operands in the order of the larger one; a number is a tensor of one element."""
    return _binary(f, call, a, b, operator_name(call.head))


def _check_reversed(node: Node, a: Any, b: Any, alpha: Any = 1) -> str | None:
    return _check_binary(node, b, a, alpha)


@operator("rsub", Annotate.VALUES, _check_reversed, int16=True)
def reversed_sub(f: Folding, call: QuantizedCall, a: Any, b: Any, alpha: int = 1) -> Laid:
    """`b - a`."""
    return _binary(f, call, b, a, "sub")


def _check_div(node: Node, a: Any, b: Any, rounding_mode: str | None = None) -> str | None:
    number = number_of(b)
    if rounding_mode is not None:
        return f"a quotient that is rounded ({rounding_mode}): the NPU's are real"
    if number is None or number_of(a) is not None:
        return "division by a tensor: the NPU divides by a number"
    finite = isinstance(number, int | float) and math.isfinite(number) and number != 0 and math.isfinite(1 / number)
    return None if finite else f"division by {number}"


@operator("div", Annotate.VALUES, _check_div, int16=True)
def quotient(f: Folding, call: QuantizedCall, a: Any, b: Any, *options: Any) -> Laid:
    """The product with the reciprocal, which is exact."""
    number = number_of(b)
    assert isinstance(number, int | float)
    return _binary(f, call, a, 1 / number, "mul")


def number_of(operand: Any) -> complex | None:
    """The number that the user wrote as an operand; None for a tensor."""
    return lifted_number(operand) if isinstance(operand, Node) else operand


def _binary(f: Folding, call: QuantizedCall, a: Any, b: Any, kind: str) -> Laid:
    rank = len(shape_of(call.head))
    dtype = np.dtype(str(call.out.dtype).removeprefix("torch."))
    operands = [raised(_operand(f, operand, dtype), rank) for operand in (a, b)]
    order = max(operands, key=lambda laid: int(np.prod(laid.tensor.shape))).order
    tensors = tuple(f.ordered(laid, order).tensor for laid in operands)
    result = f.result(call, order)
    f.add(ir.Binary(call.head.name, tensors, result.tensor, *call.limits, kind))
    return result


def _operand(f: Folding, operand: Any, dtype: np.dtype[Any]) -> Laid:
    """A number is the largest integer, or its opposite, on a grid of its own: so it is exact."""
    number = number_of(operand)
    if number is None:
        return f.operand(operand)
    assert isinstance(number, int | float)
    most = int(np.iinfo(dtype).max)
    content = np.full((1, 1, 1, 1), int(np.sign(number)) * most, dtype)
    tensor = f.constant("number", content, abs(float(number)) / most if number else 1.0)
    return Laid(tensor, (), rows(0))


# ---- functions of one number ----------------------------------------------------------------------------------------

FUNCTIONS: Final = (
    "sigmoid tanh exp log log2 log10 log1p expm1 sqrt rsqrt reciprocal abs neg sin cos tan asin acos atan sinh cosh"
    " erf sign floor ceil round hardswish hardsigmoid gelu silu elu selu celu leaky_relu softplus mish logsigmoid"
    " softsign log_sigmoid square pow"
)
KEPT: Final = "hardswish hardsigmoid silu selu celu softplus mish square"
"""Functions that edge lowering would decompose."""


def _check_function(node: Node, input: Node, *arguments: Any) -> str | None:
    if any(isinstance(argument, Node) for argument in arguments):
        return "it depends on another tensor"
    grid = grid_of(input)
    if grid is None or grid.dtype != torch.int16:
        return None
    name = operator_name(node)
    if name == "pow" and arguments[0] < 0:
        return "an int16 table has lines between each 128th value, and pow has a pole at 0"
    low, high = ((step - grid.zero_point) * grid.scale for step in (grid.low, grid.high))
    return not_interpolated(name, low, high)


def function(f: Folding, call: QuantizedCall, input: Node, *arguments: Any) -> Laid:
    """A table of the operator itself, computed by torch for each integer (int8), or each 128th (int16)."""
    laid = f.settled(input)
    result = f.result(call, laid.order, laid.shape)
    entries = _entries(call, laid.tensor, result.tensor)
    f.add(ir.Table(call.head.name, (laid.tensor,), result.tensor, *call.limits, entries))
    return result


for _name in FUNCTIONS.split():
    _narrow = not_interpolated(_name, 0.0, 0.0)  # 0 is on every grid of int16
    _kept = _name if _name in KEPT.split() else ""
    operator(_name, Annotate.VALUES, _check_function, _kept, int16=_narrow is None, narrow=_narrow)(function)


def _entries(call: QuantizedCall, source: ir.Tensor, target: ir.Tensor) -> NDArray[Any]:
    def compute(numbers: NDArray[np.float64]) -> NDArray[Any]:
        arguments = list(schema_arguments(call.head))
        arguments[0] = torch.from_numpy(numbers)
        value = call.head.target(*_positional(call.head, arguments), **_keywords(call.head))  # type: ignore[operator]
        return np.asarray(value.numpy())

    dtype = source.dtype.type
    return np.asarray(table_of(compute, source.scale, source.zero_point, target.scale, target.zero_point, dtype))


def _positional(node: Node, arguments: list[Any]) -> list[Any]:
    return arguments[: max(len(node.args), 1)]


def _keywords(node: Node) -> dict[str, Any]:
    return dict(node.kwargs)


def _check_clamp(node: Node, *arguments: Any) -> str | None:
    return "its limits are tensors, or not numbers" if clamp_limits(node) is None else None


@operator("quantized_decomposed::quantize_per_tensor", Annotate.MOVES, int16=True)
@operator("relu relu6 hardtanh clamp", Annotate.MOVES, _check_clamp, "relu6", int16=True)
def clamp(f: Folding, call: QuantizedCall, input: Node, *arguments: Any) -> Laid:
    """The same integers, limited; on another grid if the result has one, as behind a quantize call alone."""
    laid = f.settled(input)
    result = f.result(call, laid.order, laid.shape)
    f.add(ir.Copy(call.head.name, (laid.tensor,), result.tensor, *call.limits))
    return result


# ---- softmax --------------------------------------------------------------------------------------------------------

_UNIT: Final = 1 / 32767
"""The grid of int16 for numbers up to 1."""


def _check_softmax(node: Node, input: Node, dim: int, *options: Any) -> str | None:
    along = shape_of(input)[dim] if shape_of(input) else 1
    return f"{along} elements along its dim: sums of int32 hold 65536 of int16" if along > 1 << 16 else None


@operator("softmax", Annotate.VALUES, _check_softmax)
def softmax(f: Folding, call: QuantizedCall, input: Node, dim: int, *options: Any) -> Laid:
    """Computed by parts, in int16 and int32, along the channels.

    d = (x - max x) * 128          int16, so that a table with an entry for each 128th has one for each d
    e = exp(d)                     int16 of 1 / 32767
    s = sum e                      int32
    z = leading zeros of s         int32
    m = (s << z) + 2**30           int32: s << z is in [1, 2) * 2**31, in 32 bits -2**31 to -1
    r = 1 / m                      int16
    y = e * r >> (31 - z)          int32 of 1 / 32767, then on the grid of the result
    """
    laid = f.operand(input)
    dims = [*range(len(laid.shape))]
    dims += [dims.pop(dim)] if dims else []
    order = rows(len(dims))
    n, h, w, c = (None if place is None else dims[place] for place in order)
    laid = f.ordered(laid, (n, h, w, c))
    result = f.result(call, laid.order, laid.shape)
    name, x = call.head.name, laid.tensor
    row = (*x.shape[:3], 1)

    def step(
        kind: type[ir.Operator], to: str, shape: ir.Shape, dtype: type, inputs: tuple[ir.Tensor, ...], *how: Any,
        scale: float = 1.0, zero_point: int = 0,
    ) -> ir.Tensor:  # fmt: skip
        out = f.between(to, shape, dtype, scale, zero_point)
        f.add(kind(name, inputs, out, *out.bounds, *how))
        return out

    def number(called: str, value: int) -> ir.Tensor:
        return f.constant(called, np.full((1, 1, 1, 1), value, np.int32))

    largest = step(ir.Reduce, "max", row, np.int8, (x,), "max", (3,), scale=x.scale, zero_point=x.zero_point)
    below = step(ir.Binary, "below", x.shape, np.int16, (x, largest), "sub", scale=x.scale / 128)
    entries = table_of(lambda v: np.exp(np.minimum(v, 0.0)), below.scale, 0, _UNIT, 0, np.int16)
    exponential = step(ir.Table, "exp", x.shape, np.int16, (below,), entries, scale=_UNIT)
    total = step(ir.Reduce, "sum", row, np.int32, (exponential,), "sum", (3,))
    zeros = step(ir.Unary, "zeros", row, np.int32, (total,), "count_leading_zeros")
    shifted = step(ir.Binary, "shifted", row, np.int32, (total, zeros), "shift_left")
    mantissa = step(ir.Binary, "mantissa", row, np.int32, (shifted, number("half", 1 << 30)), "add", scale=2.0**-15)
    index = step(ir.Copy, "index", row, np.int16, (mantissa,))
    entries = table_of(lambda v: 1 / (1 + (v + 32768) / 65536), 1.0, 0, _UNIT, 0, np.int16)
    inverse = step(ir.Table, "inverse", row, np.int16, (index,), entries, scale=_UNIT)
    places = step(ir.Binary, "places", row, np.int32, (number("bits", 31), zeros), "sub")
    product = step(ir.Binary, "product", x.shape, np.int32, (exponential, inverse), "mul")
    share = step(ir.Binary, "share", x.shape, np.int32, (product, places), "shift_right", scale=_UNIT)
    f.add(ir.Copy(name, (share,), result.tensor, *call.limits))
    return result
