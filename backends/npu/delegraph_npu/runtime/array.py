"""The array's work in NumPy: convolutions and matrix products, exact, through BLAS.

NumPy's own product of integer matrices is a plain loop, much slower than BLAS, which has floating point only. A float32
holds every integer up to 2**24, a float64 up to 2**53. A sum of products is exact in either, in whatever order and
groups it is added, if the sum of the products' magnitudes is below that: every partial sum is then an integer that is
held, and nothing rounds. The weights are known when a delegate is loaded, and an input has at most 128 (int8) or 32768
(int16): so it is known then which of the two is enough (`_exact_dtype`).

A zero point is taken away behind the product: sum((x - z) w) = sum(x w) - z sum(w), padding being z.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph_machines.fixed_point import Rounding
from delegraph_npu.commands import Block, Conv, Depthwise, Geometry, MatMul
from delegraph_npu.runtime.memory import Memories, reader, writer
from delegraph_npu.runtime.output_stage import OutputStage
from delegraph_npu.weights import decompress

__all__ = ["BoundConv", "BoundDepthwise", "BoundMatMul", "as_int32", "padded"]

_CHUNK: Final = 1 << 19
"""Elements of a matrix of windows at a time: 2 MB, so that they stay in a core's cache."""


def _exact_dtype(largest_sum: int) -> np.dtype[Any]:
    """The floating point dtype in which sums of magnitudes up to `largest_sum` are exact."""
    return np.dtype(np.float32 if largest_sum < 1 << 24 else np.float64)


def as_int32(sums: NDArray[Any]) -> NDArray[np.int64]:
    """`sums` wrapped to accumulators of 32 bits."""
    return np.asarray(sums, np.int64).astype(np.int32).astype(np.int64)


def padded(values: NDArray[Any], geometry: Geometry, fill: int, dtype: Any) -> NDArray[Any]:
    """`values` (n, h, w, c) with `fill` around them and, where they are scaled up, between them, densely."""
    n, h, w, c = values.shape
    top, left, bottom, right = geometry.pads
    up, across = geometry.upscale
    height, width = (h - 1) * up + 1, (w - 1) * across + 1
    if (height, width, top, left, bottom, right) == (h, w, 0, 0, 0, 0):
        return values.astype(dtype, order="C")
    buffer = np.full((n, top + height + bottom, left + width + right, c), fill, dtype)
    buffer[:, top : top + height : up, left : left + width : across] = values
    return buffer


def windows(buffer: NDArray[Any], geometry: Geometry, columns: int, rows: slice) -> NDArray[Any]:
    """A view of `buffer` as (n, h', w, kernel h, kernel w, c), for some rows of the output."""
    (down, across), (far, wide) = geometry.stride, geometry.dilation
    n_stride, h_stride, w_stride, c_stride = buffer.strides
    shape = (buffer.shape[0], rows.stop - rows.start, columns, *geometry.kernel, buffer.shape[3])
    strides = (n_stride, h_stride * down, w_stride * across, h_stride * far, w_stride * wide, c_stride)
    return np.ndarray(shape, buffer.dtype, buffer, rows.start * down * h_stride, strides)


def _row_slices(height: int, elements_per_row: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(elements_per_row, 1))
    return (slice(begin, min(begin + step, height)) for begin in range(0, height, step))


