"""`quantized_decomposed` calls -> ONNX: quantize and dequantize, and the choice of their parameters at run time.

Operators are known by their names: they are not registered in torch before somebody imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import Granularity, operator_name, quantize_call, schema_arguments
from delegraph_onnx.converters.table import Check, Convert, convert_named, name_of, unless
from delegraph_onnx.dtypes import ALL
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Affine, Integers, dequantized, quantized, shift_of, shifted, without_sign
from delegraph_onnx.node_facts import are_known, dtype_of, rank_of, shape_of

_F = TypeVar("_F", bound=Convert)

FLOAT, DOUBLE, INT64 = torch.float32, torch.float64, torch.int64


def _converts(*names: str, check: Check | None = None) -> Callable[[_F], _F]:
    return convert_named(*(f"quantized_decomposed::{name}" for name in names), dtypes=ALL, check=check)


# ---- by tensor ----------------------------------------------------------------------------------------------------


def _known_range(
    node: Node, input: Node, scale: object, zero_point: object, low: object, high: object, *_: object
) -> str | None:
    return None if isinstance(low, int) and isinstance(high, int) else "its range is not known"


@_converts("quantize_per_tensor", "quantize_per_tensor.tensor", "quantize_per_tensor.tensor2", check=_known_range)
def quantize_per_tensor(
    g: GraphBuilder, node: Node, input: Node, scale: Any, zero_point: Any, low: int, high: int, dtype: torch.dtype
) -> ir.Value:
    step, zero = _number(g, scale), _number(g, zero_point)
    if step is None or zero is None or dtype == torch.int32:
        parameters = (_scalar(g, scale), _scalar(g, zero_point))
        return _quantized(g, g.tensor(input, FLOAT), parameters, low, high, dtype)
    grid = Affine.of(step, int(zero), low, high, dtype, g.target.unsigned)
    integers = _on_grid(g, input, grid)
    g.integers[node] = integers
    return shifted(g, integers.value, dtype) if dtype in g.target.unsigned else integers.value


def _on_grid(g: GraphBuilder, input: Node, grid: Affine) -> Integers:
    """`input` on this grid. If it has the same scale and zero point already, its integers are clipped at most."""
    integers = g.integers.get(input)
    if not isinstance(integers, Integers) or integers.grid is None or integers.grid.full != grid.full:
        return Integers.on(quantized(g, g.tensor(input, FLOAT), grid), grid)
    if integers.grid.low >= grid.low and integers.grid.high <= grid.high:
        return integers
    limits = (g.constant(np.array(bound, grid.dtype)) for bound in (grid.low, grid.high))
    return Integers.on(g.op("Clip", integers.value, *limits), grid)


@_converts("dequantize_per_tensor", "dequantize_per_tensor.tensor", "dequantize_per_tensor.tensor2", check=_known_range)
def dequantize_per_tensor(
    g: GraphBuilder, node: Node, input: Node, scale: Any, zero_point: Any, *_: object
) -> ir.Value:
    step, zero = _number(g, scale), _number(g, zero_point)
    if step is None or zero is None:
        real = _rounded(g, node)
        if real is None:
            real = _dequantized(g, input, (_scalar(g, scale), _scalar(g, zero_point)), FLOAT)
        return g.cast(real, dtype_of(node))
    return _held(g, node, input, np.array(step, np.float32), np.array(zero, np.int64), None)


def _rounded(g: GraphBuilder, node: Node) -> ir.Value | None:
    """A value rounded to 8 bits of its own range: two operators in the place of twenty, which take longer than most
    convolutions; None if `node` is no such value."""
    call, source = quantize_call(node), chosen_as_it_comes(node)
    if call is None or call.choice is None or source is None or schema_arguments(call.choice)[3] > _FINEST:
        return None
    return g.op("DequantizeLinear", *g.ops("DynamicQuantizeLinear", 3, g.tensor(source, FLOAT)))


_FINEST: Final = 2**-12
"""The least scale of torchao's quantizers; Delegraph's is smaller, and onnxruntime has none: of a range below 0.06 it
makes a finer scale. A model that asks for a larger least scale needs it."""


def _held(
    g: GraphBuilder, node: Node, input: Node, scale: NDArray[Any], zero_point: NDArray[Any], axis: int | None
) -> ir.Value:
    """Record the integers that are dequantized; the value in float."""
    source, content = g.integers.get(input), g.parameter(input)
    if isinstance(source, Integers):  # a quantize call's: stored without a sign, where the target wants that
        shift = shift_of(dtype_of(input), g.target.unsigned)
        value, dtype = source.value, source.zero_point.dtype
    elif content is None and dtype_of(input) in g.target.unsigned and axis is None:
        shift = shift_of(dtype_of(input), g.target.unsigned)
        unsigned = without_sign(dtype_of(input))
        value, dtype = shifted(g, g.value(input), unsigned), np.dtype(str(unsigned).removeprefix("torch."))
    else:
        shift, value = 0, g.value(input)
        dtype = np.dtype(str(dtype_of(input)).removeprefix("torch."))
    limits = np.iinfo(dtype)
    low, high = (source.low, source.high) if isinstance(source, Integers) else (int(limits.min), int(limits.max))
    stored = np.asarray(zero_point + shift).astype(dtype)
    g.integers[node] = integers = Integers(value, scale, stored, axis, content, low, high)
    real = dequantized(g, integers)
    return real if dtype_of(node) == FLOAT else g.cast(real, dtype_of(node))


# ---- by channel ---------------------------------------------------------------------------------------------------


@_converts("quantize_per_channel", check=_known_range)
def quantize_per_channel(
    g: GraphBuilder, node: Node, input: Node, scales: Node, zero_points: Node, axis: int, low: int, high: int,
    dtype: torch.dtype,
) -> ir.Value:  # fmt: skip
    parameters = (_along(g, scales, axis, rank_of(node)), _along(g, zero_points, axis, rank_of(node)))
    return _quantized(g, g.tensor(input, FLOAT), parameters, low, high, dtype)


@_converts("dequantize_per_channel")
def dequantize_per_channel(
    g: GraphBuilder, node: Node, input: Node, scales: Node, zero_points: Node | None, axis: int, *_: object
) -> ir.Value:
    axis %= rank_of(input)
    scale = g.constants.array(scales)
    zero_point = np.zeros(shape_of(scales), np.int64) if zero_points is None else g.constants.array(zero_points)
    if scale is not None and zero_point is not None and _fits(zero_point, dtype_of(input)):
        return _held(g, node, input, scale.astype(np.float32), zero_point.astype(np.int64), axis)
    zeros = g.tensor(0, FLOAT) if zero_points is None else _along(g, zero_points, axis, rank_of(node))
    parameters = (_along(g, scales, axis, rank_of(node)), zeros)
    return g.cast(_dequantized(g, input, parameters, FLOAT), dtype_of(node))


def _fits(zero_point: NDArray[Any], dtype: torch.dtype) -> bool:
    limits = torch.iinfo(dtype)
    return (
        bool((np.round(zero_point) == zero_point).all())
        and limits.min <= zero_point.min() <= zero_point.max() <= limits.max
    )


def _along(g: GraphBuilder, parameters: Node, axis: int, rank: int) -> ir.Value:
    shape = [1] * rank
    shape[axis] = -1
    return g.op("Reshape", g.tensor(parameters, FLOAT), g.ints(shape))


# ---- by token and group -------------------------------------------------------------------------------------------


@_converts("quantize_per_token", check=_known_range)
def quantize_per_token(
    g: GraphBuilder, node: Node, input: Node, scales: Node, zero_points: Node, low: int, high: int, dtype: torch.dtype
) -> ir.Value:
    """As in torch, the zero point is added before rounding, and all is computed in the scales' dtype, often double."""
    compute = dtype_of(scales)
    steps = g.op("Mul", g.tensor(input, compute), g.op("Reciprocal", g.value(scales)))
    rounded = g.op("Round", g.op("Add", steps, g.tensor(zero_points, compute)))
    return _limited(g, rounded, low, high, compute, dtype)


