"""Attention in one call -> the products and the softmax that it is, so that a quantizer can give each of them a grid.

y = scaled_dot_product_attention(q, k, v, mask)

weights = softmax((q * scale) @ k.T + bias)       bias: the mask, or where(mask, 0, lowest) of one of bools
y       = weights @ v * any(mask)                 rows that see nothing are 0 in torch
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from delegraph.aot.graph.attention_masks import hides_nothing, only_shifts, sees_in_every_row
from delegraph.aot.graph.known_values import held_value
from delegraph.aot.graph.schema_binding import schema_arguments
from delegraph.aot.quantize.annotations import annotation_of
from delegraph.aot.quantize.rewrites.calls import calls_before

__all__ = ["cut_attention"]

aten = torch.ops.aten


def cut_attention(
    model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True, *, masked: bool = True
) -> None:
    """Replace, in place, the calls of `scaled_dot_product_attention` that `wanted` accepts by their parts: for the
    `transform_for_annotation` of a quantizer. With `masked=False`, those whose mask hides something stay whole.

    Whole stay, too, calls that are annotated, that drop values, hide what comes later (`is_causal`: that mask is no
    tensor), have fewer heads of keys than of queries, or a mask of floats from inputs, of which a row might hide all;
    and those of an unknown number of keys: the weights of a thousand keys are on another grid than those of ten.
    """
    for node in list(model.graph.nodes):
        if node.target is aten.scaled_dot_product_attention.default and wanted(node):
            mask = _mask_of(model, node)
            if mask is not None and (masked or not mask.hides):
                _cut(model, node, mask)
    model.graph.eliminate_dead_code()
    model.recompile()


@dataclass(frozen=True, slots=True)
class _Mask:
    """The tensor that is added to the scores, if any; whether it hides some, and whether there may be rows that see
    nothing."""

    tensor: Node | None = None
    hides: bool = False
    may_blind: bool = False


def _mask_of(model: GraphModule, node: Node) -> _Mask | None:
    """The mask of a call that can be cut; None of one that cannot."""
    query, key, value, mask, dropout, causal, *_ = schema_arguments(node)
    heads = {str(_tensor(operand).shape[:-2]) for operand in (query, key, value)}
    known = isinstance(_tensor(key).shape[-2], int) and isinstance(_tensor(key).shape[-1], int)
    if annotation_of(node) is not None or dropout or causal or len(heads) > 1 or not known:
        return None
    if mask is None:
        return _Mask()
    content = held_value(model, mask)
    if content is None:
        return _Mask(mask, hides=True, may_blind=True) if _tensor(mask).dtype == torch.bool else None
    if hides_nothing(content):
        return _Mask()
    blind = not sees_in_every_row(content)
    return None if blind and content.dtype != torch.bool else _Mask(mask, not only_shifts(content), blind)


def _cut(model: GraphModule, node: Node, mask: _Mask) -> None:
    query, key, value, _, _, _, scale, _ = schema_arguments(node)
    dtype = _tensor(query).dtype
    call = calls_before(node)
    scaled = call(aten.mul.Tensor, query, _tensor(query).shape[-1] ** -0.5 if scale is None else scale)
    scores = call(aten.matmul.default, scaled, call(aten.transpose.int, key, -1, -2))
    bias = mask.tensor
    if bias is not None and _tensor(bias).dtype == torch.bool:  # with -inf, a row that sees nothing would be NaN
        bias = call(aten.where.Scalar, bias, 0.0, torch.finfo(dtype).min)
    if bias is not None and _tensor(bias).dtype != dtype:
        bias = call(aten.to.dtype, bias, dtype)
    if bias is not None:
        scores = call(aten.add.Tensor, scores, bias)
    result = call(aten.matmul.default, call(aten.softmax.int, scores, -1), value)
    if mask.may_blind:
        result = call(aten.mul.Tensor, result, call(aten.any.dim, mask.tensor, -1, True))
    node.replace_all_uses_with(result)
    model.graph.erase_node(node)
    result.name = node.name  # which what is measured goes by


def _tensor(node: object) -> torch.Tensor:
    assert isinstance(node, Node)
    value: torch.Tensor = node.meta["val"]
    return value
