"""A command -> the TOSA operators that it stands for -> what Arm's reference model computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
import tosa_reference_model
from backends.npu.tests.cases import Case
from numpy.typing import NDArray
from serializer import tosa_serializer as ts
from tosa.DType import DType
from tosa.NanPropagationMode import NanPropagationMode
from tosa.Op import Op
from tosa.ResizeMode import ResizeMode as TosaResizeMode
from tosa.RoundingMode import RoundingMode

from delegraph_npu.accesses import inputs_of, operands_of
from delegraph_npu.blob import Blob, IoTensor
from delegraph_npu.command_stream import decode
from delegraph_npu.commands import (
    Block,
    Computing,
    Conv,
    Depthwise,
    DmaStart,
    DmaWait,
    Dtype,
    Elementwise,
    ElementwiseKind,
    FeatureMap,
    MatMul,
    Pool,
    PoolKind,
    Reduce,
    ReduceKind,
    Region,
    Requantize,
    Resize,
    ResizeMode,
    Stop,
    Table,
    dense,
)
from delegraph_npu.runtime.constants import constants_read
from delegraph_npu.weights import decompress

_DTYPES: Final = {Dtype.INT8: DType.INT8, Dtype.INT16: DType.INT16, Dtype.INT32: DType.INT32}
_NUMPY: Final = {DType.INT8: np.int8, DType.INT16: np.int16, DType.INT32: np.int32, DType.SHAPE: np.int64}
_ROUNDINGS: Final = {"single": RoundingMode.SINGLE_ROUND, "double": RoundingMode.DOUBLE_ROUND}
_NAN: Final = NanPropagationMode.PROPAGATE


def tosa(case: Case, rounding: str = "single") -> NDArray[Any]:
    """The output of the case's command, as the reference model computes it."""
    return prepared(case, rounding)()


def prepared(case: Case, rounding: str = "single") -> Callable[[], NDArray[Any]]:
    """A function that gives the output of the case's command; its graph has been made."""
    command, regions = case.command, {Region.WEIGHTS: case.builder.weights, Region.TABLES: case.builder.tables}
    (constants,) = constants_read([command], regions)
    graph = _Graph(constants, rounding)
    inputs = [graph.input(one.shape, _DTYPES[one.dtype]) for one in inputs_of(command)]
    sums, zero_point = _operators(graph, command, inputs)
    graph.builder.addOutputTensor(graph.output_stage(sums, zero_point, command.requantize, command.ofm.dtype))
    serialized = bytes(graph.builder.serialize())

    def run() -> NDArray[Any]:
        outputs, status = tosa_reference_model.run(serialized, list(case.inputs))
        assert status == tosa_reference_model.GraphStatus.TOSA_VALID, f"{case.name}: {status}"
        return np.asarray(outputs[0]).reshape(command.ofm.shape)

    return run


