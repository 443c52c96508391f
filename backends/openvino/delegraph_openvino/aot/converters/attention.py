"""Attention: its parts, which OpenVINO's CPU device compiles into one kernel, or OpenVINO's operator of that name.

    softmax(q * scale @ k.T + bias) @ v

Of the operator the device makes these parts itself, but it moves the keys first: models take 1 to 3 % longer with it
(OpenVINO 2026.4, rows up to 384). It is left to the device where long rows, or rows of unknown number, are computed
in pieces, and for causal masks, of which it needs no tensor.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import hides_nothing, schema_arguments, sees_in_every_row
from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import FLOATS, converts

MANY_ROWS: Final = 1024

LOWEST: Final = {dtype: torch.finfo(dtype).min for dtype in (torch.float16, torch.bfloat16)}
LOWEST[torch.float32] = LOWEST[torch.bfloat16]  # in which the device may compute, without an infinity
"""What is added to the score of a place that is not seen."""


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
    known = None if mask is None else g.constants.computed(mask)
    if known is not None and hides_nothing(known):
        mask = None
    factor = shape_of(query)[-1] ** -0.5 if scale is None else scale
    bias = None if mask is None else _bias(g, node, mask)
    whole = causal or not _is_short(query, key)
    result = _in_one(g, node, factor, bias, causal) if whole else _in_parts(g, node, factor, bias)
    if mask is None or (known is not None and sees_in_every_row(known)):
        return result
    return _without_blind_rows(g, node, mask, result)


def _in_parts(g: GraphBuilder, node: Node, factor: float, bias: Output | None) -> Output:
    query, key, value, *_ = schema_arguments(node)
    scaled = g.op("multiply", query, factor, dtype=dtype_of(node))
    scores = g.op("matmul", scaled, key, transpose_a=False, transpose_b=True)
    weights = g.op("softmax", scores if bias is None else g.op("add", scores, bias), axis=-1)
    return g.op("matmul", weights, value, transpose_a=False, transpose_b=False)


def _in_one(g: GraphBuilder, node: Node, factor: float, bias: Output | None, causal: bool) -> Output:
    """The operator takes a scale behind a mask only, and of the values' dtype: what is not usual comes before it. It
    has a batch: where the values have none, it is one of 1."""
    query, key, value, *_ = schema_arguments(node)
    usual = shape_of(query)[-1] ** -0.5
    scaled = query if factor == usual else g.op("multiply", query, factor / usual, dtype=dtype_of(node))
    masked = {} if bias is None else {"attention_mask": bias}
    batched = [
        g.op("unsqueeze", operand, g.vector([0])) if len(shape_of(side)) == 2 else operand
        for operand, side in ((scaled, query), (key, key), (value, value))
    ]
    result = g.op("scaled_dot_product_attention", *batched, causal=causal, **masked)
    return g.op("squeeze", result, g.vector([0])) if len(shape_of(node)) == 2 else result


def _is_short(query: Node, key: Node) -> bool:
    rows = shape_of(query)[-2], shape_of(key)[-2]
    return all(isinstance(size, int) and size <= MANY_ROWS for size in rows)


def _bias(g: GraphBuilder, node: Node, mask: Node) -> Output:
    """What is added to the scores."""
    if dtype_of(mask) != torch.bool:
        return g.value(mask)
    return g.op("select", mask, 0.0, LOWEST[dtype_of(node)], dtype=dtype_of(node))


def _without_blind_rows(g: GraphBuilder, node: Node, mask: Node, result: Output) -> Output:
    """0 in rows that see nothing, as torch has it, and neither NaN nor an average."""
    dtype = dtype_of(node)
    seen = g.value(mask) if dtype_of(mask) == torch.bool else g.op("greater", mask, -math.inf, dtype=dtype)
    return g.op("select", g.op("reduce_logical_or", seen, g.axis(-1), keep_dims=True), result, 0.0, dtype=dtype)
