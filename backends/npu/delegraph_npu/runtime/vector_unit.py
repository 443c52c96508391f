"""The commands without weights, in NumPy: pools, elementwise, tables, resizing, reductions.

Formulae are those of the operators of these names in TOSA 1.0's integer profile; with double rounding, an average is
TFLite's (half away from zero).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph_machines.fixed_point import Rounding, look_up, reciprocal, rescale
from delegraph_npu.accesses import operands_of
from delegraph_npu.commands import (
    IDENTITY_MULTIPLIER,
    IDENTITY_SHIFT,
    Block,
    Elementwise,
    ElementwiseKind,
    FeatureMap,
    Geometry,
    Operand,
    Pool,
    PoolKind,
    Reduce,
    ReduceKind,
    Resize,
    ResizeMode,
    Table,
)
from delegraph_npu.runtime.array import as_int32, padded, windows
from delegraph_npu.runtime.memory import Memories, reader, writer
from delegraph_npu.runtime.output_stage import OutputStage

__all__ = ["BoundVector"]

Sums: TypeAlias = NDArray[np.int64]
_Work: TypeAlias = Callable[..., Sums]
"""The elements of the inputs, an array for each -> sums."""


class BoundVector:
    """A command of the vector unit: its function of the inputs' elements, and the output stage."""

    def __init__(
        self,
        command: Pool | Elementwise | Table | Resize | Reduce,
        constants: Mapping[Block, memoryview],
        rounding: Rounding,
    ) -> None:
        self._command = command
        self._stage = OutputStage(command.requantize, command.ofm, constants, rounding)
        self._work = _work(command, constants, rounding)

    def bind(self, memories: Memories) -> Callable[[], None]:
        """A function that does it once."""
        command, stage, work = self._command, self._stage, self._work
        if isinstance(command, Elementwise):
            reads = [reader(operand.feature_map, memories) for operand in operands_of(command)]
        else:
            reads = [reader(command.ifm, memories)]
        write, everything = writer(command.ofm, memories), slice(0, command.ofm.shape[1])

        def run() -> None:
            sums = work(*[read() for read in reads])
            if stage.bias is not None:
                sums = as_int32(sums + stage.bias)
            write(stage(sums), everything)

        return run


def _work(
    command: Pool | Elementwise | Table | Resize | Reduce, constants: Mapping[Block, memoryview], rounding: Rounding
) -> _Work:
    match command:
        case Pool(kind=PoolKind.MAX):
            return lambda values: _max_pool(command, values)
        case Pool():
            return _average_pool(command, rounding)
        case Elementwise():
            return _elementwise(command, rounding)
        case Table():
            table = np.frombuffer(constants[command.table], "<i1" if command.table.nbytes == 256 else "<i2")
            return lambda values: look_up(table, values).astype(np.int64)
        case Resize():
            return _resize(command)
        case Reduce():
            axes = tuple(dim for dim in range(4) if command.axes >> dim & 1)
            return lambda values: _reduce(command, axes, values)


# ---- pools -----------------------------------------------------------------------------------------


def _max_pool(command: Pool, values: NDArray[Any]) -> Sums:
    buffer = padded(values, command.geometry, command.ifm.dtype.low, values.dtype)
    largest = _over_windows(np.maximum, buffer, command.geometry, command.ofm)
    return np.asarray(largest.astype(np.int64) - command.zero_point)


def _over_windows(function: np.ufunc, buffer: NDArray[Any], geometry: Geometry, ofm: FeatureMap) -> NDArray[Any]:
    """The largest element, or the exact sum, of each window (n, h', w', c): down the columns, then across."""
    (height, width), (down, across), (far, wide) = geometry.kernel, geometry.stride, geometry.dilation
    _, rows, columns, _ = ofm.shape
    tall = windows(buffer, Geometry((height, 1), (down, 1), (far, 1)), buffer.shape[2], slice(0, rows))
    down_columns = np.ascontiguousarray(function.reduce(tall, axis=(3, 4), dtype=buffer.dtype))
    broad = windows(down_columns, Geometry((1, width), (1, across), (1, wide)), columns, slice(0, rows))
    return np.asarray(function.reduce(broad, axis=(3, 4), dtype=buffer.dtype))


