"""Calls that OpenVINO needs in a form of its own -> ONNX with its own operations; the table converts all others.

    q = quantize(x, s, z, low, high, int8)        FakeQuantize(x, …, low, high) -> Cast(int8)
    y = dequantize(q, s, z, …)                    Cast(float) -> Sub(z) -> Mul(s)
    y = dequantize(quantize(x, s, z), s, z)       FakeQuantize(x, …, …): its integers are OpenVINO's choice
    w = dequantize(weight, s, z, …)               int8 weight -> Cast(float) -> Sub(z) -> Mul(s)

On the CPU device a convolution or a matrix product of two such values is computed on integers: its low-precision
transformations match these patterns. Operators through which integers may not be moved stand behind `with_reals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot.authoring import Quantizations, named_arguments, operator_name, quantize_call, schema_arguments
from delegraph_onnx.converters import TABLE
from delegraph_onnx.converters.convolution import geometry, is_transposed
from delegraph_onnx.dtypes import INT64_MAX
from delegraph_onnx.graph_builder import Converted
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of
from delegraph_openvino.aot.graph import OpenVinoGraph
from delegraph_openvino.aot.operators import DOMAIN
from delegraph_openvino.aot.rounded_values import bias_of, fake_quantized, is_floating, roundings_behind, with_reals

__all__ = ["OpenVinoConverterGraph"]

Row = Callable[..., "Converted | None"]
_FLOAT: Final = torch.float32


class OpenVinoConverterGraph(OpenVinoGraph):
    """Adds the rows of this module."""

    def own(self, node: Node) -> Converted | None:
        """The value of a call that a row of this module converts; None if there is none, or it does not apply."""
        if node in self.known:
            return self.weight(node.name, self.known[node])
        if node in self.packed:
            return self.unpacked(node, self.packed[node])
        row = _ROWS.get(operator_name(node))
        return None if row is None else row(self, node, *schema_arguments(node))


# ---- quantize and dequantize --------------------------------------------------------------------------------------


def quantize(
    g: OpenVinoGraph, node: Node, x: Node, scale: float, zero: int, low: int, high: int, dtype: torch.dtype
) -> ir.Value:
    ends = (low - zero) * scale, (high - zero) * scale
    return g.cast(fake_quantized(g, g.tensor(x, _FLOAT), ends, (low, high), high - low + 1), dtype)


def dequantize(g: OpenVinoGraph, node: Node, x: Node, scale: float, zero: int, *_: Any) -> ir.Value:
    source = rounded_source(node)
    if source is not None:
        return on_grid(g, node, g.tensor(source, _FLOAT))
    zeros = g.constant(np.array(zero, np.float32)) if zero else None
    return dequantized(g, node, x, g.constant(np.array(scale, np.float32)), zeros)


def rounded_source(node: Node) -> Node | None:
    """The real source of a value that is quantized with a known scale and dequantized again; None for another node."""
    if node.op != "call_function" or operator_name(node) != "quantized_decomposed::dequantize_per_tensor":
        return None
    quantize = node.args[0]
    if not isinstance(quantize, Node) or quantize.args[1:6] != node.args[1:6]:
        return None
    if operator_name(quantize) != "quantized_decomposed::quantize_per_tensor":
        return None
    source = quantize.args[0]
    return source if isinstance(source, Node) else None


def on_grid(g: OpenVinoGraph, dequantize: Node, x: ir.Value) -> ir.Value:
    """Reals on the grid of some integers, which OpenVINO then chooses itself: signed or not, as a layer takes them. Its
    results are near the grid; a value that must be on it is rounded again."""
    settings: Sequence[Any] = dequantize.args
    _, scale, zero, low, high, *_ = settings
    ends = (low - zero) * scale, (high - zero) * scale
    value = fake_quantized(g, x, ends, ends, high - low + 1)
    if dequantize in g.to_the_bit:
        step = g.constant(np.array(scale, np.float32))
        value = g.op("Mul", g.op("Round", g.op("Div", value, step)), step)
    return value


def dequantized(g: OpenVinoGraph, node: Node, x: Node, scale: ir.Value, zero: ir.Value | None) -> ir.Value:
    value = g.cast(g.cast(g.value(x), torch.int32) if _is_recurrent_weight(node) else g.value(x), _FLOAT)
    return g.op("Mul", value if zero is None else g.op("Sub", value, zero), scale)


def _is_recurrent_weight(node: Node) -> bool:
    """Whether LSTMs and GRUs read `node`, perhaps in another shape: their kernels need constants of floats.

    OpenVINO keeps a product of converted bytes for its kernels for integers, and folds a product of wider integers.
    """
    users = [user for reader in node.users for user in (reader.users if operator_name(reader) in _VIEWS else (reader,))]
    return any(operator_name(user) in _RECURRENT for user in users)


_RECURRENT: Final = frozenset({"aten::lstm.input", "aten::gru.input"})
_VIEWS: Final = frozenset({"aten::view_copy", "aten::view"})


def dequantize_by_channel(
    g: OpenVinoGraph, node: Node, x: Node, scales: Node, zeros: Node | None, axis: int, *_: Any
) -> ir.Value:
    along = g.ints([-1 if dim == axis % rank_of(x) else 1 for dim in range(rank_of(x))])
    scale, zero = (None if part is None else g.op("Reshape", g.tensor(part, _FLOAT), along) for part in (scales, zeros))
    assert scale is not None
    return dequantized(g, node, x, scale, zero)


# ---- layers -------------------------------------------------------------------------------------------------------


def convolution(g: OpenVinoGraph, node: Node, x: Node, weight: Node, bias: Node | None, *_: Any) -> ir.Value:
    """A zero padding before the rounding of the input becomes the convolution's padding, too.

        convolution(dequantize(quantize(pad(y, 1, 1))), padding=0)
        convolution(dequantize(quantize(y)), padding=1)

    OpenVINO does so itself where nothing is rounded. Between both, its pad would compute on floats.
    """
    channels = node.meta["val"].shape[int(rank_of(node) == rank_of(weight))]
    added = bias_of(g, x, weight, bias, channels)
    padded = rounded_source(x)
    low, zero, high = (x.args[3], x.args[2], x.args[4]) if padded else (0, 0, 0)
    zero_is_exact = low <= zero <= high  # type: ignore[operator]
    row = TABLE[node.target]
    if not is_transposed(node) and _picks_single_pixels(node, weight):
        convolved: ir.Value = _of_single_pixels(g, node, x, weight)
    elif padded is None or is_transposed(node) or rank_of(x) != rank_of(weight) or not zero_is_exact:
        convolved = row.convert(g, node, x, weight, None)
    else:
        source, attributes = geometry(node, padded)
        value = on_grid(g, x, g.tensor(source, _FLOAT))
        convolved = g.op("Conv", value, g.value(weight), **attributes)
    if added is None:
        return convolved
    batch = [1] * (rank_of(x) == rank_of(weight))
    return g.op("Add", convolved, g.op("Reshape", added, g.ints([*batch, -1, *[1] * (rank_of(weight) - 2)])))


def _picks_single_pixels(node: Node, weight: Node) -> bool:
    """Whether `node` has a stride, and a padding that OpenVINO loses where it moves the stride to other operations."""
    told = named_arguments(node)
    strides, pads = (how if isinstance(how, list | tuple) else [how] for how in (told["stride"], told["padding"]))
    steps = any(step != 1 for step in strides) and any(pad not in (0, "valid") for pad in pads)
    return steps and all(size == 1 for size in shape_of(weight)[2:])


def _of_single_pixels(g: OpenVinoGraph, node: Node, x: Node, weight: Node) -> ir.Value:
    """The convolution of the pixels, which are picked before it."""
    batched, dims = rank_of(x) == rank_of(weight), rank_of(weight) - 2
    source, how = geometry(node, x, look_through=False)
    value = with_reals(g, source) if batched else g.op("Unsqueeze", with_reals(g, source), g.ints([0]))
    pads, axes = how["pads"], g.ints(range(2, 2 + dims))
    value = g.op("Pad", value, g.ints([0, 0, *pads[:dims], 0, 0, *pads[dims:]]))
    value = g.op("Slice", value, g.ints([0] * dims), g.ints([INT64_MAX] * dims), axes, g.ints(how["strides"]))
    result = g.op("Conv", value, g.value(weight), group=how["group"])
    return result if batched else g.op("Squeeze", result, g.ints([0]))


def linear(g: OpenVinoGraph, node: Node, x: Node, weight: Node, bias: Node | None) -> ir.Value:
    rows = multiplied(g, x, weight)
    is_vector = rank_of(x) == 1
    if is_vector:
        rows = g.op("Unsqueeze", rows, g.ints([0]))  # the result of OpenVINO's products of integers has a row anyway
    result = g.product_with_transposed(rows, g.value(weight), 2)
    added = bias_of(g, x, weight, bias, shape_of(weight)[0])
    if added is not None:
        result = g.op("Add", result, added)
    return g.op("Squeeze", result, g.ints([0])) if is_vector else result


def multiplied(g: OpenVinoGraph, x: Node, weight: Node) -> ir.Value:
    """`x`, or its source if it is rounded to 8 bits at run time: OpenVINO rounds in front of a product with a
    dequantized weight itself, by groups of 32 and not with one scale."""
    known = weight in g.packed or Quantizations(g.constants).weight(weight) is not None
    if not known or rounded_source(x) is not None:
        return g.value(x)
    source = _rounded_in_the_run(x)
    g.rounded, g.exact = g.rounded + (source is not None), g.exact + (source is None)
    return g.value(x) if source is None else g.tensor(source, dtype_of(x))


def _rounded_in_the_run(node: Node) -> Node | None:
    """The source of `node` if that is rounded to 8 bits with a scale chosen at run time, in float again; else None."""
    call = quantize_call(node)
    rounds = None if call is None or call.quantizes or not call.is_dynamic else quantize_call(call.source)
    if call is None or rounds is None or not rounds.quantizes or rounds.choice is not call.choice:
        return None
    return rounds.source if rounds.dtype in (torch.int8, torch.uint8) else None


# ---- what is computed on reals ------------------------------------------------------------------------------------


def clamp(g: OpenVinoGraph, node: Node, x: Node, low: Any = None, high: Any = None) -> Converted | None:
    """One operation where both limits are numbers, on reals: a limit lies between two integers."""
    if operator_name(node) == "aten::relu6":
        low, high = 0, 6
    if dtype_of(x) == dtype_of(node) == _FLOAT and None not in (low, high) and low <= high:
        return g.op("Clamp", with_reals(g, x), domain=DOMAIN, low=float(low), high=float(high))
    return on_reals(g, node, x, low, high)


def on_reals(g: OpenVinoGraph, node: Node, *arguments: Any) -> Converted | None:
    """The table's conversion, none of the operands being integers."""
    floats = [source for source in node.all_input_nodes if is_floating(source)]
    reals = {source: with_reals(g, source) for source in floats if roundings_behind(source)}
    if not reals:
        return None
    with g.standing_for(reals):
        converted: Converted = TABLE[node.target].convert(g, node, *arguments)
    return converted


