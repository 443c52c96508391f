"""Providers -> the capabilities of a device for converters to ONNX, and the operators that it takes where no device is
here to be asked, a row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch.fx import Node

from delegraph.aot.authoring import operator_name, schema_arguments
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.node_facts import rank_of
from delegraph_onnx.target import ANY, Target
from delegraph_providers.providers import (
    MIGRAPHX,
    MLX,
    OPENVINO_EP,
    PROVIDER,
    QNN,
    TENSORRT_RTX,
    WEBGPU,
    WINDOWSML,
    Provider,
)

__all__ = ["HTP", "Taken", "lowered_for", "target_of"]

_PARTS: Final = {"Attention": ANY, "RotaryEmbedding": ANY, "RMSNormalization": ANY}
"""Operators that are written by their parts: a provider that lacks one leaves it to the CPU."""

_CASTS: Final = frozenset({"_to_copy", "_to_dim_order_copy"})
_IMAGES: Final = 4
"""Dims of a batch of images."""


_READ_PLACES: Final = frozenset(["embedding", "gather", "index", "index_put", "index_select", "scatter"])
_OF_INTEGERS: Final = """
    _clone_dim_order _to_dim_order_copy alias_copy as_strided_copy cat clone constant_pad_nd diagonal_copy expand_copy
    flip permute_copy repeat roll select_copy select_scatter slice_copy slice_scatter split_copy split_with_sizes_copy
    squeeze_copy stack t_copy transpose_copy tril triu unbind_copy unfold_copy unsqueeze_copy view_copy where
    abs amax amin bucketize clamp clamp_max clamp_min eq max maximum min minimum ne searchsorted
"""
"""Operators that the processor computes of integers of 32 bits as torch does, to their edges; by base names."""
_TAKES_INTEGERS: Final = _READ_PLACES | frozenset(_OF_INTEGERS.split())


def _declined_on_htp(node: Node) -> str | None:
    name, read = _base_name(node), _tensors(node.all_input_nodes)
    if (name == "unfold_copy" or name in _READ_PLACES) and rank_of(node) > _IMAGES:
        return "a result of more than 4 dims, which the processor's Gather takes and fails to run"
    if name in ("index", "index_put") and any(places.dim() > 2 for places in read[1:]):
        return "places of more than 2 dims, of which the provider's compiler takes others, or ends the process (2.7)"
    if name == "index_put" and not read[0].is_floating_point() and read[0].dtype != torch.bool:
        return "the processor puts integers at places as floats"
    integers = {tensor.dtype for tensor in read} & {torch.int32, torch.int64}
    return _declined_of_integers(name, node, integers) if integers and not name.startswith("dequantize") else None


def _declined_of_integers(name: str, node: Node, read: set[torch.dtype]) -> str | None:
    """The reason against a node that reads integers of 32 or 64 bits, as sweeps at their edges showed."""
    results = {tensor.dtype for tensor in _tensors([node])}
    if name in _CASTS and torch.bool in results:
        return "the processor takes integers below 0 for False"
    if name in _CASTS and any(dtype.is_floating_point for dtype in results):
        return "the processor's floats end at 131,008, and integers do not"
    if name not in _TAKES_INTEGERS:
        return "the processor limits integers that overflow, and sums and orders them as floats"
    if torch.int64 in results or (torch.int64 in read and name not in _READ_PLACES | _CASTS):
        return "the processor has no integers of 64 bits, but for places"
    return None


HTP: Final = Target(
    QNN.backend_id,
    producer="delegraph-providers",
    opset=21,  # from which on QuantizeLinear has 16 bits
    dtypes=frozenset(
        {
            *(torch.float32, torch.float16, torch.int32, torch.int64, torch.bool),
            *(torch.uint8, torch.int8, torch.uint16, torch.int16),
        }
    ),
    lacks=_PARTS,
    unsigned=frozenset({torch.int8, torch.int16}),
    dynamic=False,
    linear_by_rows=True,  # of integers the processor has no MatMul and Add in one
    slow_subnormals=False,
    exact_max_pool=True,  # of NaN, which the processor drops, its README says
    recurrent_nan=True,
    loops=False,
    declines=_declined_on_htp,
)

_PRODUCTS: Final = frozenset({"aten::dot", "aten::mv", "aten::matmul", "aten::linear"})


def _declined(node: Node) -> str | None:
    name = operator_name(node).split(".")[0]
    if name == "aten::addmv" or (name in _PRODUCTS and any(t.dim() == 1 for t in _operands(node))):
        return "a product of a vector, which onnxruntime-webgpu 1.27 takes and fails to run"
    is_transposed = name == "aten::conv_transpose3d" or (name == "aten::convolution" and schema_arguments(node)[6])
    if is_transposed and _operands(node)[0].dim() > _IMAGES:
        return "a transposed convolution of volumes, which onnxruntime-webgpu 1.27 takes and fails to run"
    return None


def _operands(node: Node) -> list[torch.Tensor]:
    """The first two tensors that it reads."""
    return _tensors(node.all_input_nodes[:2])


def _tensors(nodes: Sequence[Node]) -> list[torch.Tensor]:
    values = [node.meta.get("val") for node in nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


GPU: Final = Target(
    WEBGPU.backend_id,
    producer="delegraph-providers",
    opset=21,
    dtypes=frozenset({torch.float32, torch.float16, torch.int32, torch.int64, torch.bool}),
    lacks={
        **_PARTS,
        **dict.fromkeys(("Max", "Min", "Sign", "SimplifiedLayerNormalization"), ANY),
        # the CPU computes these of places, and is wrong from 2^31 on (onnxruntime 1.27 and 1.31)
        **dict.fromkeys(("Clip", "ReduceMax", "ReduceMin"), frozenset({torch.int64})),
    },
    slow_subnormals=False,
    exact_max_pool=True,  # of NaN, for which shaders promise nothing, the README says
    recurrent_nan=True,
    refuses_places=False,  # the runtime half looks at them
    negative_places=frozenset(),
    partial_gather=False,
    loops=False,
    external_weights=True,
    states=True,
    declines=_declined,
)
"""Every GPU: floats of 32 bits, and integers of 32 for places; opset 21, since of later ones providers
know fewer operators (onnxruntime-webgpu 1.27 leaves AveragePool and MaxPool of opset 22)."""


def _base_name(node: Node) -> str:
    """The operator's name without library and overload."""
    return operator_name(node).partition("::")[2].partition(".")[0]


