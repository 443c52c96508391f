"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot.authoring import as_array, hides_nothing, named_arguments, sees_in_every_row
from delegraph_onnx.converters.table import convert_with, schema_arguments
from delegraph_onnx.dtypes import FLOATS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.graph_patterns import unrepeated
from delegraph_onnx.node_facts import Dim, are_known, dtype_of, rank_of, shape_of


def _inference(
    node: Node, query: Node, key: Node, value: Node, mask: Node | None, dropout_p: float, is_causal: bool, *_: object
) -> str | None:
    if dropout_p:
        return "dropout in training"
    if not isinstance(shape_of(query)[-1], int):
        return "the size of a head is dynamic"
    if _repetitions(query, key) is None:
        return "grouped heads of which the number is dynamic"
    return None


@convert_with(
    "scaled_dot_product_attention", dtypes=FLOATS | {torch.bool}, check=_inference, keep=True, needs_elements=True
)
def attention(
    g: GraphBuilder, node: Node, query: Node, key: Node, value: Node, attn_mask: Node | None, *_: object
) -> ir.Value:
    """onnxruntime's fused operator where it fits, else its parts."""
    factor, is_causal = scale_of(node), named_arguments(node)["is_causal"]
    content = None if attn_mask is None else g.constants.computed(attn_mask)
    if content is not None and hides_nothing(content):
        attn_mask = content = None
    fades = content is not None and g.target.slow_subnormals and _fades(content)
    whole = factor > 0 and not fades and (is_causal or _has_rows(g, query, key))  # the operator takes no other scale
    in_one = whole and g.target.has("Attention", torch.float32) and _fused(query, key, value, attn_mask)
    periodic = not in_one and attn_mask is not None and rank_of(attn_mask) == rank_of(node)
    bias, without_blind_rows = _masked(g, attn_mask, content, dtype_of(node), periodic)
    # the operator's causal mask is torch's only if there are as many rows as columns: otherwise it becomes a bias
    if is_causal and not (
        in_one and _fused(query, key, value, None) and str(shape_of(query)[-2]) == str(shape_of(key)[-2])
    ):
        bias = _causal_bias(g, query, key)
    # a bias here means that the operator's own causal mask was not used, or that there is another mask besides
    if in_one and not (is_causal and bias is not None):
        result = _in_one(g, query, key, value, bias, factor, is_causal)
    else:
        result = _from_primitives(g, node, query, key, value, bias, factor, fades)
    return without_blind_rows(result)


def scale_of(node: Node) -> float:
    """The factor by which an attention multiplies its scores."""
    query, *_, scale, _ = schema_arguments(node)
    return float(1 / math.sqrt(int(shape_of(query)[-1])) if scale is None else scale)


def _fused(query: Node, key: Node, value: Node, mask: Node | None) -> bool:
    """Whether Attention takes it: 4 dims, as many heads of one size everywhere, a mask with all its rows."""
    if any(rank_of(node) != 4 for node in (query, key, value)) or dtype_of(query) != torch.float32:
        return False
    if not all(isinstance(shape_of(node)[dim], int) for node in (query, key, value) for dim in (1, 3)):
        return False
    if len({shape_of(node)[1] for node in (query, key, value)}) > 1 or shape_of(query)[0] != shape_of(key)[0]:
        return False
    lengths = [str(shape_of(query)[2]), str(shape_of(key)[2])]
    return mask is None or (rank_of(mask) == 4 and [str(size) for size in shape_of(mask)[2:]] == lengths)


def _in_one(
    g: GraphBuilder, query: Node, key: Node, value: Node, bias: ir.Value | None, factor: float, is_causal: bool
) -> ir.Value:
    """ONNX's own operator. With a mask it takes 60 to 80 % of the time of MultiHeadAttention (onnxruntime
    1.31, one thread: 12 heads of 32 on 128 rows 587 us against 870, 3 of 64 on 197 rows 553 against 712)."""
    batch, heads, length, _ = shape_of(query)
    size = shape_of(value)[-1]
    once = unrepeated(key), unrepeated(value)
    keys, values = once if shape_of(once[0])[1] == shape_of(once[1])[1] else (key, value)
    joined = joined_heads(g, query), joined_heads(g, keys), joined_heads(g, values)
    rows = shape_of(key)[2]
    if bias is None and not is_causal and keys is key and isinstance(rows, int) and rows >= LONG_ROWS:
        attended = g.attention_to_long_rows(*joined, heads=int(heads), scale=factor)
    else:
        attended = g.op(
            "Attention",
            *joined,
            bias,
            q_num_heads=heads,
            kv_num_heads=shape_of(keys)[1],
            scale=factor,
            is_causal=int(is_causal),
        )
    return parted_heads(g, attended, [batch, heads, length, size])


