"""Bags of embeddings: sums and means over rows that are picked from a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.indexing import places
from delegraph_onnx.converters.table import convert_named, only_first_result_used
from delegraph_onnx.dtypes import INDICES, INT64_MAX, REALS
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
    """A matrix of 0 and 1, that says which row is in which bag, times the rows: bags are few."""
    dtype = dtype_of(weight)
    rows = g.op("Gather", g.value(weight), places(g, indices), axis=0)
    if per_sample_weights is not None:
        rows = g.op("Mul", rows, g.op("Unsqueeze", g.value(per_sample_weights), g.ints([-1])))
    starts = g.op("Unsqueeze", g.tensor(offsets, torch.int64), g.ints([-1]))  # [bags, 1]
    count = g.op("Shape", g.value(indices))
    each = g.op("Range", g.tensor(0, torch.int64), g.reshape(count, []), g.tensor(1, torch.int64))
    begun = g.cast(g.op("GreaterOrEqual", each, starts), dtype)  # [bags, rows]
    later = g.op("Slice", begun, g.ints([1]), g.ints([INT64_MAX]), g.ints([0]))
    if include_last_offset:
        begun = g.op("Slice", begun, g.ints([0]), g.ints([-1]), g.ints([0]))
    else:
        later = g.op("Pad", later, g.ints([0, 1]), g.tensor(0.0, dtype), g.ints([0]))
    inside = g.op("Sub", begun, later)
    result = g.op("MatMul", inside, rows)
    if mode == MEAN:
        members = g.op("ReduceSum", inside, g.ints([1]), keepdims=1)
        result = g.op("Div", result, g.op("Max", members, g.tensor(1.0, dtype)))
    return [result, None, None, None]
