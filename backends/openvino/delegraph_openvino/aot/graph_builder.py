"""A partition -> OpenVINO operations, with the small ones that converters share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import ml_dtypes
import numpy as np
import openvino
import torch
from numpy.typing import NDArray
from openvino import Output, Type
from openvino import opset15 as opset
from torch.fx import Graph, Node

from delegraph.aot.authoring import ConverterTable, GraphConverter, numpy_dtype
from delegraph.errors import UnsupportedOperator
from delegraph_openvino.aot.known_products import known_products
from delegraph_openvino.aot.packed_weights import PackedWeight, packed_weights
from delegraph_openvino.aot.rounded_values import roundings_before_jumps
from delegraph_openvino.aot.table import TABLE
from delegraph_openvino.blob import BACKEND_ID, CODES, DTYPES, INPUT, WEIGHT, TensorInfo

__all__ = ["INLINE_BYTES", "GraphBuilder", "Operand", "StoredWeight", "dtype_of", "shape_of"]

Operand: TypeAlias = "Node | Output | NDArray[Any] | int | float | bool"
"""What an operation takes: a value of the edge graph, one of OpenVINO's, or a constant."""

INLINE_BYTES: Final = 256
"""Weights up to this size are constants of the IR; larger ones Parameters until the blob is loaded."""


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight outside the IR: the Parameter that stands for it, and what is to be stored, of `dtype` and `shape`."""

    parameter: openvino.Node
    content: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]


class GraphBuilder(GraphConverter[Output]):
    """An OpenVINO graph in the making. What is bfloat16 in the program is float32 in the graph, between its inputs and
    outputs: OpenVINO itself knows best what to compute in bfloat16, where the processor has it, and what not.

    `inputs` describe the call's arguments, `parameters` stand for those that are read. `weights` are what is to be
    stored, by the name of its placeholder. Operations are called after the node that they are made of,
    `debug_handle_map` has its debug handles.

    `packed` are the weights of 4 bits, `known` the results of products that are computed ahead of time, `left_out` the
    calls that nothing but these reads. The dequantize calls in `to_the_bit` give what the grid has, 0 where it has
    that. Of the products with weights that are dequantized in the graph, `rounded` have values that are rounded in the
    run, `exact` have others.
    """

    table: ClassVar[ConverterTable] = TABLE

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[TensorInfo] = []
        self.parameters: list[openvino.Node] = []
        self.weights: dict[str, StoredWeight] = {}
        self.debug_handle_map: dict[str, tuple[int, ...]] = {}
        self.packed: dict[Node, PackedWeight] = {}
        self.known: dict[Node, NDArray[Any]] = {}
        self.left_out: set[Node] = set()
        self.to_the_bit: set[Node] = set()
        self.rounded, self.exact = 0, 0
        self._made = 0
        self._held: dict[tuple[torch.dtype, tuple[int, ...], bytes], Output] = {}

    def convert_calls(self, graph: Graph) -> None:
        """Convert a graph's calls, but for those that unpack weights or are needed for known products alone."""
        self.packed, unpacking = packed_weights(graph, self.constants)
        self.known, unread = known_products(graph, self.constants)
        self.left_out = unpacking | unread
        self.to_the_bit = roundings_before_jumps(graph)
        super().convert_calls(graph)

    def convert_call(self, node: Node) -> None:
        """Let `values` have what stands for the results of a call."""
        if node in self.left_out:
            return
        if node in self.known:
            self.values[node] = self.constant(node, self.known[node])
        elif node in self.packed:
            self.values[node] = self._unpacked(node, self.packed[node])
        else:
            super().convert_call(node)

    # ---- placeholders ----------------------------------------------------------------------------

    def input(self, node: Node) -> Output:
        """A Parameter; for an argument that nothing reads, which may be none of a dtype that there is, nothing."""
        info = tensor_info(node) if node.users else TensorInfo("bool", (), used=False)
        self.inputs.append(info)
        if not info.used:
            return self.vector([0])
        shape = [size if isinstance(size, int) else -1 for size in info.shape]
        name = f"{INPUT}{len(self.inputs) - 1}"
        self.parameters.append(opset.parameter(shape, element_type(dtype_of(node)), name=name))
        return self.cast(self.parameters[-1].output(0), dtype_of(node))

    def constant(self, node: Node, array: NDArray[Any]) -> Output:
        """A constant if it is small, else a Parameter in whose place loading puts the weight."""
        if array.nbytes <= INLINE_BYTES:
            return self.tensor(array)
        dtype = dtype_of(node)
        content = (dtype, array.shape, hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).digest())
        if content not in self._held:  # a table and the head that is tied to it are two constants of one content
            name = str(dtype).removeprefix("torch.")
            self._held[content] = self._stored(node, array, name, element_type(dtype), array.shape)
        return self.cast(self._held[content], dtype)

    def _stored(self, node: Node, content: NDArray[Any], dtype: str, kind: Type, shape: Sequence[int]) -> Output:
        parameter = opset.parameter(list(shape), kind, name=f"{WEIGHT}{len(self.weights)}")
        self.weights[node.name] = StoredWeight(parameter, content, dtype, tuple(shape))
        return parameter.output(0)

    def _unpacked(self, node: Node, weight: PackedWeight) -> Output:
        """A weight of 4 bits in float: see `packed_weights`."""
        zeros = weight.zero_points
        rows, groups, _ = zeros.shape
        shape = (rows, groups, weight.shape[1] // groups)
        if weight.node in self.values:
            codes = self.value(weight.node)
        elif weight.codes.nbytes <= INLINE_BYTES:
            codes = openvino.op.Constant(openvino.Tensor(np.array(weight.codes), shape, Type.u4)).output(0)
        else:
            codes = self.values[weight.node] = self._stored(weight.node, weight.codes, CODES, Type.u4, shape)
        zero = self.tensor(zeros[:1, :1] if (zeros == zeros.flat[0]).all() else zeros)
        value = self.op("subtract", self.cast(codes, torch.float32), self.cast(zero, torch.float32))
        scale = self.op("reshape", self.cast(weight.scale, torch.float32), self.vector(zeros.shape), special_zero=False)
        real = self.op("multiply", value, scale)
        return self.cast(self.op("reshape", real, self.vector(weight.shape), special_zero=False), dtype_of(node))

    def number(self, number: complex) -> Output:
        """An integer of 64 bits, or a float of 32."""
        return self.tensor(np.array(number, np.float32 if isinstance(number, float) else np.int64))

    # ---- operations ------------------------------------------------------------------------------

    def op(self, name: str, *operands: Operand, dtype: torch.dtype | None = None, **attributes: Any) -> Output:
        """The first result of OpenVINO's operation `name`; numbers among the operands are of `dtype`.

        With a number that a narrow `dtype` has not, it is computed in float32, as by torch, and rounded once.
        """
        if dtype == torch.float16 and any(_is_between(operand, dtype) for operand in operands):
            wide = [self.cast(operand, torch.float32) for operand in operands]
            return self.cast(self.op(name, *wide, **attributes), dtype)
        return self.results(name, *operands, dtype=dtype, **attributes)[0]

    def results(
        self, name: str, *operands: Operand, dtype: torch.dtype | None = None, **attributes: Any
    ) -> list[Output]:
        """As `op`, all results."""
        made = getattr(opset, name)(*(self.operand(operand, dtype) for operand in operands), **attributes)
        if self.node is not None:
            made.set_friendly_name(f"{self.node.name}/{self._made}")
            self.debug_handle_map[self.node.name] = self.debug_handles()
            self._made += 1
        return list(made.outputs())

    def operand(self, operand: Operand, dtype: torch.dtype | None = None) -> Output:
        """What stands for `operand`; a number is one of `dtype`."""
        if isinstance(operand, Output):
            return operand
        if isinstance(operand, np.ndarray):
            return self.tensor(operand)
        if isinstance(operand, Node) or dtype is None:
            return self.value(operand)
        return self.tensor(np.array(operand).astype(numpy_dtype(_inside(dtype))))

    def tensor(self, content: NDArray[Any]) -> Output:
        """A constant of the IR."""
        known = content.astype(np.float32) if content.dtype == ml_dtypes.bfloat16 else content
        return openvino.op.Constant(openvino.Tensor(known)).output(0)

    def vector(self, integers: Sequence[int]) -> Output:
        """A constant of integers: axes, sizes, bounds."""
        return self.tensor(np.array(integers, np.int64))

    def axis(self, axis: int) -> Output:
        """A constant without dims: an axis, a place."""
        return self.tensor(np.array(axis, np.int64))

    # ---- dtypes ----------------------------------------------------------------------------------

    def cast(self, operand: Operand, dtype: torch.dtype) -> Output:
        """`operand` as `dtype`, or as what stands for it in the graph."""
        value, wanted = self.operand(operand, dtype), element_type(_inside(dtype))
        if value.get_element_type() == wanted:
            return value
        if dtype == torch.bool:  # OpenVINO's conversion gives false for what rounds to zero
            number = value if value.get_element_type().is_real() else self.op("convert", value, destination_type="f32")
            return self.op("not_equal", number, self.op("convert_like", self.axis(0), number))
        return self.op("convert", value, destination_type=wanted)

    # ---- sizes -----------------------------------------------------------------------------------

    def shape(self, operand: Operand) -> Output:
        """The sizes of `operand` as a vector."""
        return self.op("shape_of", operand, output_type="i64")

    def sizes(self, sizes: Sequence[Any]) -> Output:
        """Integers, some of which may be nodes that compute sizes, as a vector."""
        if all(isinstance(size, int) for size in sizes):
            return self.vector(sizes)
        return self.concat(
            [self.reshape(size, [1]) if isinstance(size, Node) else self.vector([size]) for size in sizes], 0
        )

    def concat(self, parts: Sequence[Output], axis: int) -> Output:
        """All parts, one after the other."""
        return parts[0] if len(parts) == 1 else opset.concat(list(parts), axis).output(0)

    def reshape(self, operand: Operand, shape: Sequence[Any]) -> Output:
        """`operand` in `shape`, of which one size that is not known yet follows from the others."""
        unknown = [index for index, size in enumerate(shape) if not isinstance(size, int)]
        if len(unknown) == 1 and -1 not in shape:
            shape = [-1 if index in unknown else size for index, size in enumerate(shape)]
        return self.op("reshape", operand, self.sizes(shape), special_zero=False)


def tensor_info(node: Node) -> TensorInfo:
    """How a delegate call's input or output is described."""
    dtype = str(dtype_of(node)).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UnsupportedOperator(f"{BACKEND_ID} has no tensors of {dtype}", node=node.name)
    is_tensor = isinstance(node.meta["val"], torch.Tensor)
    sizes = shape_of(node) if is_tensor else []
    return TensorInfo(dtype, tuple(size if isinstance(size, int) else str(size) for size in sizes), not is_tensor)


def element_type(dtype: torch.dtype) -> Type:
    """OpenVINO's name of a dtype that there is."""
    kind: Type = getattr(Type, DTYPES[str(dtype).removeprefix("torch.")][0])
    return kind


def _inside(dtype: torch.dtype) -> torch.dtype:
    """What stands for `dtype` in the graph."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def _is_between(operand: Operand, dtype: torch.dtype) -> bool:
    """Whether `operand` is a number that `dtype` can only round."""
    return isinstance(operand, float) and float(np.array(operand).astype(numpy_dtype(dtype))) != operand


def dtype_of(node: Node) -> torch.dtype:
    """The dtype of a node's value; that of sizes is int64."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.float32 if isinstance(value, float | torch.SymFloat) else torch.int64


def shape_of(node: Node) -> list[Any]:
    """The sizes of a node's value; those that are not fixed are symbols."""
    return list(node.meta["val"].shape)