def _has_rows(g: GraphBuilder, query: Node, key: Node) -> bool:
    """Whether there may be so many rows that the target's Attention is faster than its parts."""
    least = g.target.attention_from
    return any(not isinstance(rows, int) or rows >= least for rows in (shape_of(query)[-2], shape_of(key)[-2]))


LONG_ROWS: Final = 1024


def joined_heads(g: GraphBuilder, node: Node) -> ir.Value:
    """[batch, heads, length, size] -> [batch, length, heads * size], the layout from which models mostly come."""
    batch, heads, length, size = shape_of(node)
    return g.reshape(g.transpose(g.value(node), [0, 2, 1, 3]), [batch, length, heads * size])


def parted_heads(g: GraphBuilder, joined: ir.Value, shape: Sequence[Dim]) -> ir.Value:
    """[batch, length, heads * size] -> `shape`, [batch, heads, length, size]."""
    batch, heads, length, size = shape
    g.record(joined, [batch, length, heads * size])  # type: ignore[operator]
    parted = g.transpose(g.reshape(joined, [batch, length, heads, size]), [0, 2, 1, 3])
    return g.record(parted, shape)


def _from_primitives(
    g: GraphBuilder, node: Node, query: Node, key: Node, value: Node, bias: ir.Value | None, factor: float, fades: bool
) -> ir.Value:
    repetitions = _repetitions(query, key)
    assert repetitions is not None
    keys, values = (_repeat_heads(g, node, repetitions) for node in (key, value))
    # the query, not the scores: it is smaller
    scaled = g.op("Mul", g.value(query), g.tensor(factor, dtype_of(query)))
    scores = g.product_with_transposed(scaled, keys, rank_of(key))
    scores = scores if bias is None else _biased(g, node, key, scores, bias)
    if fades:
        best = g.op("ReduceMax", scores, g.ints([-1]), keepdims=1)
        scores = g.op("Max", scores, g.op("Sub", best, g.tensor(_NOTHING, dtype_of(query))))
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), values)