@_converts("dequantize_per_token")
def dequantize_per_token(
    g: GraphBuilder, node: Node, input: Node, scales: Node, zero_points: Node, *_: object
) -> ir.Value:
    compute = dtype_of(scales)
    parameters = (g.value(scales), g.tensor(zero_points, compute))
    return g.cast(_dequantized(g, input, parameters, compute), dtype_of(node))


@_converts("dequantize_per_channel_group", check=unless(
    lambda node, input, *_: are_known(*shape_of(input)), "groups of a dynamic shape"))  # fmt: skip
def dequantize_per_channel_group(
    g: GraphBuilder, node: Node, input: Node, scales: Node, zero_points: Node | None, low: int, high: int,
    dtype: torch.dtype, group_size: int, *_: object,
) -> ir.Value:  # fmt: skip
    shape = [int(size) for size in shape_of(input)]
    groups = g.op("Reshape", g.value(input), g.ints([-1, group_size]))
    factors = g.op("Reshape", g.tensor(scales, FLOAT), g.ints([-1, 1]))
    zero = g.constant(np.array(0, np.float32))
    if zero_points is not None:
        zero = g.op("Reshape", g.tensor(zero_points, FLOAT), g.ints([-1, 1]))
    real = g.op("Mul", g.op("Sub", g.cast(groups, FLOAT), zero), factors)
    return g.cast(g.op("Reshape", real, g.ints(shape)), dtype_of(node))


