"""The operators that lowering writes: how many inputs and outputs each has, and its attributes with types and values.

The table is made from onnxruntime's schemas: `pytest tests/test_onnx_operator_table.py --renew`.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from typing import Final

from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.graphs.attributes import allowed_integers, allowed_texts

__all__ = ["Attribute", "Operator", "operator", "operators"]

MOST: Final = 2**16
"""Inputs or outputs of an operator that takes any number."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute's type as in `onnx.proto`, in small letters, and its values; None: any of the type."""

    type: str
    values: Container[object] | None


@dataclass(frozen=True, slots=True)
class Operator:
    """Least and most inputs and outputs; the attributes by name, of which those in `required` must be there."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: dict[str, Attribute]
    required: frozenset[str]


@cache
def operator(domain: str, name: str) -> Operator | None:
    """The operator of that name; None if lowering writes no such one."""
    line = _lines().get((domain, name))
    return None if line is None else _operator(name, line)


def operators() -> dict[tuple[str, str], Operator]:
    """All operators, by domain and name."""
    return {(domain, name): _operator(name, line) for (domain, name), line in _lines().items()}


@cache
def _lines() -> dict[tuple[str, str], str]:
    """The table's line for each operator. A graph has few of them, and to read all takes as long as to load it."""
    lines = {}
    for line in _TABLE.replace("\n    ", " ").splitlines():
        called, _, told = line.partition(" ")
        domain, _, name = called.rpartition(".")
        lines[domain, name] = told
    return lines


def _operator(name: str, line: str) -> Operator:
    inputs, outputs, *told = line.split()
    types = dict(each.replace("!", "").split(":") for each in told)
    required = frozenset(each.partition("!")[0] for each in told if "!" in each)
    attributes = {attribute: Attribute(kind, _values(name, attribute, kind)) for attribute, kind in types.items()}
    return Operator(_range(inputs), _range(outputs), attributes, required)


def _values(operator: str, attribute: str, kind: str) -> Container[object] | None:
    if kind in ("int", "ints"):
        return allowed_integers(operator, attribute)
    return allowed_texts(attribute) if kind in ("string", "strings") else None


