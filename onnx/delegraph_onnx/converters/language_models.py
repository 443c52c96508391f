"""Operators of ExecuTorch's language models: attention over a cache, and writing into it (`extension/llm/custom_ops`).

Caches are (batch, places, heads, size). A row sees the places before `start_pos` and its own row, of these the earlier
ones if it `is_causal`; with a mask it sees the places that the mask lets it see.

    keys ─ Slice(places that are full) ─┐
    query ──────────────────────────── Attention ──> (batch, rows, heads, size)
    start_pos ─ Range, LessOrEqual ─ Where ─┘           a single row sees all full places: no mask
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.attention import causal_bias
from delegraph_onnx.converters.scatter import put_rows
from delegraph_onnx.converters.table import convert_named, unless
from delegraph_onnx.dtypes import ALL, FLOATS
from delegraph_onnx.graph_builder import GraphBuilder, TensorLike
from delegraph_onnx.node_facts import are_known, dtype_of, shape_of

FLOAT, INT64 = torch.float32, torch.int64


@convert_named("llama::update_cache", dtypes=ALL, check=unless(
    lambda node, value, *_: are_known(shape_of(value)[0]), "a batch of a dynamic size"))  # fmt: skip
def update_cache(g: GraphBuilder, node: Node, value: Node, cache: Node, start_pos: TensorLike) -> Sequence[ir.Value]:
    """Rows are written in place; the first result is a number that nobody reads."""
    start = g.reshape(g.tensor(start_pos, INT64), [])
    # the operator has no negative places: they are moved behind the end, where ScatterND refuses them
    behind = g.op("Shape", g.value(cache), start=1, end=2)
    first = g.op("Where", g.op("Less", start, g.tensor(0, INT64)), g.reshape(behind, []), start)
    places = g.op("Range", first, g.op("Add", first, g.size(g.value(value), 1)), g.tensor(1, INT64))
    written = put_rows(g, g.value(cache), [int(shape_of(value)[0])], places, 1, g.value(value))
    return [g.filled(0, [1], dtype_of(value)), written]


def _attends(node: Node, query: Node, key: Node, value: Node, start: object, mask: object, dropout_p: float,
             is_causal: bool, *_: object) -> str | None:  # fmt: skip
    if dropout_p:
        return "dropout in training"
    if mask is not None and is_causal:
        return "a mask beside a causal one"
    heads, groups, size = shape_of(query)[2], shape_of(key)[2], shape_of(query)[3]
    return None if are_known(heads, groups, size) else "heads of a dynamic number or size"


def _heads_in_place(node: Node, query: Node, key: Node, value: Node, *rest: object) -> str | None:
    *grids, heads_first = rest[-7:]
    if heads_first:
        return "heads before rows"
    if any(grid is None for grid in grids):
        return "values without a scale"
    return _attends(node, query, key, value, *rest)  # type: ignore[arg-type]


@convert_named("llama::custom_sdpa", dtypes=FLOATS, check=_attends)
@convert_named("llama::custom_quantized_sdpa", dtypes=ALL, check=_heads_in_place)
def custom_sdpa(
    g: GraphBuilder, node: Node, query: Node, key: Node, value: Node, start_pos: TensorLike, mask: Node | None,
    dropout_p: float, is_causal: bool, scale: float | None, *grids: Node,
) -> ir.Value:  # fmt: skip
    """Only full places are read, and dequantized if there are zero points and scales."""
    full = None if mask is not None else _full_places(g, query, start_pos)
    of_query, of_key, of_value = grids[:2], grids[2:4], grids[4:6]

    def first_places(cache: Node) -> ir.Value:
        return g.value(cache) if full is None else g.op("Slice", g.value(cache), g.ints([0]), full, g.ints([1]))

    keys, values = (_real(g, *map(first_places, parts)) for parts in ((key, *of_key), (value, *of_value)))
    queries = _real(g, *map(g.value, (query, *of_query)))
    return _attended(g, query, queries, keys, values, key, start_pos, mask, is_causal, scale)


def _real(g: GraphBuilder, integers: ir.Value, *grid: ir.Value) -> ir.Value:
    """The real values of integers with zero points and scales; a real operand as it is."""
    if not grid:
        return integers
    zero_points, scales = grid
    moved = g.op("Sub", g.cast(integers, FLOAT), g.cast(zero_points, FLOAT))
    return g.op("Mul", moved, g.cast(scales, FLOAT))


def _full_places(g: GraphBuilder, query: Node, start_pos: TensorLike) -> ir.Value:
    """The number of full places after the query's rows are written."""
    return g.op("Add", g.reshape(g.tensor(start_pos, INT64), [1]), g.op("Shape", g.value(query), start=1, end=2))


def _attended(
    g: GraphBuilder, node: Node, query: ir.Value, keys: ir.Value, values: ir.Value, cache: Node, start_pos: TensorLike,
    mask: Node | None, is_causal: bool, scale: float | None,
) -> ir.Value:  # fmt: skip
    """ONNX's Attention on heads side by side; `node` is the query's."""
    rows = shape_of(node)[1]
    heads, size, groups = (int(dim) for dim in (*shape_of(node)[2:], shape_of(cache)[2]))
    joined = [
        g.op("Reshape", x, g.ints([0, 0, n * size])) for x, n in ((query, heads), (keys, groups), (values, groups))
    ]
    bias = None if mask is None else g.tensor(mask, FLOAT)
    if is_causal and rows != 1:
        first = g.reshape(g.tensor(start_pos, INT64), [])
        bias = causal_bias(g, g.size(query, 1), g.size(keys, 1), first, FLOAT)
    attended = g.op(
        "Attention",
        *joined,
        bias,
        q_num_heads=heads,
        kv_num_heads=groups,
        scale=1 / math.sqrt(size) if scale is None else float(scale),
    )
    return g.op("Reshape", attended, g.ints([0, 0, heads, size]))
