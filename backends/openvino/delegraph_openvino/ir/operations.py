"""The operations of OpenVINO that lowering writes: how many inputs and outputs each has, and its attributes by version.

What comes with OpenVINO's opsets is in the table, which is made of its own descriptions:
`pytest tests/test_openvino_operation_table.py --renew`. None reads a file, loops, or belongs to an extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

__all__ = ["ARITIES", "Attributes", "operations"]

Attributes = dict[str, str]
"""Names -> kinds of values: `bool`, `int`, `float`, `ints`, `floats`, `text`, `texts`, `type`."""

MOST: Final = 2**12
"""Inputs or outputs of an operation that takes any number."""

_INPUTS: Final = {
    (0, 0): "Const Parameter",
    (1, 1): """
        Abs Acos Acosh Asin Asinh Atan Atanh AvgPool BitwiseNot Ceiling Clamp Convert Cos Cosh DepthToSpace Elu Erf Exp
        ExtractImagePatches Floor Gelu HSigmoid HSwish Identity IsFinite IsInf IsNaN Log LogSoftmax
        LogicalNot MaxPool Mish Negative NonZero ReLU Result Round ShapeOf ShuffleChannels Sigmoid Sign Sin Sinh SoftMax
        SoftPlus SoftSign SpaceToDepth Sqrt Tan Tanh
    """,
    (1, 2): "Squeeze Swish Unique",
    (2, 2): """
        AdaptiveAvgPool AdaptiveMaxPool Add BitwiseAnd BitwiseLeftShift BitwiseOr BitwiseRightShift BitwiseXor Bucketize
        ConvertLike Convolution CumSum Divide Equal FloorMod GatherElements GatherND Greater GreaterEqual GridSample
        GroupConvolution LRN Less LessEqual LogicalAnd LogicalOr LogicalXor MVN MatMul Maximum Minimum Mod Multiply
        NormalizeL2 NotEqual PReLU Power ROIPooling ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum Reshape Reverse ReverseSequence SearchSorted Split SquaredDifference
        Subtract Tile TopK Transpose Unsqueeze
    """,
    (2, 3): "Broadcast ConvolutionBackpropData DFT GroupConvolutionBackpropData IDFT IRDFT RDFT",
    (2, 4): "Interpolate",
    (
        3,
        3,
    ): "Col2Im Gather GroupNormalization HardSigmoid ROIAlign Range Roll ScatterNDUpdate Select Selu VariadicSplit",
    (3, 4): "Eye OneHot Pad StridedSlice",
    (3, 5): "EmbeddingBagOffsetsSum EmbeddingBagPackedSum",
    (3, 6): "ScaledDotProductAttention",
    (4, 4): "BatchToSpace ScatterElementsUpdate ScatterUpdate SpaceToBatch",
    (4, 5): "GRUCell Slice",
    (4, 6): "EmbeddingSegmentsSum",
    (5, 5): "BatchNormInference FakeQuantize",
    (5, 6): "SliceScatter",
    (6, 6): "GRUSequence LSTMCell RNNSequence",
    (7, 7): "LSTMSequence",
    (1, MOST): "Concat Einsum If",
}
"""Least and most inputs -> the operations."""

_OUTPUTS: Final = {
    (0, 0): "Result",
    (1, 2): "MaxPool",
    (2, 2): "AdaptiveMaxPool GRUSequence LSTMCell RNNSequence TopK",
    (3, 3): "LSTMSequence",
    (4, 4): "Unique",
    (1, MOST): "If Split VariadicSplit",
}
"""Least and most outputs -> the operations; all others have one."""


def _by_name(table: dict[tuple[int, int], str]) -> Iterator[tuple[str, tuple[int, int]]]:
    return ((name, arity) for arity, names in table.items() for name in names.split())


_INPUTS_OF: Final = dict(_by_name(_INPUTS))
_OUTPUTS_OF: Final = dict.fromkeys(_INPUTS_OF, (1, 1)) | dict(_by_name(_OUTPUTS))

ARITIES: Final = {name: (inputs, _OUTPUTS_OF[name]) for name, inputs in _INPUTS_OF.items()}
"""Operation -> least and most inputs, least and most outputs (docs.openvino.ai, "Operation Specifications")."""


@cache
def operations() -> dict[tuple[str, str], Attributes]:
    """The attributes of each operation, by its name and the opset of its version."""
    lines = (line.split() for line in re.sub("\\n  +", " ", _TABLE).splitlines())
    return {(name, version): dict(each.split(":") for each in told) for name, version, *told in lines}


_TABLE: Final = """\
Abs opset1
Acos opset1
Acosh opset4
AdaptiveAvgPool opset8
AdaptiveMaxPool opset8 index_element_type:type
Add opset1 auto_broadcast:text
Asin opset1
Asinh opset4
Atan opset1
Atanh opset4
AvgPool opset1 auto_pad:text exclude-pad:bool kernel:ints pads_begin:ints pads_end:ints rounding_type:text strides:ints
AvgPool opset14 auto_pad:text exclude-pad:bool kernel:ints pads_begin:ints pads_end:ints rounding_type:text strides:ints
AvgPool opset16 auto_pad:text dilations:ints exclude-pad:bool kernel:ints pads_begin:ints pads_end:ints
    rounding_type:text strides:ints