def _average_pool(command: Pool, rounding: Rounding) -> _Work:
    """Sums of windows, divided by the number of elements that count, which depends on the place."""
    geometry, ofm = command.geometry, command.ofm
    if command.kind is PoolKind.AVERAGE_PADDED:
        counts = np.full((1, *ofm.shape[1:3], 1), prod(geometry.kernel))
    else:
        ones = padded(np.ones((1, *command.ifm.shape[1:3], 1), np.int64), geometry, 0, np.int64)
        counts = _over_windows(np.add, ones, geometry, ofm)
    counts = np.maximum(counts, 1)
    places, inverse = np.unique(counts, return_inverse=True)
    scales = np.array([reciprocal(int(count)) for count in places], np.int64)[inverse.reshape(counts.shape)]

    wide = np.int32 if prod(geometry.kernel) < 1 << 15 else np.int64  # the number of int16 whose sum int32 holds

    def run(values: NDArray[Any]) -> Sums:
        fill = command.zero_point if rounding == "single" or command.kind is PoolKind.AVERAGE_PADDED else 0
        sums = _over_windows(np.add, padded(values, geometry, fill, wide), geometry, ofm)
        if rounding == "double":  # of the stored integers, zero point included
            return np.asarray(np.sign(sums) * ((np.abs(sums) + counts // 2) // counts) - command.zero_point)
        sums -= prod(geometry.kernel) * command.zero_point
        return rescale(sums, scales[..., 0], scales[..., 1])

    return run


# ---- elementwise -----------------------------------------------------------------------------------

_FUNCTIONS: Final[Mapping[ElementwiseKind, Callable[..., Sums]]] = {
    ElementwiseKind.COPY: lambda a: a,
    ElementwiseKind.ABS: np.abs,
    ElementwiseKind.ADD: np.add,
    ElementwiseKind.SUB: np.subtract,
    ElementwiseKind.MUL: np.multiply,
    ElementwiseKind.MAXIMUM: np.maximum,
    ElementwiseKind.MINIMUM: np.minimum,
    ElementwiseKind.SHIFT_LEFT: lambda a, b: a << (b & 31),
    ElementwiseKind.SHIFT_RIGHT: lambda a, b: _shifted_right(a, b & 31),
    ElementwiseKind.COUNT_LEADING_ZEROS: lambda a: 32 - np.frexp((a & 0xFFFFFFFF).astype(np.float64))[1],
}


def _shifted_right(values: Sums, bits: Sums) -> Sums:
    """A shift that rounds half up, as TOSA 1.0's ARITHMETIC_RIGHT_SHIFT with `round`."""
    return np.asarray((values + (np.int64(1) << bits >> 1)) >> bits)


def _elementwise(command: Elementwise, rounding: Rounding) -> _Work:
    function, operands = _FUNCTIONS[command.kind], operands_of(command)

    def run(*values: NDArray[Any]) -> Sums:
        scaled = [_operand(operand, elements, rounding) for operand, elements in zip(operands, values, strict=True)]
        return as_int32(function(*scaled))

    return run


def _operand(operand: Operand, values: NDArray[Any], rounding: Rounding) -> Sums:
    wide = values.astype(np.int64)
    if operand.zero_point:
        wide -= operand.zero_point
    if operand.left_shift:
        wide <<= operand.left_shift
    if (operand.multiplier, operand.shift) == (IDENTITY_MULTIPLIER, IDENTITY_SHIFT):
        return wide
    return rescale(wide, operand.multiplier, operand.shift, rounding)


# ---- resizing, reducing ----------------------------------------------------------------------------


def _resize(command: Resize) -> _Work:
    _, height, width, _ = command.ifm.shape
    tops, bottoms, down = _places(command, 0, height)
    lefts, rights, across = _places(command, 1, width)
    (scale_y, scale_x), zero_point = command.scale_n, command.zero_point
    if command.mode is ResizeMode.NEAREST:
        rows, columns = np.where(2 * down >= scale_y, bottoms, tops), np.where(2 * across >= scale_x, rights, lefts)
        return lambda values: values[:, rows[:, None], columns].astype(np.int64) - zero_point

    def run(values: NDArray[Any]) -> Sums:
        wide = values.astype(np.int64) - zero_point
        y, x = down[:, None, None], across[:, None]
        rows = wide[:, tops] * (scale_y - y) + wide[:, bottoms] * y
        return as_int32(rows[:, :, lefts] * (scale_x - x) + rows[:, :, rights] * x)

    return run


def _places(command: Resize, axis: int, size: int) -> tuple[Sums, Sums, Sums]:
    """Along h (axis 0) or w (1): the input's element before each of the output's, the one behind it, and the
    fraction."""
    at = np.arange(command.ofm.shape[1 + axis], dtype=np.int64) * command.scale_d[axis] + command.offset[axis]
    before = at // command.scale_n[axis]
    return before.clip(0, size - 1), (before + 1).clip(0, size - 1), at - before * command.scale_n[axis]


def _reduce(command: Reduce, axes: tuple[int, ...], values: NDArray[Any]) -> Sums:
    wide = values.astype(np.int64)
    match command.kind:
        case ReduceKind.SUM:
            count = prod(command.ifm.shape[axis] for axis in axes)
            return as_int32(wide.sum(axis=axes, keepdims=True) - count * command.zero_point)
        case ReduceKind.MAX:
            return np.asarray(wide.max(axis=axes, keepdims=True) - command.zero_point)
        case ReduceKind.MIN:
            return np.asarray(wide.min(axis=axes, keepdims=True) - command.zero_point)
