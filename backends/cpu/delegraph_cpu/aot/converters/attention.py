"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.converters.table import convert_with
from delegraph_cpu.aot.dtypes import FLOATS
from delegraph_cpu.aot.graph_builder import GraphBuilder, dtype_of, rank_of, shape_of


def _inference(
    node: Node, query: Node, key: Node, value: Node, mask: Node | None, dropout_p: float, is_causal: bool, *_: object
) -> str | None:
    if dropout_p:
        return "dropout in training"
    if not isinstance(shape_of(query)[-1], int):
        return "the size of a head is dynamic"
    if is_causal and not all(isinstance(size, int) for size in (shape_of(query)[-2], shape_of(key)[-2])):
        return "a causal mask over dynamic lengths"
    return None


@convert_with("scaled_dot_product_attention", dtypes=FLOATS | {torch.bool}, check=_inference, keep=True)
def attention(
    g: GraphBuilder,
    node: Node,
    query: Node,
    key: Node,
    value: Node,
    attn_mask: Node | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> ir.Value:
    import os
    if os.environ.get("MHA") and rank_of(query)==4:
        B,N,S,D=shape_of(query); L=shape_of(key)[2]; DV=shape_of(value)[3]
        def flat(n,s,d): return g.reshape(g.transpose(g.value(n),[0,2,1,3]),[B,s,N*d])
        bias=_bias(g,query,key,attn_mask,is_causal,dtype_of(node))
        factor = 1 / math.sqrt(int(shape_of(query)[-1])) if scale is None else scale
        out=g.op("MultiHeadAttention",flat(query,S,D),flat(key,L,D),flat(value,L,DV),None,None,bias,domain="com.microsoft",num_heads=N,scale=float(factor))
        return g.transpose(g.reshape(out,[B,S,N,DV]),[0,2,1,3])
    dtype = dtype_of(node)
    factor = 1 / math.sqrt(int(shape_of(query)[-1])) if scale is None else scale
    rank = rank_of(key)
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    scores = g.op("MatMul", g.op("Mul", g.value(query), g.tensor(factor, dtype)), g.transpose(g.value(key), swapped))
    bias = _bias(g, query, key, attn_mask, is_causal, dtype)
    weights = g.op("Softmax", scores if bias is None else g.op("Add", scores, bias), axis=-1)
    return g.op("MatMul", weights, g.value(value))


def _bias(
    g: GraphBuilder, query: Node, key: Node, mask: Node | None, is_causal: bool, dtype: torch.dtype
) -> ir.Value | None:
    """What is added to the scores: the mask, 0 where attended and -inf elsewhere if it is a bool."""
    if is_causal:
        allowed = torch.ones(int(shape_of(query)[-2]), int(shape_of(key)[-2])).tril()
        bias = torch.zeros_like(allowed).masked_fill(allowed == 0, -math.inf)
        return g.constant(bias.to(dtype).numpy())
    if mask is None:
        return None
    if dtype_of(mask) != torch.bool:
        return g.value(mask)
    return g.op("Where", g.value(mask), g.tensor(0.0, dtype), g.tensor(-math.inf, dtype))
