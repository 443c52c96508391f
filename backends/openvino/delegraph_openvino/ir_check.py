"""An IR's xml -> nothing, or an error: a stranger's xml is checked before OpenVINO reads it.

Only operations that lowering writes are admitted, of the opsets that come with OpenVINO: none that reads a file, loops,
or belongs to an extension. Constants lie within the bin; the xml has neither a document type nor entities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.parsers import expat

from delegraph.interfaces import Buffer
from delegraph_openvino.blob import ELEMENT_TYPES, Weight, damaged

__all__ = ["OPERATIONS", "check_ir"]

_NAMES: Final = """
    Abs Acos Acosh AdaptiveAvgPool AdaptiveMaxPool Add Asin Asinh Atan Atanh AvgPool BatchNormInference BatchToSpace
    BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor Broadcast Bucketize Ceiling Clamp
    Col2Im Concat Const Convert ConvertLike Convolution ConvolutionBackpropData Cos Cosh CumProd CumSum DFT
    DepthToSpace Divide Einsum Elu EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingSegmentsSum Equal Erf Exp
    ExtractImagePatches Eye FakeQuantize Floor FloorMod GRUCell GRUSequence Gather GatherElements GatherND Gelu
    Greater GreaterEqual GridSample GroupConvolution GroupConvolutionBackpropData GroupNormalization HSigmoid HSwish
    HardSigmoid IDFT IRDFT Identity If Interpolate IsFinite IsInf IsNaN LRN LSTMCell LSTMSequence Less LessEqual Log
    LogSoftmax LogicalAnd LogicalNot LogicalOr LogicalXor MVN MatMul MaxPool Maximum Minimum Mish Mod Multiply
    Negative NonZero NormalizeL2 NotEqual OneHot PReLU Pad Parameter Power RDFT RNNSequence ROIAlign ROIPooling
    Range ReLU ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum Reshape Result Reverse ReverseSequence Roll Round ScaledDotProductAttention ScatterElementsUpdate
    ScatterNDUpdate ScatterUpdate SearchSorted Select Selu ShapeOf ShuffleChannels Sigmoid Sign Sin Sinh Slice
    SliceScatter SoftMax SoftPlus SoftSign SpaceToBatch SpaceToDepth Split Sqrt SquaredDifference Squeeze
    StridedSlice Subtract Swish Tan Tanh Tile TopK Transpose Unique Unsqueeze VariadicSplit
"""

OPERATIONS: Final = frozenset(_NAMES.split())
"""The operations that the converters write."""

_DTYPES: Final = {name: dtype for dtype, name in ELEMENT_TYPES.items()} | {"u64": "int64"}


def check_ir(xml: Buffer, bin_size: int) -> None:
    """Raises `DelegateInvalidCompatibility` for an xml that lowering does not write; its bin has `bin_size` bytes."""
    parser = expat.ParserCreate()
    kinds: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "layer":
            kinds.append(attributes.get("type", ""))
            _check_layer(attributes)
        elif tag == "data" and kinds and kinds[-1] == "Const":
            _check_constant(attributes, bin_size)

    def refuse(*_: object) -> None:
        raise damaged("its xml has a document type")

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(bytes(xml), True)
    except expat.ExpatError as error:
        raise damaged(f"its xml cannot be read: {error}") from error


def _check_layer(attributes: Mapping[str, str]) -> None:
    kind, version = attributes.get("type", ""), attributes.get("version", "")
    if kind not in OPERATIONS or not version.removeprefix("opset").isdecimal():
        raise damaged(f"it has an operation {kind!r:.40} of {version!r:.40}, which lowering does not write")


def _check_constant(attributes: Mapping[str, str], bin_size: int) -> None:
    try:
        offset, size = int(attributes["offset"]), int(attributes["size"])
        shape = [int(n) for n in attributes["shape"].split(",") if n.strip()]
        whole = Weight(_DTYPES[attributes["element_type"]], tuple(shape)).nbytes
    except (KeyError, ValueError) as error:
        raise damaged(f"a constant's description cannot be read, {type(error).__name__}: {error!s:.60}") from error
    if min(offset, size, *shape) < 0 or offset > bin_size - size or size not in (whole, whole or 1):
        raise damaged(f"a constant {dict(attributes)!r:.120} does not lie in {bin_size} bytes, or is not of its shape")