BatchNormInference opset1 epsilon:float
BatchNormInference opset5 epsilon:float
BatchToSpace opset2
BitwiseAnd opset13 auto_broadcast:text
BitwiseLeftShift opset15 auto_broadcast:text
BitwiseNot opset13
BitwiseOr opset13 auto_broadcast:text
BitwiseRightShift opset15 auto_broadcast:text
BitwiseXor opset13 auto_broadcast:text
Broadcast opset1 mode:text
Broadcast opset3 mode:text
Bucketize opset3 output_type:type with_right_bound:bool
Ceiling opset1
Clamp opset1 max:float min:float
Col2Im opset15 dilations:ints pads_begin:ints pads_end:ints strides:ints
Concat opset1 axis:int
Const opset1 element_type:type shape:shape offset:int size:int
Convert opset1 destination_type:type
ConvertLike opset1
Convolution opset1 auto_pad:text dilations:ints pads_begin:ints pads_end:ints strides:ints
ConvolutionBackpropData opset1 auto_pad:text dilations:ints output_padding:ints pads_begin:ints pads_end:ints
    strides:ints
Cos opset1
Cosh opset1
CumSum opset3 exclusive:bool reverse:bool
DFT opset7
DepthToSpace opset1 block_size:int mode:text
Divide opset1 auto_broadcast:text m_pythondiv:bool
Einsum opset7 equation:text
Elu opset1 alpha:float
EmbeddingBagOffsetsSum opset3
EmbeddingBagPackedSum opset3
EmbeddingSegmentsSum opset3
Equal opset1 auto_broadcast:text
Erf opset1
Exp opset1
ExtractImagePatches opset3 auto_pad:text rates:ints sizes:ints strides:ints
Eye opset9 output_type:type
FakeQuantize opset1 auto_broadcast:text levels:int
Floor opset1
FloorMod opset1 auto_broadcast:text
GRUCell opset3 activations:texts activations_alpha:floats activations_beta:floats clip:float hidden_size:int
    linear_before_reset:bool
GRUSequence opset5 activations:texts activations_alpha:floats activations_beta:floats clip:float direction:text
    hidden_size:int linear_before_reset:bool
Gather opset1
Gather opset7 batch_dims:int
Gather opset8 batch_dims:int
GatherElements opset6 axis:int
GatherND opset5 batch_dims:int
GatherND opset8 batch_dims:int
Gelu opset2
Gelu opset7 approximation_mode:text
Greater opset1 auto_broadcast:text
GreaterEqual opset1 auto_broadcast:text
GridSample opset9 align_corners:bool mode:text padding_mode:text
GroupConvolution opset1 auto_pad:text dilations:ints pads_begin:ints pads_end:ints strides:ints
GroupConvolutionBackpropData opset1 auto_pad:text dilations:ints output_padding:ints pads_begin:ints pads_end:ints
    strides:ints
GroupNormalization opset12 epsilon:float num_groups:int
HSigmoid opset5
HSwish opset4
HardSigmoid opset1
IDFT opset7
IRDFT opset9
Identity opset16
If opset8
Interpolate opset1 align_corners:bool antialias:bool axes:ints mode:text pads_begin:ints pads_end:ints
Interpolate opset4 antialias:bool coordinate_transformation_mode:text cube_coeff:float mode:text nearest_mode:text
    pads_begin:ints pads_end:ints shape_calculation_mode:text
Interpolate opset11 antialias:bool coordinate_transformation_mode:text cube_coeff:float mode:text nearest_mode:text
    pads_begin:ints pads_end:ints shape_calculation_mode:text
IsFinite opset10
IsInf opset10 detect_negative:bool detect_positive:bool
IsNaN opset10
LRN opset1 alpha:float beta:float bias:float size:int
LSTMCell opset1 activations:texts activations_alpha:floats activations_beta:floats clip:float hidden_size:int
    input_forget:bool weights_format:text
LSTMCell opset4 activations:texts activations_alpha:floats activations_beta:floats clip:float hidden_size:int
LSTMSequence opset5 activations:texts activations_alpha:floats activations_beta:floats clip:float direction:text
    hidden_size:int
