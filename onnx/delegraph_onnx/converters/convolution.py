"""Convolutions; a zero padding before one becomes part of it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from torch.fx import Node

from delegraph.aot.authoring import named_arguments, operator_name, per_dim, same_padding
from delegraph_onnx.converters.table import aten, convert_with, schema_arguments
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import rank_of, shape_of

PADDINGS = frozenset({aten("pad"), aten("constant_pad_nd")})


def is_transposed(node: Node) -> bool:
    """Whether `node` is a transposed convolution, of whatever name."""
    return bool(named_arguments(node).get("transposed", "transpose" in operator_name(node)))


def _pads_within_strides(node: Node, input: Node, weight: Node, *_: object) -> str | None:
    """onnxruntime refuses an output padding that is not below the stride; torch allows it below the dilation too."""
    told, dims = named_arguments(node), rank_of(weight) - 2
    if not is_transposed(node):
        return None
    pairs = zip(per_dim(told["output_padding"], dims), per_dim(told["stride"], dims), strict=True)
    return "an output padding as large as the stride" if any(0 < step <= pad for pad, step in pairs) else None


@convert_with("convolution _convolution", check=_pads_within_strides)
@convert_with(
    """conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input""",
    check=_pads_within_strides,
    keep=True,
)
def convolution(g: GraphBuilder, node: Node, input: Node, weight: Node, bias: Node | None, *_: object) -> ir.Value:
    transposed, batched = is_transposed(node), rank_of(input) == rank_of(weight)
    source, attributes = geometry(node, input, look_through=batched and not transposed)
    value = g.value(source) if batched else g.op("Unsqueeze", g.value(source), g.ints([0]))
    added = None if bias is None else g.value(bias)
    result = g.op("ConvTranspose" if transposed else "Conv", value, g.value(weight), added, **attributes)
    return result if batched else g.op("Squeeze", result, g.ints([0]))


def geometry(node: Node, input: Node, *, look_through: bool = True) -> tuple[Node, dict[str, Any]]:
    """The node that the convolution `node` of `input` reads, and the attributes of Conv or ConvTranspose. With
    `look_through` a zero padding before it becomes an attribute, and its source is the node."""
    told = named_arguments(node)
    dims = rank_of(told["weight"]) - 2
    dilations = per_dim(told["dilation"], dims)
    if told["padding"] == "same":
        kernel = [int(size) for size in shape_of(told["weight"])[2:]]
        begins, ends = map(list, zip(*same_padding(kernel, dilations), strict=True))
    else:
        begins = ends = [0] * dims if told["padding"] == "valid" else per_dim(told["padding"], dims)
    source, before, after = _without_padding(input, dims) if look_through else (input, [0] * dims, [0] * dims)
    pads = [a + b for a, b in zip(begins, before, strict=True)] + [a + b for a, b in zip(ends, after, strict=True)]
    more = {"output_padding": per_dim(told["output_padding"], dims)} if is_transposed(node) else {}
    strides = per_dim(told["stride"], dims)
    return source, {"strides": strides, "pads": pads, **more, "dilations": dilations, "group": told["groups"]}


def _without_padding(input: Node, dims: int) -> tuple[Node, list[int], list[int]]:
    """The source of a zero padding `input`, and the amounts before and after each spatial dim; else itself and 0."""
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