# ---- parameters chosen at run time --------------------------------------------------------------------------------


@_converts(
    "choose_qparams.tensor",
    "choose_qparams_symmetric.tensor",
    check=lambda node, input, low, high, *_: _known_range(node, input, 0, 0, low, high),
)
def choose_qparams(
    g: GraphBuilder, node: Node, input: Node, low: int, high: int, eps: float, dtype: torch.dtype
) -> Sequence[ir.Value]:
    lowest, highest = _extremes(g, input, None)
    if name_of(node) == "choose_qparams_symmetric":
        largest = g.op("Max", g.op("Neg", lowest), highest)
        scale = g.op("Max", g.op("Div", largest, g.tensor((high - low) / 2, FLOAT)), g.tensor(eps, FLOAT))
        return _parameters(g, scale, g.tensor(128 if dtype == torch.uint8 else 0, FLOAT), [1])
    scale = g.op("Div", g.op("Sub", highest, lowest), g.tensor(high - low, FLOAT))
    scale = g.op("Max", scale, g.tensor(eps, FLOAT))
    zero_point = g.op("Sub", g.tensor(low, FLOAT), g.op("Round", g.op("Div", lowest, scale)))
    return _parameters(g, scale, _clipped(g, zero_point, low, high, FLOAT), [1])


@_converts("choose_qparams_per_token_asymmetric")
def choose_qparams_per_token_asymmetric(
    g: GraphBuilder, node: Node, input: Node, dtype: torch.dtype
) -> Sequence[ir.Value]:
    """The zero point is taken from the end of the range where it is more exact."""
    low, high = g.tensor(-128, FLOAT), g.tensor(127, FLOAT)
    lowest, highest = _extremes(g, input, -1)
    scale = g.op("Div", g.op("Sub", highest, lowest), g.tensor(255, FLOAT))
    scale = g.op("Max", scale, g.tensor(float(np.finfo(np.float32).eps), FLOAT))
    first, last = g.op("Div", lowest, scale), g.op("Div", highest, scale)
    error = g.op("Add", g.op("Add", low, first), g.op("Add", high, last))
    from_low, from_high = g.op("Sub", low, first), g.op("Sub", high, last)
    chosen = g.op("Where", g.op("Greater", error, g.tensor(0, FLOAT)), from_low, from_high)
    return _parameters(g, scale, g.op("Round", _clipped(g, chosen, -128, 127, FLOAT)), None)


