"""Bags of embeddings: sums and means over rows that are picked from a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.indexing import places
from delegraph_onnx.converters.table import convert_named, only_first_result_used
from delegraph_onnx.dtypes import INDICES, REALS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import dtype_of

SUM: Final = 0
MEAN: Final = 1
"""torch's `EmbeddingBagMode`; the third is the maximum."""


def _sums(node: Node, *args: object) -> str | None:
    mode, padding = args[4], args[8] if len(args) > 8 else -1
    if mode not in (SUM, MEAN):
        return "the maximum of a bag"
    if padding != -1:
        return "a row that pads"
    return only_first_result_used(node)


@convert_named("aten::_embedding_bag", "aten::_embedding_bag_forward_only", dtypes=REALS | INDICES, check=_sums)
def embedding_bag(
    g: GraphBuilder,
    node: Node,
    weight: Node,
    indices: Node,
    offsets: Node,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Node | None,
    include_last_offset: bool,
    *_: object,
) -> Sequence[ir.Value | None]:
    """Every row is added to the sum of its bag, the last bag that begins before it."""
    dtype = dtype_of(weight)
    rows = g.op("Gather", g.value(weight), places(g, indices), axis=0)
    if per_sample_weights is not None:
        rows = g.op("Mul", rows, g.op("Unsqueeze", g.value(per_sample_weights), g.ints([-1])))
    starts = g.tensor(offsets, torch.int64)
    bags, count = g.op("Shape", starts), g.op("Shape", g.value(indices))
    each = g.op("Range", g.tensor(0, torch.int64), g.reshape(count, []), g.tensor(1, torch.int64))
    begun = g.cast(g.op("GreaterOrEqual", each, g.op("Unsqueeze", starts, g.ints([-1]))), torch.int64)  # [bags, rows]
    bag = g.op("Sub", g.op("ReduceSum", begun, g.ints([0]), keepdims=0), g.ints([1]))

    def summed(parts: ir.Value, size: Sequence[ir.Value]) -> ir.Value:
        nothing = g.op("Expand", g.tensor(0.0, dtype), g.op("Concat", bags, *size, axis=0))
        sums = g.op("ScatterND", nothing, g.op("Unsqueeze", bag, g.ints([-1])), parts, reduction="add")
        if include_last_offset:  # where the last bag ends
            sums = g.op("Slice", sums, g.ints([0]), g.ints([-1]), g.ints([0]))
        return sums

    result = summed(rows, [g.op("Shape", g.value(weight), start=1)])
    if mode == MEAN:
        members = summed(g.op("Expand", g.tensor(1.0, dtype), count), [])
        members = g.op("Max", members, g.tensor(1.0, dtype))
        result = g.op("Div", result, g.op("Unsqueeze", members, g.ints([-1])))
    return [result, None, None, None]
