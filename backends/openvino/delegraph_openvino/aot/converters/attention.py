"""Attention -> OpenVINO's, which its CPU device runs as one kernel."""

from __future__ import annotations

from typing import Any

import torch
from openvino import Output, opset15
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, shape_of
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
    return None


@converts("scaled_dot_product_attention.default", dtypes=FLOATS | {torch.bool}, check=_plain, keep=True)
def attention(
    g: GraphBuilder, node: Node, query: Node, key: Node, value: Node, mask: Node | None, dropout: float, causal: bool,
    scale: float | None, grouped: bool,
) -> Output:  # fmt: skip
    operands: dict[str, Any] = {}
    if mask is not None:
        operands["attention_mask"] = g.value(mask)
    if scale is not None:
        operands.setdefault("attention_mask", g.cast(0.0, torch.float32))
        operands["scale"] = g.cast(float(scale), torch.float32)
    made = opset15.scaled_dot_product_attention(g.value(query), g.value(key), g.value(value), causal=causal, **operands)
    result: Output = made.output(0)
    return result