class BoundConv:
    """A convolution whose weights have been decoded."""

    def __init__(self, command: Conv, constants: Mapping[Block, memoryview], rounding: Rounding) -> None:
        self._command = command
        self._stage = OutputStage(command.requantize, command.ofm, constants, rounding)
        channels, (n, _, w, _) = command.ofm.shape[3], command.ofm.shape
        depth = prod(command.geometry.kernel) * command.ifm.shape[3]
        kernels = decompress(constants[command.weights], channels * depth).reshape(channels, depth)
        magnitude = -command.ifm.dtype.low
        largest = int(np.abs(kernels.astype(np.int64)).sum(axis=1).max()) * magnitude
        self._weights = np.ascontiguousarray(kernels.T, _exact_dtype(largest))
        self._offset = -command.zero_point * kernels.astype(np.int64).sum(axis=1)
        if self._stage.bias is not None:
            self._offset += self._stage.bias
        largest_offset = int(np.abs(self._offset).max())
        self._overflows = largest + largest_offset >= 1 << 31
        self._rows = tuple(_row_slices(command.ofm.shape[1], n * w * depth))

    def bind(self, memories: Memories) -> Callable[[], None]:
        """A function that does it once."""
        command, geometry, stage = self._command, self._command.geometry, self._stage
        read, write = reader(command.ifm, memories), writer(command.ofm, memories)
        n, _, w, channels = command.ofm.shape
        weights = self._weights

        def run() -> None:
            buffer = padded(read(), geometry, command.zero_point, weights.dtype)
            for rows in self._rows:
                columns = windows(buffer, geometry, command.ofm.shape[2], rows).reshape(-1, len(weights))
                sums = (columns @ weights).astype(np.int64)
                sums += self._offset
                if self._overflows:
                    sums = as_int32(sums)
                write(stage(sums).reshape(n, -1, w, channels), rows)

        return run


class BoundDepthwise:
    """A convolution of each channel by itself, whose weights have been decoded."""

    def __init__(self, command: Depthwise, constants: Mapping[Block, memoryview], rounding: Rounding) -> None:
        self._command = command
        self._stage = OutputStage(command.requantize, command.ofm, constants, rounding)
        kernel, channels = command.geometry.kernel, command.ofm.shape[3]
        kernels = decompress(constants[command.weights], prod(kernel) * channels).reshape(*kernel, channels)
        largest = int(np.abs(kernels.astype(np.int64)).sum(axis=(0, 1)).max()) * -command.ifm.dtype.low
        self._weights = kernels.astype(_exact_dtype(largest))
        self._offset = -command.zero_point * kernels.astype(np.int64).sum(axis=(0, 1))
        if self._stage.bias is not None:
            self._offset += self._stage.bias
        self._overflows = largest + int(np.abs(self._offset).max()) >= 1 << 31
        self._rows = tuple(_row_slices(command.ofm.shape[1], prod(command.ofm.shape) // command.ofm.shape[1]))

    def bind(self, memories: Memories) -> Callable[[], None]:
        """A function that does it once."""
        command, geometry, stage = self._command, self._command.geometry, self._stage
        read, write = reader(command.ifm, memories), writer(command.ofm, memories)

        def run() -> None:
            buffer = padded(read(), geometry, command.zero_point, self._weights.dtype)
            for rows in self._rows:
                view = windows(buffer, geometry, command.ofm.shape[2], rows)
                sums = np.zeros((*view.shape[:3], view.shape[5]), view.dtype)
                for i, j in np.ndindex(*geometry.kernel):
                    sums += view[:, :, :, i, j] * self._weights[i, j]
                exact = sums.astype(np.int64)
                exact += self._offset
                write(stage(as_int32(exact) if self._overflows else exact), rows)

        return run


class BoundMatMul:
    """A product of two inputs, the same for each n and h."""

    def __init__(self, command: MatMul, constants: Mapping[Block, memoryview], rounding: Rounding) -> None:
        self._command = command
        self._stage = OutputStage(command.requantize, command.ofm, constants, rounding)
        largest = command.ifm.shape[3]
        for operand, zero_point in ((command.ifm, command.zero_point), (command.ifm2, command.zero_point2)):
            largest *= max(zero_point - operand.dtype.low, operand.dtype.high - zero_point)
        self._dtype = _exact_dtype(largest)
        self._overflows = largest >= 1 << 31

    def bind(self, memories: Memories) -> Callable[[], None]:
        """A function that does it once."""
        command = self._command
        read, read2 = reader(command.ifm, memories), reader(command.ifm2, memories)
        write, everything = writer(command.ofm, memories), slice(0, command.ofm.shape[1])

        def run() -> None:
            left = read().astype(self._dtype) - self._dtype.type(command.zero_point)
            right = read2().astype(self._dtype) - self._dtype.type(command.zero_point2)
            sums = (left @ right).astype(np.int64)
            if self._stage.bias is not None:
                sums += self._stage.bias
            write(self._stage(as_int32(sums) if self._overflows else sums), everything)

        return run
