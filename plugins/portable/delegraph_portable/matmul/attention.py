"""Multi-head attention and a whole transformer encoder layer, which torch's modules call in inference."""

from __future__ import annotations

from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    BOOL,
    DType,
    check_floating,
    check_one_of,
    check_same_dtype,
    compute_type,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, check_rank, check_shape

from ..library import kernel, prepare_out
from ..pointwise.activations import gelu, relu

_ATTENTION_MASK, _PADDING_MASK, _FULL_MASK = range(3)


@dataclass(frozen=True, slots=True)
class _ProjectedAttention:
    """The weights, and the mask in a shape that broadcasts to (N, heads, T, T); it is True where nothing is seen."""

    heads: int
    qkv_weight: Array
    qkv_bias: Array
    proj_weight: Array
    proj_bias: Array
    mask: Array | None

    def __call__(self, query: Array, key: Array, value: Array) -> tuple[Array, Array]:
        """(N, T, D) each -> (N, T, D), and the weights (N, heads, T, T); in the dtype of `query`."""
        dtype = query.dtype
        weights, biases = (np.split(array.astype(dtype, copy=False), 3) for array in (self.qkv_weight, self.qkv_bias))
        q, k, v = (
            self._by_head(x @ weight.T + bias)
            for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        scores = (q / dtype.type(q.shape[-1] ** 0.5)) @ k.swapaxes(-1, -2)
        if self.mask is not None:
            np.copyto(scores, -np.inf, where=self.mask)
        scores -= scores.max(-1, keepdims=True)  # NaN where everything is masked, as in torch
        np.exp(scores, scores)
        scores /= scores.sum(-1, keepdims=True)
        seen = (scores @ v).swapaxes(1, 2).reshape(query.shape)
        return seen @ self.proj_weight.astype(dtype, copy=False).T + self.proj_bias.astype(dtype, copy=False), scores

    def _by_head(self, x: Array) -> Array:
        n, t, d = x.shape
        return x.reshape(n, t, self.heads, d // self.heads).swapaxes(1, 2)


def _attention(
    query: Array,
    embed_dim: int,
    heads: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    mask: Array | None,
    mask_type: int | None,
    name: str,
) -> _ProjectedAttention:
    check_rank(query, (3,), name)
    check_floating(query, name)
    n, t, d = query.shape
    if heads < 1 or d != embed_dim or d % heads or 0 in query.shape:
        raise InvalidArgument(f"argument {name!r} of shape {query.shape} has no {heads} heads of {embed_dim} numbers")
    for array, shape, what in (
        (qkv_weight, (3 * d, d), "qkv_weight"),
        (qkv_bias, (3 * d,), "qkv_bias"),
        (proj_weight, (d, d), "proj_weight"),
        (proj_bias, (d,), "proj_bias"),
    ):
        check_same_dtype(array, what, query, name)
        check_shape(array, shape, what)
    spread = None if mask is None else _spread_mask(mask, mask_type, (n, heads, t, t))
    return _ProjectedAttention(heads, qkv_weight, qkv_bias, proj_weight, proj_bias, spread)


def _spread_mask(mask: Array, mask_type: int | None, scores: Shape) -> Array:
    n, _, t, _ = scores
    if mask.dtype != BOOL:
        raise InvalidType(f"argument 'mask' must be bool, but is {mask.dtype}")
    if mask.shape == scores:
        return mask
    check_one_of(mask_type, "mask_type", (_ATTENTION_MASK, _PADDING_MASK, _FULL_MASK))
    shapes: dict[int | None, Shape] = {_ATTENTION_MASK: (t, t), _PADDING_MASK: (n, t), _FULL_MASK: scores}
    check_shape(mask, shapes[mask_type], "mask")
    return mask[:, None, None] if mask_type == _PADDING_MASK else mask


@kernel("aten::_native_multi_head_attention.out")
def multi_head_attention(
    context: Context,
    query: Array,
    key: Array,
    value: Array,
    embed_dim: int,
    num_head: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    mask: Array | None,
    need_weights: bool,
    average_attn_weights: bool,
    mask_type: int | None,
    out0: Array,
    out1: Array,
) -> BoundCall:
    """(N, T, D), and where they are needed the weights (N, heads, T, T), or their mean over the heads."""
    attend = _attention(
        query, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type, "query"
    )
    for array, name in ((key, "key"), (value, "value")):
        check_same_dtype(array, name, query, "query")
        check_shape(array, query.shape, name)
    out0 = prepare_out(context, out0, query.dtype, query.shape, "out0")
    n, t, _ = query.shape
    if need_weights:
        shape = (n, t, t) if average_attn_weights else (n, num_head, t, t)
        out1 = prepare_out(context, out1, query.dtype, shape, "out1")
    compute = compute_type(query.dtype)

    def call() -> None:
        result, weights = attend(*(x.astype(compute, copy=False) for x in (query, key, value)))
        np.copyto(out0, result, casting="unsafe")
        if need_weights:
            np.copyto(out1, weights.mean(1) if average_attn_weights else weights, casting="unsafe")

    return call


# ---- encoder layer ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LayerNorm:
    weight: Array
    bias: Array
    eps: float

    def __call__(self, x: Array) -> Array:
        centered = x - x.mean(-1, keepdims=True)
        variance = np.square(centered).mean(-1, keepdims=True)
        normal = centered / np.sqrt(variance + x.dtype.type(self.eps))
        scaled: Array = normal * self.weight.astype(x.dtype, copy=False) + self.bias.astype(x.dtype, copy=False)
        return scaled


@kernel("aten::_transformer_encoder_layer_fwd.out")
def transformer_encoder_layer(
    context: Context,
    src: Array,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Array,
    norm_bias_1: Array,
    norm_weight_2: Array,
    norm_bias_2: Array,
    ffn_weight_1: Array,
    ffn_bias_1: Array,
    ffn_weight_2: Array,
    ffn_bias_2: Array,
    mask: Array | None,
    mask_type: int | None,
    out: Array,
) -> BoundCall:
    """src (N, T, D): attention and a feed-forward net, each added to its input, with norms before or after."""
    attend = _attention(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type, "src")
    check_rank(ffn_bias_1, (1,), "ffn_bias_1")
    d, hidden = src.shape[-1], len(ffn_bias_1)
    for array, shape, what in (
        (norm_weight_1, (d,), "norm_weight_1"),
        (norm_bias_1, (d,), "norm_bias_1"),
        (norm_weight_2, (d,), "norm_weight_2"),
        (norm_bias_2, (d,), "norm_bias_2"),
        (ffn_weight_1, (hidden, d), "ffn_weight_1"),
        (ffn_weight_2, (d, hidden), "ffn_weight_2"),
        (ffn_bias_2, (d,), "ffn_bias_2"),
    ):
        check_same_dtype(array, what, src, "src")
        check_shape(array, shape, what)
    out = prepare_out(context, out, src.dtype, src.shape)
    compute = compute_type(src.dtype)
    norms = _LayerNorm(norm_weight_1, norm_bias_1, eps), _LayerNorm(norm_weight_2, norm_bias_2, eps)
    hidden_layer = context.workspace((*src.shape[:-1], hidden), compute)
    activated = context.workspace(hidden_layer.shape, compute)
    activate = gelu(context, hidden_layer, "none", activated) if use_gelu else relu(context, hidden_layer, activated)
    cast = partial(_cast, compute)

    def feed_forward(x: Array) -> Array:
        np.matmul(x, cast(ffn_weight_1).T, hidden_layer)
        np.add(hidden_layer, cast(ffn_bias_1), hidden_layer)
        activate()
        result: Array = activated @ cast(ffn_weight_2).T
        return result + cast(ffn_bias_2)

    def call() -> None:
        first, second = norms
        x = cast(src)
        if norm_first:
            normal = first(x)
            x = x + attend(normal, normal, normal)[0]
            x = x + feed_forward(second(x))
        else:
            x = first(x + attend(x, x, x)[0])
            x = second(x + feed_forward(x))
        np.copyto(out, x, casting="unsafe")

    return call


def _cast(dtype: DType, array: Array) -> Array:
    return array.astype(dtype, copy=False)
