"""The capabilities of MNN, for converters to ONNX; and the table that the partitioner asks.

MNN takes more ONNX operators than it computes as torch does, and some end the process: the operators here were taken,
and right, in torch's operator database (`delegraph plugins check mnn --run --every-operator`, MNN 3.6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.fx import Node

from delegraph.aot.authoring import ConverterTable, operator_name, schema_arguments, tensors_of, used_results
from delegraph_mnn.blob import BACKEND_ID
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.converters.empty_results import is_empty
from delegraph_onnx.dtypes import INDICES
from delegraph_onnx.node_facts import rank_of
from delegraph_onnx.target import ANY, Target

__all__ = ["MNN", "TABLE"]

_FLOATS: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})

_TAKEN: Final = """
    abs acos acosh add addcdiv addcmul addmm asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh div elu erf
    exp exp2 expm1 floor gelu glu hardsigmoid hardswish hardtanh leaky_relu log log10 log1p log2 maximum minimum mul neg
    pow prelu reciprocal relu relu6 rsqrt rsub selu sigmoid silu sin sinh softplus sqrt square sub tan tanh trunc
    baddbmm bmm linear mm mv scaled_dot_product_attention
    convolution conv1d conv2d conv_transpose1d
    avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices
    _native_batch_norm_legit_no_training batch_norm group_norm layer_norm native_batch_norm native_group_norm
    native_layer_norm rms_norm
    _log_softmax _softmax log_softmax mean softmax sum var
    _clone_dim_order alias_copy cat clone constant_pad_nd expand_copy flip pad permute_copy pixel_shuffle
    reflection_pad1d reflection_pad2d repeat replication_pad1d replication_pad2d reshape roll select_copy slice_copy
    split_copy squeeze_copy stack t_copy transpose_copy tril triu unsafe_split unsqueeze_copy view_copy
    upsample_bilinear2d upsample_nearest1d upsample_nearest2d
    embedding
"""
"""Operators of floats, by their names without overload."""
_DEQUANTIZES: Final = frozenset({"dequantize_per_channel", "dequantize_per_tensor"})
"""Of weights, which MNN does when it is loaded."""
_BESIDE_FLOATS: Final[Mapping[str, frozenset[torch.dtype]]] = {
    "embedding": INDICES,
    "max_pool2d_with_indices": INDICES,
    "scaled_dot_product_attention": frozenset({torch.bool}),
}
"""The dtypes of places and masks that an operator reads or gives, too."""


def _of_volume(node: Node, *_: object) -> str | None:
    return "MNN has no convolutions of volumes that are right" if rank_of(node) > 4 else None


def _convolution(node: Node, *arguments: Any) -> str | None:
    transposed, groups = arguments[6], arguments[8]
    return _of_volume(node) or (_transposed(groups) if transposed else None)


def _transposed(groups: int) -> str | None:
    return "MNN's transposed convolutions are wrong with groups, or end the process" if groups > 1 else None


def _rounded_up(node: Node, *arguments: Any) -> str | None:
    return "MNN divides windows beyond the end by other numbers" if arguments[4] else None


def _with_places(node: Node, *arguments: Any) -> str | None:
    dilation = arguments[4]
    if any(rate > 1 for rate in ([dilation] if isinstance(dilation, int) else dilation)):
        return "MNN's pooling has no dilation"
    return "MNN's pooling gives no places" if 1 in used_results(node) else None


def _cut(_: Node, *arguments: Any) -> str | None:
    is_plain = all(isinstance(amount, int) and amount >= 0 for amount in arguments[1])
    return None if is_plain else "MNN's padding by less than 0 is wrong, and breaks its memory"


def _rounding(node: Node, *_: object) -> str | None:
    return "its quotient is rounded" if node.kwargs.get("rounding_mode") is not None else None


_CHECKS: Final[Mapping[str, Callable[..., str | None]]] = {
    "convolution": _convolution,
    "conv_transpose1d": lambda _, *arguments: _transposed(arguments[6]),
    "avg_pool1d": _rounded_up,
    "avg_pool2d": _rounded_up,
    "max_pool2d_with_indices": _with_places,
    "div": _rounding,
    **dict.fromkeys(["pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"], _cut),
    **dict.fromkeys(["replication_pad1d", "replication_pad2d"], _cut),
}


def _declined(node: Node) -> str | None:
    name = operator_name(node).partition("::")[2].partition(".")[0]
    if name in _DEQUANTIZES:
        is_weight = all(source.op in ("placeholder", "get_attr") for source in node.all_input_nodes)
        return None if is_weight else "of values MNN computes no integers"
    if name not in _TAKEN.split():
        return "it is not among the operators that MNN was found to compute as torch does"
    admitted = _FLOATS | _BESIDE_FLOATS.get(name, frozenset())
    other = {tensor.dtype for tensor in tensors_of(node)} - admitted
    if other:
        return f"MNN computes floats here, not {', '.join(sorted(map(str, other)))}"
    if any(map(is_empty, tensors_of(node))):
        return "MNN has no empty tensors"
    check = _CHECKS.get(name)
    return None if check is None else check(node, *schema_arguments(node))


MNN: Final = Target(
    BACKEND_ID,
    producer="delegraph-mnn",
    dtypes=_FLOATS | INDICES | {torch.int8, torch.bool},
    unsigned=frozenset(),
    lacks=dict.fromkeys(("Attention", "RotaryEmbedding", "SimplifiedLayerNormalization", "Gelu"), ANY),
    slow_subnormals=False,
    exact_max_pool=True,  # but for NaN: the README says so
    recurrent_nan=True,
    refuses_places=False,  # the runtime half looks at them
    negative_places=frozenset(),
    partial_gather=False,
    pad_modes=frozenset({"constant", "reflect", "edge"}),
    loops=False,
    external_weights=True,
    declines=_declined,
)

TABLE: Final[ConverterTable] = TargetTable(MNN)
