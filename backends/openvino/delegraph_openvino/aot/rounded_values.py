"""A value -> the rounded values whose integers OpenVINO may put in its place, and how that is prevented.

    dequantize ─> max_pool ─> cat ─> clamp       the clamp's operand may become integers
    dequantize ─> conv ─> + bias ─> clamp        a layer's result is reals

Its low-precision transformations move the scale and the zero point behind all operators between two layers. For some
that is wrong: a limit lies between two integers, padding is no integer, and scales by channel are not moved with the
channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Graph, Node

from delegraph.aot.authoring import operator_name
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import dtype_of
from delegraph_openvino.aot.operators import OPENVINO_DOMAIN

__all__ = [
    "PRODUCTS",
    "bias_of",
    "fake_quantized",
    "is_floating",
    "roundings_before_jumps",
    "roundings_behind",
    "with_reals",
]

PRODUCTS: Final = frozenset(
    f"aten::{name}"
    for name in (
        *("linear", "mm", "bmm", "matmul", "mv", "dot", "addmm", "baddbmm", "addmv", "addbmm"),
        "scaled_dot_product_attention",
        *("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    )
)
"""Layers and products: operators by their names without overloads."""


JUMPS: Final = frozenset(
    f"aten::{name}"
    for name in (
        *("sign", "floor", "ceil", "trunc", "round", "remainder", "fmod", "any", "all", "logical_not", "logical_and"),
        *("logical_or", "logical_xor", "eq", "ne", "lt", "le", "gt", "ge"),
    )
)
"""Operators whose results for 0 and for a tiny number differ."""


def roundings_before_jumps(graph: Graph) -> set[Node]:
    """The dequantize calls behind which an operator jumps: OpenVINO's rounding gives 1e-8 where the grid has 0."""
    jumping = (node for node in graph.nodes if node.op == "call_function" and _jumps(node))
    return {call for node in jumping for source in node.all_input_nodes for call in roundings_behind(source)}


def _jumps(node: Node) -> bool:
    name = operator_name(node)
    if name.endswith("_mode"):  # of a division, whose quotient is rounded
        return True
    gives_floats, takes_floats = (is_floating(value) for value in (node, next(iter(node.all_input_nodes), node)))
    return name.split(".")[0] in JUMPS or (takes_floats and not gives_floats and name.endswith("_copy"))


def is_floating(node: Node) -> bool:
    """Whether `node` has a tensor of floats."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def roundings_behind(value: Any) -> list[Node]:
    """The dequantize calls on which `value` depends through operators other than products."""
    roundings: list[Node] = []
    left = [value] if isinstance(value, Node) else []
    seen = set(left)
    while left:
        node = left.pop()
        name = operator_name(node)
        if name.startswith("quantized_decomposed::dequantize"):
            roundings.append(node)
        elif name.split(".")[0] not in PRODUCTS:
            new = [source for source in node.all_input_nodes if source not in seen]
            seen.update(new)
            left += new
    return roundings


def with_reals(g: GraphBuilder, value: Node) -> ir.Value:
    """`value` behind a Where that always chooses it, if integers may take its place: they move through no Where."""
    result, dtype = g.value(value), dtype_of(value)
    if not dtype.is_floating_point or not roundings_behind(value):
        return result
    least = g.tensor(-math.inf, dtype)
    return g.op("Where", g.op("Greater", result, least), result, least)


def bias_of(g: GraphBuilder, x: Node, weight: Node, bias: Node | None, channels: int | torch.SymInt) -> ir.Value | None:
    """The bias of the product of `x` and `weight`; zeros if there is none and OpenVINO may multiply integers: it moves
    scales by channel, as they are, through selections and sums, but through no bias."""
    if bias is not None and not _is_zero(g, bias):
        return g.value(bias)
    fixed = any(isinstance(call.args[1], float) for call in roundings_behind(x))  # scales known ahead of time
    on_integers = fixed and roundings_behind(weight)
    return _kept_zeros(g, int(channels)) if on_integers else None  # of a constant weight, whose sizes are numbers


def _is_zero(g: GraphBuilder, bias: Node) -> bool:
    content = g.constants.array(bias)
    return content is not None and not content.any()


def _kept_zeros(g: GraphBuilder, channels: int) -> ir.Value:
    """Zeros that are rounded, to zeros: OpenVINO removes a sum with plain zeros before it looks for integers, and moves
    dequantized zeros like scales. Each layer has its own: it is not joined with a bias that others read too."""
    zeros = g.op("Expand", g.constant(np.array(0, np.float32)), g.ints([channels]))
    return fake_quantized(g, zeros, (-1, 1), (-1, 1), 255)


def fake_quantized(
    g: GraphBuilder, value: ir.Value, ends: Sequence[float], results: Sequence[float], levels: int
) -> ir.Value:
    """FakeQuantize: `value` limited to `ends`, on the nearest of `levels` steps from one of `results` to the other."""
    bounds = [g.constant(np.array(end, np.float32)) for end in (*ends, *results)]
    return g.op("FakeQuantize", value, *bounds, domain=OPENVINO_DOMAIN, levels=levels)
