"""Convolutions; a zero padding before one becomes part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from torch.fx import Node

from delegraph.aot.authoring import per_dim, same_padding
from delegraph_onnx.converters.table import aten, convert_with, schema_arguments
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import rank_of, shape_of

PADDINGS = frozenset({aten("pad"), aten("constant_pad_nd")})


@convert_with("conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding", keep=True)
def conv(
    g: GraphBuilder,
    node: Node,
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> ir.Value:
    batched = rank_of(input) == rank_of(weight)
    source, attributes = geometry(input, weight, stride, padding, dilation, groups, look_through=batched)
    value = g.value(source) if batched else g.op("Unsqueeze", g.value(source), g.ints([0]))
    result = g.op("Conv", value, g.value(weight), None if bias is None else g.value(bias), **attributes)
    return result if batched else g.op("Squeeze", result, g.ints([0]))


def geometry(
    input: Node,
    weight: Node,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
    *,
    look_through: bool = True,
) -> tuple[Node, dict[str, Any]]:
    """What is convolved and the attributes of Conv, with `look_through` those of a padding before it among them."""
    dims = rank_of(weight) - 2
    dilations = per_dim(dilation, dims)
    if padding == "same":
        begins, ends = map(
            list, zip(*same_padding([int(size) for size in shape_of(weight)[2:]], dilations), strict=True)
        )
    else:
        begins = ends = [0] * dims if isinstance(padding, str) else per_dim(padding, dims)
    source, before, after = _without_padding(input, dims) if look_through else (input, [0] * dims, [0] * dims)
    pads = [a + b for a, b in zip(begins, before, strict=True)] + [a + b for a, b in zip(ends, after, strict=True)]
    return source, {"strides": per_dim(stride, dims), "pads": pads, "dilations": dilations, "group": groups}


def _pads_within_strides(
    node: Node, input: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, output_padding: Any, *_: object
) -> str | None:
    """onnxruntime holds an output padding that the stride cannot leave for an error; torch allows the dilation's."""
    dims = rank_of(weight) - 2
    pairs = zip(per_dim(output_padding, dims), per_dim(stride, dims), strict=True)
    return "an output padding as large as the stride" if any(0 < step <= pad for pad, step in pairs) else None


def _transposed_pads_within_strides(
    node: Node, input: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, *_: object,
) -> str | None:  # fmt: skip
    return _pads_within_strides(node, input, weight, bias, stride, padding, output_padding) if transposed else None


@convert_with("convolution _convolution", check=_transposed_pads_within_strides)
def convolution(
    g: GraphBuilder,
    node: Node,
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: object,
) -> ir.Value:
    if transposed:
        return _conv_transpose(g, node, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(g, node, input, weight, bias, stride, padding, dilation, groups)


@convert_with("conv_transpose1d conv_transpose2d.input conv_transpose3d.input", check=_pads_within_strides, keep=True)
def _conv_transpose(
    g: GraphBuilder,
    node: Node,
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> ir.Value:
    dims = rank_of(weight) - 2
    batched = rank_of(input) == rank_of(weight)
    value = g.value(input) if batched else g.op("Unsqueeze", g.value(input), g.ints([0]))
    result = g.op(
        "ConvTranspose",
        value,
        g.value(weight),
        None if bias is None else g.value(bias),
        strides=per_dim(stride, dims),
        pads=per_dim(padding, dims) * 2,
        output_padding=per_dim(output_padding, dims),
        dilations=per_dim(dilation, dims),
        group=groups,
    )
    return result if batched else g.op("Squeeze", result, g.ints([0]))


def _without_padding(input: Node, dims: int) -> tuple[Node, list[int], list[int]]:
    """What `input` pads with zeros, and by how much before and after each spatial dim; else itself and nothing."""
    none = [0] * dims
    if input.target not in PADDINGS:
        return input, none, none
    arguments = schema_arguments(input)
    source, amounts, mode, value = (
        (arguments[0], arguments[1], "constant", arguments[2]) if len(arguments) == 3 else arguments
    )
    if mode != "constant" or value not in (0, None) or len(amounts) > 2 * dims:
        return input, none, none
    if not all(isinstance(amount, int) and amount >= 0 for amount in amounts):
        return input, none, none
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]  # torch lists the last dim first
    pairs = [(0, 0)] * (dims - len(pairs)) + pairs
    source, before, after = (*_without_padding(source, dims),)
    return (
        source,
        [a + b[0] for a, b in zip(before, pairs, strict=True)],
        [a + b[1] for a, b in zip(after, pairs, strict=True)],
    )