def _range(text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    return int(least), int(most or MOST)


_TABLE: Final = """\
Abs 1-1 1-1
Acos 1-1 1-1
Acosh 1-1 1-1
Add 2-2 1-1
And 2-2 1-1
ArgMax 1-1 1-1 axis:int keepdims:int select_last_index:int
ArgMin 1-1 1-1 axis:int keepdims:int select_last_index:int
Asin 1-1 1-1
Asinh 1-1 1-1
Atan 1-1 1-1
Atanh 1-1 1-1
Attention 3-6 1-4 is_causal:int kv_num_heads:int q_num_heads:int qk_matmul_output_mode:int scale:float softcap:float
    softmax_precision:int
AveragePool 1-1 1-1 auto_pad:string ceil_mode:int count_include_pad:int dilations:ints kernel_shape!:ints pads:ints
    strides:ints
BatchNormalization 5-5 1-3 epsilon:float momentum:float training_mode:int
BitShift 2-2 1-1 direction!:string
BitwiseAnd 2-2 1-1
BitwiseNot 1-1 1-1
BitwiseOr 2-2 1-1
BitwiseXor 2-2 1-1
Cast 1-1 1-1 saturate:int to!:int
Ceil 1-1 1-1
Celu 1-1 1-1 alpha:float
Clip 1-3 1-1
Col2Im 3-3 1-1 dilations:ints pads:ints strides:ints
Concat 1- 1-1 axis!:int
ConstantOfShape 1-1 1-1 value:tensor
Conv 2-3 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints strides:ints
ConvTranspose 2-3 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints output_padding:ints output_shape:ints
    pads:ints strides:ints
Cos 1-1 1-1
Cosh 1-1 1-1
CumSum 2-2 1-1 exclusive:int reverse:int
DFT 1-3 1-1 inverse:int onesided:int
DepthToSpace 1-1 1-1 blocksize!:int mode:string
DequantizeLinear 2-3 1-1 axis:int block_size:int output_dtype:int
Div 2-2 1-1
DynamicQuantizeLinear 1-1 3-3
Elu 1-1 1-1 alpha:float
Equal 2-2 1-1
Erf 1-1 1-1
Exp 1-1 1-1
Expand 2-2 1-1
Floor 1-1 1-1
GRU 3-6 0-2 activation_alpha:floats activation_beta:floats activations:strings clip:float direction:string
    hidden_size:int layout:int linear_before_reset:int
Gather 2-2 1-1 axis:int
GatherElements 2-2 1-1 axis:int
GatherND 2-2 1-1 batch_dims:int
Gelu 1-1 1-1 approximate:string
Gemm 2-3 1-1 alpha:float beta:float transA:int transB:int
GlobalAveragePool 1-1 1-1
GlobalMaxPool 1-1 1-1
Greater 2-2 1-1
GreaterOrEqual 2-2 1-1
GridSample 2-2 1-1 align_corners:int mode:string padding_mode:string
HardSigmoid 1-1 1-1 alpha:float beta:float
HardSwish 1-1 1-1
Identity 1-1 1-1
If 1-1 1- else_branch!:graph then_branch!:graph
InstanceNormalization 3-3 1-1 epsilon:float
IsInf 1-1 1-1 detect_negative:int detect_positive:int
IsNaN 1-1 1-1
LSTM 3-8 0-3 activation_alpha:floats activation_beta:floats activations:strings clip:float direction:string
    hidden_size:int input_forget:int layout:int
LayerNormalization 2-3 1-3 axis:int epsilon:float stash_type:int
LeakyRelu 1-1 1-1 alpha:float
Less 2-2 1-1
LessOrEqual 2-2 1-1
Log 1-1 1-1
LogSoftmax 1-1 1-1 axis:int
Loop 2- 1- body!:graph
MatMul 2-2 1-1
Max 1- 1-1
MaxPool 1-1 1-2 auto_pad:string ceil_mode:int dilations:ints kernel_shape!:ints pads:ints storage_order:int strides:ints
Min 1- 1-1
Mish 1-1 1-1
Mod 2-2 1-1 fmod:int
Mul 2-2 1-1
Neg 1-1 1-1
Not 1-1 1-1
Or 2-2 1-1
Pad 2-4 1-1 mode:string
Pow 2-2 1-1
QLinearConv 8-9 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints strides:ints
QLinearMatMul 8-8 1-1
QuantizeLinear 2-3 1-1 axis:int block_size:int output_dtype:int precision:int saturate:int
Range 3-3 1-1
Reciprocal 1-1 1-1
ReduceL1 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceL2 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceLogSum 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceLogSumExp 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceMax 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceMean 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceMin 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceProd 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceSum 1-2 1-1 keepdims:int noop_with_empty_axes:int
ReduceSumSquare 1-2 1-1 keepdims:int noop_with_empty_axes:int
Relu 1-1 1-1
Reshape 2-2 1-1 allowzero:int
Resize 1-4 1-1 antialias:int axes:ints coordinate_transformation_mode:string cubic_coeff_a:float exclude_outside:int
    extrapolation_value:float keep_aspect_ratio_policy:string mode:string nearest_mode:string
RotaryEmbedding 3-4 1-1 interleaved:int num_heads:int rotary_embedding_dim:int
Round 1-1 1-1
Scan 1- 1- body!:graph num_scan_inputs!:int scan_input_axes:ints scan_input_directions:ints scan_output_axes:ints
    scan_output_directions:ints
ScatterElements 3-3 1-1 axis:int reduction:string
ScatterND 3-3 1-1 reduction:string
Selu 1-1 1-1 alpha:float gamma:float
Shape 1-1 1-1 end:int start:int
Sigmoid 1-1 1-1
Sign 1-1 1-1
SimplifiedLayerNormalization 2-2 1-2 axis:int epsilon:float stash_type:int
Sin 1-1 1-1
Sinh 1-1 1-1
Size 1-1 1-1
Slice 3-5 1-1
Softmax 1-1 1-1 axis:int
Softplus 1-1 1-1
SpaceToDepth 1-1 1-1 blocksize!:int
Split 1-2 1- axis:int num_outputs:int
Sqrt 1-1 1-1
Squeeze 1-2 1-1
Sub 2-2 1-1
Tan 1-1 1-1
Tanh 1-1 1-1
Tile 2-2 1-1
TopK 2-2 2-2 axis:int largest:int sorted:int
Transpose 1-1 1-1 perm:ints
Trilu 1-2 1-1 upper:int
Unsqueeze 2-2 1-1
Where 3-3 1-1
Xor 2-2 1-1
com.microsoft.Attention 2-7 1-2 do_rotary:int mask_filter_value:float num_heads!:int past_present_share_buffer:int
    qkv_hidden_sizes:ints rotary_embedding_dim:int scale:float unidirectional:int
com.microsoft.BiasGelu 2-2 1-1
com.microsoft.BiasSoftmax 2-2 1-1 axis:int is_inner_broadcast!:int
com.microsoft.DequantizeLinear 2-3 1-1 axis:int
com.microsoft.DynamicQuantizeLSTM 12-12 0-3 activation_alpha:floats activation_beta:floats activations:strings
    clip:float direction:string hidden_size:int input_forget:int
com.microsoft.DynamicQuantizeMatMul 3-5 1-1
com.microsoft.EmbedLayerNormalization 7-9 1-3 epsilon:float mask_index_type:int
com.microsoft.FastGelu 1-2 1-1
com.microsoft.FusedConv 2-4 1-1 activation:string activation_params:floats auto_pad:string dilations:ints group:int
    kernel_shape:ints pads:ints strides:ints
com.microsoft.FusedGemm 2-3 1-1 activation:string activation_alpha:float activation_beta:float activation_gamma:float
    alpha:float beta:float transA:int transB:int
com.microsoft.FusedMatMul 2-2 1-1 alpha:float transA:int transB:int transBatchA:int transBatchB:int
com.microsoft.Gelu 1-1 1-1
com.microsoft.GroupQueryAttention 7-16 1-4 causal:int do_rotary:int k_quant_type:string kv_cache_bit_width:int
    kv_num_heads!:int local_window_size:int num_heads!:int qk_norm_epsilon:float qk_output:int rotary_interleaved:int
    scale:float sliding_window_cache:int smooth_softmax:int softcap:float v_quant_type:string
com.microsoft.MatMulIntegerToFloat 4-7 1-1
com.microsoft.MatMulNBits 3-6 1-1 K!:int N!:int accuracy_level:int bits:int block_size!:int weight_prepacked:int
com.microsoft.MultiHeadAttention 1-10 1-4 mask_filter_value:float num_heads!:int scale:float unidirectional:int
com.microsoft.QGemm 6-9 1-1 alpha:float transA:int transB:int
com.microsoft.QLinearAdd 7-8 1-1
com.microsoft.QLinearConcat 3- 1-1 axis!:int
com.microsoft.QLinearConv 8-9 1-1 auto_pad:string channels_last:int dilations:ints group:int kernel_shape:ints pads:ints
    strides:ints
com.microsoft.QLinearGlobalAveragePool 5-5 1-1 channels_last:int
com.microsoft.QLinearLeakyRelu 4-5 1-1 alpha:float
com.microsoft.QLinearMul 7-8 1-1
com.microsoft.QLinearSigmoid 4-5 1-1
com.microsoft.QuantizeLinear 2-3 1-1 axis:int
com.microsoft.QuickGelu 1-1 1-1 alpha:float
com.microsoft.RotaryEmbedding 4-4 1-1 interleaved:int is_packed_batching:int num_heads:int rotary_embedding_dim:int
    scale:float
com.microsoft.SkipSimplifiedLayerNormalization 3-4 1-4 epsilon:float
"""
"""A line: name, least and most inputs, least and most outputs, attributes; those with `!` are required."""