@dataclass(frozen=True, slots=True)
class Taken:
    """Operators that a provider takes, by the dtypes of the tensor that they compute on, as ONNX numbers them."""

    floats: frozenset[str]
    int32: frozenset[str] = frozenset()
    booleans: frozenset[str] = frozenset()

    def has(self, op_type: str, element: int) -> bool:
        """Whether the operator is taken of tensors of this element type."""
        names = {1: self.floats, 10: self.floats, 6: self.int32, 9: self.booleans}.get(element, frozenset[str]())
        return op_type in names


_EVERYWHERE: Final = """
    Abs Add BatchNormalization Cast Ceil Clip Concat Conv ConvTranspose Div Erf Exp Expand Flatten Floor Gather Gemm
    GlobalAveragePool Identity InstanceNormalization LeakyRelu Log MatMul MaxPool Mul Neg Pad Pow Reciprocal ReduceMax
    ReduceMean ReduceMin ReduceSum Relu Reshape Resize Sigmoid Slice Softmax Split Sqrt Squeeze Sub Tanh Transpose
    Unsqueeze Where
"""
_OF_SHADERS: Final = """
    Acos Acosh Asin Asinh Atan Atanh Cos Cosh Elu Equal Gelu GatherElements GatherND GlobalMaxPool Greater
    GreaterOrEqual GroupNormalization HardSigmoid HardSwish LSTM LayerNormalization Less LessOrEqual ReduceL1 ReduceL2
    ReduceProd ReduceSumSquare ScatterElements ScatterND Sin Sinh Softplus Tan Tile
"""
_OF_INT32: Final = """
    Add Cast Concat Div Equal Expand Greater GreaterOrEqual Identity Less LessOrEqual Mul Pow Reshape Sub Transpose
    Unsqueeze Where
"""

COMMON: Final = Taken(frozenset(_EVERYWHERE.split()))
"""Old operators, of floats alone: onnxruntime's documentation names them for the providers that were only read."""

SHADERS: Final = Taken(
    frozenset((_EVERYWHERE + _OF_SHADERS).split()),
    frozenset(_OF_INT32.split()),
    frozenset(["And", "Cast", "Expand", "Not", "Unsqueeze", "Where"]),
)
"""Those of onnxruntime-webgpu 1.27, which was asked on SwiftShader about each of ONNX's tests of single operators
(`onnx.backend.test.case.node`), in opset 21."""

_TARGETS: Final[Mapping[str, tuple[Target, Taken]]] = {
    QNN.backend_id: (HTP, Taken(frozenset())),  # which compiles, and so is always asked
    WEBGPU.backend_id: (GPU, SHADERS),
    **{row.backend_id: (GPU, COMMON) for row in (TENSORRT_RTX, MLX, MIGRAPHX, WINDOWSML, OPENVINO_EP, PROVIDER)},
}


def target_of(provider: Provider) -> Target:
    """The capabilities of the provider's device."""
    return replace(_TARGETS[provider.backend_id][0], name=provider.backend_id)


def lowered_for(provider: Provider) -> tuple[TargetTable, Taken]:
    """The converters' table for the provider, and the operators that it takes where it cannot be asked."""
    return TargetTable(target_of(provider)), _TARGETS[provider.backend_id][1]