def tosa_partition(blob: Blob, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """The outputs of a whole blob, whose commands read and write feature maps without gaps: one TOSA graph, in which a
    command reads what was written last where its input lies."""
    commands = decode(blob.stream)
    regions = {Region.WEIGHTS: blob.weights, Region.TABLES: blob.tables}
    graph = _Graph({}, blob.rounding)
    tensors: dict[tuple[Region, int], Any] = {}
    brought: dict[int, int] = {}  # where constants are in SRAM -> where they came from in TABLES

    def operand(one: FeatureMap) -> Any:
        if one.span == one.dtype.nbytes and prod(one.shape) > 1:  # a number, repeated
            dtype = _DTYPES[one.dtype]
            number = np.frombuffer(blob.tables, _NUMPY[dtype], 1, brought[one.offset])
            return graph.const(number.reshape(1, 1, 1, 1), dtype)
        whole = _whole(one)
        return graph.reshaped(tensors[whole.region, whole.offset], whole.shape)

    for tensor in blob.inputs:
        nbytes = prod(tensor.shape) * tensor.dtype.nbytes
        assert tensor.span == nbytes, "an input with gaps"
        tensors[tensor.region, tensor.offset] = graph.input([prod(tensor.shape)], _DTYPES[tensor.dtype])
    for command, constants in zip(commands, constants_read(commands, regions), strict=True):
        if isinstance(command, Stop | DmaStart | DmaWait):
            if isinstance(command, DmaStart):
                assert command.source.region in regions, "a tensor is moved"
                if command.source.region is Region.TABLES:
                    brought[command.target.offset] = command.source.offset
            continue
        graph.constants = constants
        sums, zero_point = _operators(graph, command, list(map(operand, inputs_of(command))))
        ofm = _whole(command.ofm)
        tensors[ofm.region, ofm.offset] = graph.output_stage(sums, zero_point, command.requantize, ofm.dtype)
    for tensor in blob.outputs:
        graph.builder.addOutputTensor(tensors[tensor.region, tensor.offset])
    flat = [_as_it_lies(tensor, array) for tensor, array in zip(blob.inputs, arrays, strict=True)]
    results, status = tosa_reference_model.run(bytes(graph.builder.serialize()), flat)
    assert status == tosa_reference_model.GraphStatus.TOSA_VALID
    return [
        np.ndarray(tensor.shape, one.dtype, np.ascontiguousarray(one).data, 0, tensor.strides)
        for tensor, one in zip(blob.outputs, map(np.asarray, results), strict=True)
    ]


def _whole(one: FeatureMap) -> FeatureMap:
    assert one == dense(one.region, one.offset, one.shape, one.dtype), f"{one} has gaps"
    return one


def _as_it_lies(tensor: IoTensor, array: NDArray[Any]) -> NDArray[Any]:
    """The elements of `array` in the order in which they lie in memory."""
    flat = np.zeros(array.size, array.dtype)
    np.ndarray(array.shape, array.dtype, flat.data, 0, tensor.strides)[...] = array
    return flat


class _Graph:
    """A TOSA graph that grows."""

    def __init__(self, constants: Mapping[Block, memoryview], rounding: str) -> None:
        self.builder = ts.TosaSerializer("", ts.ConstMode.EMBED, 1, 0, 0, False)
        self.constants = constants
        self._rounding = rounding

    def input(self, shape: Sequence[int], dtype: int) -> Any:
        tensor = ts.TosaSerializerTensor(
            f"input_{len(self.builder.currRegion.basicBlocks[0].inputs)}", list(shape), dtype
        )
        self.builder.addInputTensor(tensor)
        return tensor

    def reshaped(self, value: Any, shape: Sequence[int]) -> Any:
        if list(value.shape) == list(shape):
            return value
        return self.op(Op.RESHAPE, [value, self.shape(shape)], shape, value.dtype, "ReshapeAttribute")

    def const(self, values: Any, dtype: int) -> Any:
        array = np.asarray(values, _NUMPY[dtype])
        return self.builder.addConst(list(array.shape), dtype, array)

    def shape(self, values: Sequence[int]) -> Any:
        return self.builder.addConst([len(values)], DType.SHAPE, np.array(values, np.int64))

    def op(self, op: int, inputs: Sequence[Any], shape: Sequence[int], dtype: int, attribute: str, *values: Any) -> Any:
        result = self.builder.addIntermediate(list(shape), dtype)
        attributes = ts.TosaSerializerAttribute()
        getattr(attributes, attribute)(*values)
        self.builder.addOperator(op, [one.name for one in inputs], [result.name], attributes)
        return result

    def block(self, block: Block, dtype: str) -> NDArray[Any]:
        return np.frombuffer(self.constants[block], dtype)

    def rescale(
        self,
        value: Any,
        multiplier: Any,
        shift: Any,
        in_zero: int,
        out_zero: int,
        dtype: int,
        rounding: str | None = None,
    ) -> Any:
        multiplier, shift = np.atleast_1d(multiplier), np.atleast_1d(shift)
        inputs = [
            value,
            self.const(multiplier, DType.INT32),
            self.const(shift, DType.INT8),
            self.const([in_zero], value.dtype),
            self.const([out_zero], dtype),
        ]
        mode = _ROUNDINGS[rounding or self._rounding]
        per_channel = len(multiplier) > 1
        return self.op(
            Op.RESCALE, inputs, value.shape, dtype, "RescaleAttribute", True, mode, per_channel, False, False
        )

    def to_int32(self, value: Any, zero_point: int) -> Any:
        return self.rescale(value, 1 << 30, 30, zero_point, 0, DType.INT32, "single")

    def output_stage(self, sums: Any, zero_point: int, stage: Requantize, dtype: Dtype) -> Any:
        """What `OutputStage` does; `zero_point` is that of the sums, where they are int8."""
        multiplier, shift = stage.multiplier, stage.shift
        if stage.scales:
            scales = self.block(stage.scales, "<i4").reshape(-1, 3)
            multiplier, shift = scales[:, 1], scales[:, 2]
        value = self.rescale(sums, multiplier, shift, zero_point, stage.zero_point, _DTYPES[dtype])
        if (stage.low, stage.high) != (dtype.low, dtype.high):
            low, high = (np.array([bound], np.int8).tobytes() for bound in (stage.low, stage.high))
            value = self.op(
                Op.CLAMP,
                [value],
                value.shape,
                value.dtype,
                "ClampAttribute",
                self.builder.builder,
                list(low),
                list(high),
                _NAN,
            )
        if stage.table:
            table = self.const(self.block(stage.table, "i1"), DType.INT8)
            value = self.op(Op.TABLE, [value, table], value.shape, DType.INT8, "TableAttribute")
        return value


def _operators(graph: _Graph, command: Computing, inputs: Sequence[Any]) -> tuple[Any, int]:
    """The result before the output stage, and its zero point."""
    value = inputs[0]
    match command:
        case Conv() | Depthwise():
            return _convolution(graph, command, value), 0
        case Pool():
            return _pool(graph, command, value), command.zero_point
        case MatMul():
            return _matmul(graph, command, *inputs), 0
        case Elementwise():
            return _elementwise(graph, command, inputs), 0
        case Table():
            return _table(graph, command, value), 0
        case Resize():
            return _resize(graph, command, value)
        case Reduce():
            return _reduce(graph, command, value), 0


def _convolution(graph: _Graph, command: Conv | Depthwise, value: Any) -> Any:
    geometry, ofm = command.geometry, command.ofm
    depthwise = isinstance(command, Depthwise)
    dims = (*geometry.kernel, ofm.shape[3], 1) if depthwise else (ofm.shape[3], *geometry.kernel, command.ifm.shape[3])
    weights = decompress(graph.constants[command.weights], prod(dims)).reshape(dims)  # HWCM, OHWI
    bias = graph.block(command.requantize.scales, "<i4").reshape(-1, 3)[:, 0]
    top, left, bottom, right = geometry.pads
    pads, stride, dilation = [top, bottom, left, right], list(geometry.stride), list(geometry.dilation)
    attribute: tuple[Any, ...] = ("Conv2dAttribute", pads, stride, dilation, False, DType.INT32)
    op = Op.CONV2D
    if depthwise:
        op, attribute = Op.DEPTHWISE_CONV2D, ("DepthwiseConv2dAttribute", *attribute[1:])
    elif geometry.upscale != (1, 1):
        weights = weights[:, ::-1, ::-1].copy()
        (height, width), up = geometry.kernel, list(geometry.upscale)
        out_pads = [top - height + 1, bottom - height + 1, left - width + 1, right - width + 1]
        op, attribute = Op.TRANSPOSE_CONV2D, ("TransposeConv2dAttribute", out_pads, up, False, DType.INT32)
    operands = [
        value,
        graph.const(weights, DType.INT8),
        graph.const(bias, DType.INT32),
        graph.const([command.zero_point], DType.INT8),
        graph.const([0], DType.INT8),
    ]
    return graph.op(op, operands, ofm.shape, DType.INT32, *attribute)


def _pool(graph: _Graph, command: Pool, value: Any) -> Any:
    geometry = command.geometry
    top, left, bottom, right = geometry.pads
    kernel, stride, pads = list(geometry.kernel), list(geometry.stride), [top, bottom, left, right]
    if command.kind is PoolKind.MAX:
        attribute: tuple[Any, ...] = ("MaxPool2dAttribute", kernel, stride, pads, _NAN)
        return graph.op(Op.MAX_POOL2D, [value], command.ofm.shape, DType.INT8, *attribute)
    zero_point = graph.const([command.zero_point], DType.INT8)
    attribute = ("AvgPool2dAttribute", kernel, stride, pads, DType.INT32)
    return graph.op(Op.AVG_POOL2D, [value, zero_point, zero_point], command.ofm.shape, DType.INT8, *attribute)


def _matmul(graph: _Graph, command: MatMul, left: Any, right: Any) -> Any:
    flat = []
    for one, fm in ((left, command.ifm), (right, command.ifm2)):
        n, h, w, c = fm.shape
        shape = (n * h, w, c)
        flat.append(graph.op(Op.RESHAPE, [one, graph.shape(shape)], shape, DType.INT8, "ReshapeAttribute"))
    n, h, w, c = command.ofm.shape
    zeros = [graph.const([zero], DType.INT8) for zero in (command.zero_point, command.zero_point2)]
    product = graph.op(Op.MATMUL, [*flat, *zeros], (n * h, w, c), DType.INT32, "MatMulAttribute")
    return graph.op(
        Op.RESHAPE, [product, graph.shape(command.ofm.shape)], command.ofm.shape, DType.INT32, "ReshapeAttribute"
    )


_ELEMENTWISE: Final = {
    ElementwiseKind.ADD: (Op.ADD, "AddAttribute"),
    ElementwiseKind.SUB: (Op.SUB, "SubAttribute"),
    ElementwiseKind.MAXIMUM: (Op.MAXIMUM, "MaximumAttribute", _NAN),
    ElementwiseKind.MINIMUM: (Op.MINIMUM, "MinimumAttribute", _NAN),
    ElementwiseKind.ABS: (Op.ABS, "AbsAttribute"),
}


def _elementwise(graph: _Graph, command: Elementwise, inputs: Sequence[Any]) -> Any:
    scaled = []
    for operand, value in zip(operands_of(command), inputs, strict=True):
        # TOSA's RESCALE has no shift to the left: with a single rounding, it is a smaller shift to the right
        shift = operand.shift - operand.left_shift
        scaled.append(graph.rescale(value, operand.multiplier, shift, operand.zero_point, 0, DType.INT32))
    shape = command.ofm.shape
    if command.kind is ElementwiseKind.COPY:
        return scaled[0]
    if command.kind is ElementwiseKind.MUL:
        scaled.append(graph.const([0], DType.INT8))
        return graph.op(Op.MUL, scaled, shape, DType.INT32, "MulAttribute")
    op, *attribute = _ELEMENTWISE[command.kind]
    return graph.op(op, scaled, shape, DType.INT32, *attribute)


def _table(graph: _Graph, command: Table, value: Any) -> Any:
    dtype, text = (DType.INT8, "i1") if command.ifm.dtype is Dtype.INT8 else (DType.INT16, "<i2")
    table = graph.const(graph.block(command.table, text), dtype)
    out = DType.INT8 if dtype == DType.INT8 else DType.INT32
    return graph.op(Op.TABLE, [value, table], command.ofm.shape, out, "TableAttribute")


def _resize(graph: _Graph, command: Resize, value: Any) -> tuple[Any, int]:
    """Its border is what makes the output as large as the command says."""
    (scale_y, scale_x), (step_y, step_x), (offset_y, offset_x) = command.scale_n, command.scale_d, command.offset
    border = [
        (command.ofm.shape[1 + axis] - 1) * command.scale_d[axis]
        - (command.ifm.shape[1 + axis] - 1) * command.scale_n[axis]
        + command.offset[axis]
        for axis in range(2)
    ]
    operands = [
        value,
        graph.shape([scale_y, step_y, scale_x, step_x]),
        graph.shape([offset_y, offset_x]),
        graph.shape(border),
    ]
    if command.mode is ResizeMode.NEAREST:
        result = graph.op(Op.RESIZE, operands, command.ofm.shape, DType.INT8, "ResizeAttribute", TosaResizeMode.NEAREST)
        return result, command.zero_point
    wide = graph.op(Op.RESIZE, operands, command.ofm.shape, DType.INT32, "ResizeAttribute", TosaResizeMode.BILINEAR)
    weight = graph.const(np.full(command.ofm.shape, command.zero_point * prod(command.scale_n)), DType.INT32)
    return graph.op(Op.SUB, [wide, weight], command.ofm.shape, DType.INT32, "SubAttribute"), 0


def _reduce(graph: _Graph, command: Reduce, value: Any) -> Any:
    op, *attribute = {
        ReduceKind.SUM: (Op.REDUCE_SUM, "ReduceSumAttribute"),
        ReduceKind.MAX: (Op.REDUCE_MAX, "ReduceMaxAttribute"),
        ReduceKind.MIN: (Op.REDUCE_MIN, "ReduceMinAttribute"),
    }[command.kind]
    behind = [] if command.kind is ReduceKind.SUM else [_NAN]
    value = graph.to_int32(value, command.zero_point)
    for axis in (dim for dim in range(4) if command.axes >> dim & 1):
        shape = [1 if dim == axis else size for dim, size in enumerate(value.shape)]
        value = graph.op(op, [value], shape, DType.INT32, *attribute, axis, *behind)
    return value
