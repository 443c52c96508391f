"""Attention -> OpenVINO's, which its CPU device runs as one kernel."""

from __future__ import annotations

from typing import Any

import torch
from openvino import Output, opset15
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import FLOATS, converts


def _plain(
    node: Node,
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None,
    dropout: float,
    causal: bool,
    scale: Any,
    grouped: bool,
) -> str | None:
    if dropout:
        return "it drops values"
    if grouped and shape_of(query)[-3] != shape_of(key)[-3]:
        return "its queries and keys have different numbers of heads"
    return None if isinstance(shape_of(query)[-1], int) else "the size of its heads is not fixed"


@converts("scaled_dot_product_attention.default", dtypes=FLOATS | {torch.bool}, check=_plain, keep=True)
def attention(
    g: GraphBuilder, node: Node, query: Node, key: Node, value: Node, mask: Node | None, dropout: float, causal: bool,
    scale: float | None, grouped: bool,
) -> Output:  # fmt: skip
    mask_too = {} if mask is None else {"attention_mask": g.value(mask)}
    usual, scaled = shape_of(query)[-1] ** -0.5, g.value(query)
    if scale is not None and scale != usual:  # OpenVINO's takes one behind a mask only, and of the values' dtype
        scaled = g.op("multiply", query, scale / usual, dtype=dtype_of(node))
    made = opset15.scaled_dot_product_attention(scaled, g.value(key), g.value(value), causal=causal, **mask_too)
    result: Output = made.output(0)
    return result