def pad(g: OpenVinoGraph, node: Node, x: Node, amounts: Any, *how: Any) -> Converted | None:
    """A padding on reals: around integers it would be the integer next to the value, and for 0 the integer 0, where a
    single element is padded, even if the zero point is another."""
    settings: list[Sequence[Any]] = [call.args for call in roundings_behind(x)]
    shifted = any(zero not in (low, 0) for _, _, zero, low, *_ in settings)
    return on_reals(g, node, x, amounts, *how) if how[-1] or shifted else None


def average(
    g: OpenVinoGraph, node: Node, x: Node, kernel: Any, stride: Any, padding: Any, ceil: bool, *rest: Any
) -> Converted | None:
    """An average on reals: zeros would be other numbers among integers with a zero point."""
    pads = padding if isinstance(padding, list | tuple) else [padding]
    settings: list[Sequence[Any]] = [call.args for call in roundings_behind(x)]
    shifted = any(zero != low for _, _, zero, low, *_ in settings)
    counts_itself = ceil or (any(pads) and shifted)
    return on_reals(g, node, x, kernel, stride, padding, ceil, *rest) if counts_itself else None


# ---- what OpenVINO computes otherwise -------------------------------------------------------------------------------


def log1p(g: OpenVinoGraph, node: Node, x: Node) -> ir.Value:
    """Near 0 by way of 2 artanh(x / (2 + x)): OpenVINO simplifies (1 + x) - 1 to x."""
    value, unit, two = g.tensor(x, _FLOAT), g.tensor(1.0, _FLOAT), g.tensor(2.0, _FLOAT)
    near = g.op("Mul", g.op("Atanh", g.op("Div", value, g.op("Add", value, two))), two)
    return g.op("Where", _is_near_zero(g, value), near, g.op("Log", g.op("Add", value, unit)))


