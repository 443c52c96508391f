"""Convolutions -> OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import operator_name
from delegraph_openvino.aot.converters.quantized import on_grid, rounding
from delegraph_openvino.aot.graph_builder import GraphBuilder, shape_of
from delegraph_openvino.aot.rounded_values import bias_of
from delegraph_openvino.aot.table import converts

_PADDINGS: Final = ("aten::pad", "aten::constant_pad_nd")


def _batched(node: Node, x: Node, weight: Node, *_: Any) -> str | None:
    if len(shape_of(x)) != len(shape_of(weight)):
        return "its input has no batch"
    return None if all(isinstance(n, int) for n in shape_of(weight)) else "its weight's shape is not fixed"


@converts("conv1d.default", "conv2d.default", "conv3d.default", check=_batched, keep=True)
def convolution(
    g: GraphBuilder,
    node: Node,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Output:
    dims = len(shape_of(weight)) - 2
    pads = _each(padding, dims)
    return _convolved(g, x, weight, bias, _each(stride, dims), pads, pads, _each(dilation, dims), groups)


@converts("conv1d.padding", "conv2d.padding", "conv3d.padding", check=_batched, keep=True)
def padded_convolution(
    g: GraphBuilder,
    node: Node,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: str,
    dilation: Any,
    groups: int,
) -> Output:
    kernel = shape_of(weight)[2:]
    steps = _each(dilation, len(kernel))
    total = [step * (size - 1) if padding == "same" else 0 for step, size in zip(steps, kernel, strict=True)]
    before = [n // 2 for n in total]  # torch puts the odd one behind
    after = [n - b for n, b in zip(total, before, strict=True)]
    return _convolved(g, x, weight, bias, _each(stride, len(kernel)), before, after, steps, groups)


@converts("convolution.default", check=_batched)
def any_convolution(
    g: GraphBuilder, node: Node, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Output:  # fmt: skip
    if transposed:
        return transposed_convolution(g, node, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolution(g, node, x, weight, bias, stride, padding, dilation, groups)


@converts("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input", check=_batched, keep=True)
def transposed_convolution(
    g: GraphBuilder, node: Node, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> Output:  # fmt: skip
    dims = len(shape_of(weight)) - 2
    pads = _each(padding, dims)
    settings: dict[str, Any] = {
        "strides": _each(stride, dims),
        "pads_begin": pads,
        "pads_end": pads,
        "dilations": _each(dilation, dims),
        "output_padding": _each(output_padding, dims),
    }
    if groups == 1:
        result = g.op("convolution_backprop_data", x, weight, **settings)
    else:
        result = g.op("group_convolution_backprop_data", x, _grouped(g, weight, groups), **settings)
    return _biased(g, result, x, weight, bias)


def _convolved(
    g: GraphBuilder, x: Node, weight: Node, bias: Node | None, strides: Sequence[int], before: Sequence[int],
    after: Sequence[int], dilations: Sequence[int], groups: int,
) -> Output:  # fmt: skip
    value, begins, ends = _padding_taken(g, x, before, after)
    settings: dict[str, Any] = {
        "strides": list(strides),
        "pads_begin": begins,
        "pads_end": ends,
        "dilations": list(dilations),
    }
    if groups == 1:
        result = g.op("convolution", value, weight, **settings)
    else:
        grouped = _grouped(g, weight, groups)
        result = g.op("group_convolution", value, grouped, **settings)
    return _biased(g, result, x, weight, bias)


def _padding_taken(
    g: GraphBuilder, x: Node, before: Sequence[int], after: Sequence[int]
) -> tuple[Output, list[int], list[int]]:
    """What is convolved and how it is padded; zeros that are put around it before it is rounded are padding, too.

        convolution(dequantize(quantize(pad(y, 1, 1))), padding=0)
        convolution(dequantize(quantize(y)), padding=1)

    OpenVINO does that itself where nothing is rounded. In between, its pad would be one of floats.
    """
    settings: Sequence[Any] = x.args
    quantize = rounding(x)
    found = None if quantize is None else _zeros_around(quantize.args[0], len(before))
    if found is None or not settings[3] <= settings[2] <= settings[4]:  # zero is rounded to something else
        return g.value(x), list(before), list(after)
    y, *zeros = found
    begins, ends = ([a + b for a, b in zip(*sides, strict=True)] for sides in zip((before, after), zeros, strict=True))
    return on_grid(g, x, y), begins, ends


def _zeros_around(pad: Any, dims: int) -> tuple[Any, list[int], list[int]] | None:
    """Around what, if around anything, `pad` puts zeros in the last `dims` dims: how many in front, and behind."""
    if not isinstance(pad, Node) or operator_name(pad) not in _PADDINGS:
        return None
    settings: Sequence[Any] = pad.args
    y, amounts, *how = settings
    fixed = all(isinstance(n, int) and n >= 0 for n in amounts)
    if not fixed or len(amounts) > 2 * dims or not all(setting in ("constant", 0, None) for setting in how):
        return None
    outer = [0] * (dims - len(amounts) // 2)
    before, behind = (outer + list(amounts[side::2])[::-1] for side in (0, 1))
    return y, before, behind


def _grouped(g: GraphBuilder, weight: Node, groups: int) -> Output:
    """The weight with a dim for the groups in front."""
    first, *rest = shape_of(weight)
    return g.op("reshape", weight, g.vector([groups, first // groups, *rest]), special_zero=False)


def _biased(g: GraphBuilder, result: Output, x: Node, weight: Node, bias: Node | None) -> Output:
    added = bias_of(g, x, weight, bias, result.get_partial_shape()[1].get_length())
    if added is None:
        return result
    shape = [1, -1, *[1] * (len(shape_of(weight)) - 2)]
    return g.op("add", result, g.op("reshape", added, g.vector(shape), special_zero=False))


def _each(setting: Any, dims: int) -> list[int]:
    """A setting for each dim; one alone is for all."""
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * dims if len(values) == 1 else values