Less opset1 auto_broadcast:text
LessEqual opset1 auto_broadcast:text
Log opset1
LogSoftmax opset5 axis:int
LogicalAnd opset1 auto_broadcast:text
LogicalNot opset1
LogicalOr opset1 auto_broadcast:text
LogicalXor opset2 auto_broadcast:text
MVN opset2 across_channels:bool eps:float normalize_variance:bool reduction_axes:ints
MVN opset6 eps:float eps_mode:text normalize_variance:bool
MatMul opset1 transpose_a:bool transpose_b:bool
MaxPool opset1 auto_pad:text kernel:ints pads_begin:ints pads_end:ints rounding_type:text strides:ints
MaxPool opset8 auto_pad:text axis:int dilations:ints index_element_type:type kernel:ints pads_begin:ints pads_end:ints
    rounding_type:text strides:ints
MaxPool opset14 auto_pad:text axis:int dilations:ints index_element_type:type kernel:ints pads_begin:ints pads_end:ints
    rounding_type:text strides:ints
Maximum opset1 auto_broadcast:text
Minimum opset1 auto_broadcast:text
Mish opset4
Mod opset1 auto_broadcast:text
Multiply opset1 auto_broadcast:text
Negative opset1
NonZero opset3 output_type:type
NormalizeL2 opset1 eps:float eps_mode:text
NotEqual opset1 auto_broadcast:text
OneHot opset1 axis:int
OneHot opset16 axis:int negative_indices_mode:text
PReLU opset1
Pad opset1 pad_mode:text
Pad opset12 pad_mode:text
Parameter opset1 shape:shape element_type:type
Power opset1 auto_broadcast:text
RDFT opset9
RNNSequence opset5 activations:texts activations_alpha:floats activations_beta:floats clip:float direction:text
    hidden_size:int
ROIAlign opset3 mode:text pooled_h:int pooled_w:int sampling_ratio:int spatial_scale:float
ROIAlign opset9 aligned_mode:text mode:text pooled_h:int pooled_w:int sampling_ratio:int spatial_scale:float
ROIPooling opset2 method:text output_roi:ints output_size:ints pooled_h:int pooled_w:int spatial_scale:float
Range opset1
Range opset4 output_type:type
ReLU opset1
ReduceL1 opset4 keep_dims:bool
ReduceL2 opset4 keep_dims:bool
ReduceLogicalAnd opset1 keep_dims:bool
ReduceLogicalOr opset1 keep_dims:bool
ReduceMax opset1 keep_dims:bool
ReduceMean opset1 keep_dims:bool
ReduceMin opset1 keep_dims:bool
ReduceProd opset1 keep_dims:bool
ReduceSum opset1 keep_dims:bool
Reshape opset1 special_zero:bool
Result opset1
Reverse opset1 mode:text
ReverseSequence opset1 batch_axis:int seq_axis:int
Roll opset7
Round opset5 mode:text
ScaledDotProductAttention opset13 causal:bool
ScatterElementsUpdate opset3
ScatterElementsUpdate opset12 reduction:text use_init_val:bool
ScatterNDUpdate opset4
ScatterNDUpdate opset15 reduction:text
ScatterUpdate opset3
SearchSorted opset15 output_type:type right_mode:bool
Select opset1 auto_broadcast:text
Selu opset1
ShapeOf opset1
ShapeOf opset3 output_type:type
ShuffleChannels opset1 axis:int group:int
Sigmoid opset1
Sign opset1
Sin opset1
Sinh opset1
Slice opset8
SliceScatter opset15
SoftMax opset1 axis:int
SoftMax opset8 axis:int
SoftPlus opset4
SoftSign opset9
SpaceToBatch opset2
SpaceToDepth opset1 block_size:int mode:text
Split opset1 num_splits:int
Sqrt opset1
SquaredDifference opset1 auto_broadcast:text
Squeeze opset1
Squeeze opset15 allow_axis_skip:bool
StridedSlice opset1 begin_mask:ints ellipsis_mask:ints end_mask:ints new_axis_mask:ints shrink_axis_mask:ints
Subtract opset1 auto_broadcast:text
Swish opset4
Tan opset1
Tanh opset1
Tile opset1
TopK opset1 axis:int index_element_type:type mode:text sort:text
TopK opset3 axis:int index_element_type:type mode:text sort:text
TopK opset11 axis:int index_element_type:type mode:text sort:text stable:bool
Transpose opset1
Unique opset10 count_element_type:type index_element_type:type sorted:bool
Unsqueeze opset1
VariadicSplit opset1
"""
"""A line: name, version, attributes."""