def expm1(g: OpenVinoGraph, node: Node, x: Node) -> ir.Value:
    """Near 0 as 2 exp(x / 2) sinh(x / 2)."""
    value = g.tensor(x, _FLOAT)
    half = g.op("Mul", value, g.tensor(0.5, _FLOAT))
    near = g.op("Mul", g.op("Mul", g.op("Exp", half), g.op("Sinh", half)), g.tensor(2.0, _FLOAT))
    return g.op("Where", _is_near_zero(g, value), near, g.op("Sub", g.op("Exp", value), g.tensor(1.0, _FLOAT)))


def _is_near_zero(g: OpenVinoGraph, value: ir.Value) -> ir.Value:
    return g.op("Less", g.op("Abs", value), g.tensor(0.5, _FLOAT))


_CONVOLUTIONS: Final = (
    *(f"conv{n}d{form}" for n in (1, 2, 3) for form in ("", ".padding")),
    *("convolution", "_convolution", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input"),
)
_ROWS: Final[dict[str, Row]] = {
    "quantized_decomposed::quantize_per_tensor": quantize,
    "quantized_decomposed::dequantize_per_tensor": dequantize,
    "quantized_decomposed::dequantize_per_channel": dequantize_by_channel,
    **{f"aten::{name}": convolution for name in _CONVOLUTIONS},
    "aten::linear": linear,
    "aten::log1p": log1p,
    "aten::expm1": expm1,
    **{f"aten::{name}": clamp for name in ("clamp", "hardtanh", "relu6")},
    **{f"aten::{name}": on_reals for name in ("clamp.Tensor", "maximum", "minimum")},
    **{f"aten::{name}": pad for name in ("pad", "constant_pad_nd")},
    **{f"aten::avg_pool{n}d": average for n in (1, 2, 3)},
}