def _biased(g: GraphBuilder, node: Node, key: Node, scores: ir.Value, bias: ir.Value) -> ir.Value:
    """A mask that repeats along the batch is stored and read once: `[8, 64, …] + [64, …]` for `[512, …]`."""
    batch, *heads_and_rows, _ = shape_of(node)
    period = bias.shape[0] if bias.shape is not None and len(bias.shape) == rank_of(node) else 1
    if not isinstance(batch, int) or not isinstance(period, int) or period in (1, batch):
        return g.op("Add", scores, bias)
    inner = [*heads_and_rows, shape_of(key)[-2]]
    parts = g.reshape(scores, [batch // period, period, *inner])
    return g.reshape(g.op("Add", parts, bias), [batch, *inner])


# ---- grouped heads ------------------------------------------------------------------------------------------------


def _repetitions(query: Node, key: Node) -> int | None:
    """The number of heads of the query that share a head of the key; None if that is not known."""
    heads, groups = (shape_of(node)[-3] if rank_of(node) > 2 else 1 for node in (query, key))
    if str(heads) == str(groups) or groups == 1:
        return 1  # a single head is broadcast
    return heads // groups if isinstance(heads, int) and isinstance(groups, int) else None


def _repeat_heads(g: GraphBuilder, node: Node, repetitions: int) -> ir.Value:
    """[..., groups, length, size] -> [..., groups * repetitions, length, size], each head several times in a row."""
    if repetitions == 1:
        return g.value(node)
    *batch, groups, length, size = shape_of(node)
    ones = [1] * len(batch)
    raised = g.op("Unsqueeze", g.value(node), g.ints([-3]))
    expanded = g.op("Expand", raised, g.ints([*ones, 1, repetitions, 1, 1]))
    g.record(expanded, [*batch, groups, repetitions, length, size])
    return g.reshape(expanded, [*batch, groups * repetitions, length, size])


# ---- masks --------------------------------------------------------------------------------------------------------


def _causal_bias(g: GraphBuilder, query: Node, key: Node) -> ir.Value:
    """Row i attends to the columns up to i, whatever the lengths."""
    lengths = [shape_of(node)[-2] for node in (query, key)]
    if are_known(*lengths):
        return g.constant(torch.full(lengths, -math.inf, dtype=dtype_of(query)).triu(1).numpy())
    rows, columns = (g.size(g.value(node), rank_of(node) - 2) for node in (query, key))
    return causal_bias(g, rows, columns, g.tensor(0, torch.int64), dtype_of(query))


def causal_bias(g: GraphBuilder, rows: ir.Value, columns: ir.Value, first: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The bias (rows, columns), both sizes known at run time: row i sees the columns up to `first + i`."""
    step = g.tensor(1, torch.int64)
    last_seen = g.op("Unsqueeze", g.op("Range", first, g.op("Add", first, rows), step), g.ints([1]))
    seen = g.op("LessOrEqual", g.op("Range", g.tensor(0, torch.int64), columns, step), last_seen)
    return g.op("Where", seen, g.tensor(0.0, dtype), lowest(g, dtype))


_NOTHING: Final = 80.0
"""A score so far below its row's best weighs e^-80, 1e-35 of it: no sum of float32 changes by less."""
_FADED: Final = (-200.0, -60.0)


def _fades(content: torch.Tensor) -> bool:
    """Whether a mask hides by numbers such as Swin's -100: softmax makes subnormal weights of these, e^-100, which a
    processor multiplies a hundred times as slowly; scores that are cut off at e^-80 keep them normal (64 windows of 49
    rows, 3 heads of 32, onnxruntime 1.31, one thread: 3.0 ms, 1.7 without a mask, and 7.0 fused).
    """
    lowest, highest = _FADED
    return content.is_floating_point() and bool(((content > lowest) & (content < highest)).any())


def _masked(
    g: GraphBuilder, mask: Node | None, content: torch.Tensor | None, dtype: torch.dtype, periodic: bool
) -> tuple[ir.Value | None, Callable[[ir.Value], ir.Value]]:
    """The bias that `mask` adds to the scores, and a function that zeros the rows that see nothing, as torch does.

        mask ── Where 0, lowest ──> bias
        mask ── Cast ── ReduceMax ──> result ── Mul   ──>  nothing where each row is known to see something

    In a float mask such rows are -inf, and softmax makes NaN of them. `content` is the mask if it is a constant; then
    the bias is a constant too, and a mask that repeats along the batch is kept once where `periodic` says so.
    """
    if mask is None:
        return None, lambda result: result
    if content is not None and sees_in_every_row(content):
        known = _without_repetitions(content, periodic)
        if known.dtype == torch.bool:
            seen, hidden = torch.tensor(0.0, dtype=dtype), torch.tensor(torch.finfo(dtype).min, dtype=dtype)
            known = torch.where(known, seen, hidden)
        return g.constant(as_array(known)), lambda result: result
    is_bool = dtype_of(mask) == torch.bool
    bias = g.op("Where", g.value(mask), g.tensor(0.0, dtype), lowest(g, dtype)) if is_bool else g.value(mask)
    return bias, partial(_times_seen if is_bool else _where_seen, g, mask, bias, dtype)


def _without_repetitions(mask: torch.Tensor, periodic: bool) -> torch.Tensor:
    """A mask `[…, rows, columns]`, with size 1 along each earlier dim in which nothing changes; of a first dim that
    repeats, the part that is repeated, where `periodic` allows it:

        [8 * 64, 3, 49, 49]    Swin's 64 windows of 8 images    ──>    [64, 3, 49, 49]
    """
    for dim in range(mask.ndim - 2):
        first = mask.narrow(dim, 0, 1)
        if torch.equal(mask, first.expand_as(mask)):
            mask = first
    count = mask.shape[0] if periodic and mask.ndim > 2 else 1
    periods = (size for size in range(2, count) if count % size == 0)
    return next((mask[:size] for size in periods if _repeats(mask, size)), mask)


def _repeats(mask: torch.Tensor, size: int) -> bool:
    parts = mask.unflatten(0, (-1, size))
    return torch.equal(parts, parts[:1].expand_as(parts))


def lowest(g: GraphBuilder, dtype: torch.dtype) -> ir.Value:
    """The bias of a place that is not seen."""
    return g.tensor(torch.finfo(dtype).min, dtype)


def _times_seen(g: GraphBuilder, mask: Node, bias: ir.Value, dtype: torch.dtype, result: ir.Value) -> ir.Value:
    """`result` times 1, or 0 in rows without a True: a product takes a third of the time of Where."""
    seen = g.op("ReduceMax", g.cast(g.value(mask), dtype), g.ints([-1]), keepdims=1)
    return g.op("Mul", result, seen)


def _where_seen(g: GraphBuilder, mask: Node, bias: ir.Value, dtype: torch.dtype, result: ir.Value) -> ir.Value:
    nothing = g.tensor(-math.inf, dtype)
    if not g.target.has("ReduceMax", dtype):  # rows of -inf alone must be -inf
        seen = g.op("ReduceMax", g.cast(g.op("Greater", bias, nothing), dtype), g.ints([-1]), keepdims=1)
        return g.op("Where", g.cast(seen, torch.bool), result, g.tensor(0.0, dtype))
    best = g.op("ReduceMax", bias, g.ints([-1]), keepdims=1)
    return g.op("Where", g.op("Equal", best, nothing), g.tensor(0.0, dtype), result)