def chosen_as_it_comes(input: Node) -> Node | None:
    """The source of `input` if that was quantized as a whole tensor to all of 8 bits, with parameters chosen from
    itself: `dequantize(quantize(value, *choose(value)), …)`, with the same parameters in both."""
    call = quantize_call(input)
    if call is None or call.quantizes or call.granularity is not Granularity.TENSOR:
        return None
    inner, parameters = quantize_call(call.source), (call.scale, call.zero_point)
    if inner is None or not inner.quantizes or (inner.scale, inner.zero_point) != parameters:
        return None
    choice = inner.choice
    if choice is None or choice.args[0] is not inner.source or not _is_asymmetric(choice):
        return None
    return inner.source if isinstance(call.zero_point, Node) and call.zero_point.args[0] is choice else None


def _is_asymmetric(choice: Node) -> bool:
    """Whether the range is all of 8 bits, with a zero point within it."""
    if operator_name(choice) != "quantized_decomposed::choose_qparams.tensor":
        return False
    _, low, high, _eps, dtype = schema_arguments(choice)
    return (low, high) == {torch.int8: (-128, 127), torch.uint8: (0, 255)}.get(dtype)


def _extremes(g: GraphBuilder, input: Node, axis: int | None) -> tuple[ir.Value, ir.Value]:
    """The lowest and the highest of `input` and 0, over all dims or along `axis`."""
    real, zero = g.tensor(input, FLOAT), g.tensor(0, FLOAT)
    axes = None if axis is None else g.ints([axis])
    lowest = g.op("ReduceMin", real, axes, keepdims=int(axis is not None))
    highest = g.op("ReduceMax", real, axes, keepdims=int(axis is not None))
    return g.op("Min", lowest, zero), g.op("Max", highest, zero)


def _parameters(g: GraphBuilder, scale: ir.Value, zero_point: ir.Value, shape: list[int] | None) -> Sequence[ir.Value]:
    values = [scale, zero_point] if shape is None else [g.op("Reshape", v, g.ints(shape)) for v in (scale, zero_point)]
    return [g.cast(values[0], DOUBLE), g.cast(values[1], INT64)]


# ---- arithmetic ---------------------------------------------------------------------------------------------------


def _quantized(
    g: GraphBuilder, real: ir.Value, parameters: tuple[ir.Value, ir.Value], low: int, high: int, dtype: torch.dtype
) -> ir.Value:
    """`clamp(round(real * (1 / scale)) + zero_point)` for parameters in float32 that are any values."""
    scale, zero_point = parameters
    steps = g.op("Round", g.op("Mul", real, g.op("Reciprocal", scale)))
    wide = DOUBLE if dtype == torch.int32 else FLOAT  # float32 does not hold the bounds
    moved = g.op("Add", steps, zero_point)
    return _limited(g, g.cast(moved, wide) if wide == DOUBLE else moved, low, high, wide, dtype)


def _limited(
    g: GraphBuilder, value: ir.Value, low: int, high: int, compute: torch.dtype, dtype: torch.dtype
) -> ir.Value:
    clipped = _clipped(g, value, low, high, compute)
    return g.cast(g.cast(clipped, torch.int32), dtype)  # onnxruntime casts floats to int8 by way of uint8


def _clipped(g: GraphBuilder, value: ir.Value, low: int, high: int, compute: torch.dtype) -> ir.Value:
    return g.op("Clip", value, *(g.tensor(float(bound), compute) for bound in (low, high)))


def _dequantized(g: GraphBuilder, input: Node, parameters: tuple[ir.Value, ir.Value], compute: torch.dtype) -> ir.Value:
    scale, zero_point = parameters
    return g.op("Mul", g.op("Sub", g.cast(g.value(input), compute), zero_point), scale)


def _scalar(g: GraphBuilder, parameter: Any) -> ir.Value:
    """A scale or zero point as a float32 scalar."""
    if not isinstance(parameter, Node):
        return g.tensor(parameter, FLOAT)
    return g.op("Reshape", g.tensor(parameter, FLOAT), g.ints([]))


def _number(g: GraphBuilder, parameter: Any) -> float | None:
    """A scale or zero point as a number, if it is known."""
    known = g.constants.number(parameter)
    return known if isinstance(known, int | float) else None
