"""Commands and the sizes of their memories -> the first command that is not sound, before any of them runs.

A stream is sound if every byte that is read or written lies in its memory, no constant is written, no command touches
the bytes of an unfinished transfer (`delegraph_machines.hazards`), shapes follow from each other, scales are in TOSA's
ranges, and no command's work is out of proportion to the memory that it is done in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Final, NoReturn

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_machines.hazards import Hazard, Hazards, Range
from delegraph_npu.accesses import dma_ranges, inputs_of, operands_of, ranges_of
from delegraph_npu.commands import (
    UNUSED,
    Command,
    Computing,
    Conv,
    Depthwise,
    DmaStart,
    DmaWait,
    Dtype,
    Elementwise,
    FeatureMap,
    Geometry,
    MatMul,
    Operand,
    Pool,
    PoolKind,
    Reduce,
    Region,
    Requantize,
    Resize,
    Stop,
    Table,
)

__all__ = ["SCALE_NBYTES", "validate"]

SCALE_NBYTES: Final = 12
"""Bytes of an output channel's bias, multiplier and shift."""

_CONSTANT: Final = (Region.WEIGHTS, Region.TABLES)
_SHIFTS: Final = range(2, 63)  # TOSA 1.0, RESCALE
_MOST_KERNEL_ELEMENTS: Final = 1 << 16
_MOST_PADDED_ELEMENTS: Final = 1 << 28
_MOST_SCALE: Final = 1 << 11  # TOSA 1.0, RESIZE: MAX_SCALE is larger on no level
_TABLE_NBYTES: Final = {Dtype.INT8: 256, Dtype.INT16: 2 * 513}


def validate(commands: Iterable[tuple[int, Command]], sizes: Mapping[Region, int], operators: int) -> None:
    """Raise `DelegateInvalidCompatibility`, with the word and the reason, for a stream that is not sound.

    `commands` come with the words of their opcodes (`decode_at`); `sizes` are the bytes of each region, and `operators`
    is the number of operators in the blob.
    """
    hazards, stopped = Hazards(), False
    for word, command in commands:
        try:
            if stopped:
                _refuse("it comes behind the end of the stream")
            stopped = isinstance(command, Stop)
            _check(command, sizes, operators, hazards)
        except (_Refused, Hazard) as error:
            what = type(command).__name__
            raise DelegateInvalidCompatibility(
                f"word {word} of a command stream of NpuBackend, {what}: {error}"
            ) from error
    if not stopped:
        raise DelegateInvalidCompatibility("a command stream of NpuBackend ends without a Stop")


class _Refused(ValueError):
    """The reason why a command is not sound."""


def _refuse(reason: str) -> NoReturn:
    raise _Refused(reason)


def _need(condition: bool, reason: str) -> None:
    if not condition:
        _refuse(reason)


def _check(command: Command, sizes: Mapping[Region, int], operators: int, hazards: Hazards) -> None:
    if isinstance(command, Stop):
        _need(not hazards.unfinished(), f"nothing waited for channels {hazards.unfinished()}")
        return
    if isinstance(command, DmaWait):
        hazards.wait(command.channel)
        return
    _need(0 <= command.operator < operators, f"there is no operator {command.operator} of {operators}")
    if isinstance(command, DmaStart):
        _transfer(command)
        read, written = dma_ranges(command)
        reads, writes = [read], [written]
    else:
        _computing(command)
        reads, writes = ranges_of(command)
    for byte_range in (*reads, *writes):
        _inside(byte_range, sizes)
    for byte_range in writes:
        _need(Region[byte_range.memory] not in _CONSTANT, f"{byte_range.memory} is read-only")
    if isinstance(command, DmaStart):
        hazards.start(command.channel, reads, writes)
    else:
        hazards.access(reads, writes)


def _inside(byte_range: Range, sizes: Mapping[Region, int]) -> None:
    size = sizes[Region[byte_range.memory]]
    _need(
        byte_range.begin >= 0 and byte_range.end <= size,
        f"bytes {byte_range.begin} to {byte_range.end} are not in {byte_range.memory}, which has {size}",
    )


def _transfer(command: DmaStart) -> None:
    _need(command.channel >= 0, f"channel {command.channel}")
    numbers = (*command.shape, *command.source_strides, *command.target_strides)
    _need(min(numbers) >= 0, f"shape {command.shape} or a stride is below 0")
    _need(prod(command.shape) > 0, "it moves nothing")
    _, written = dma_ranges(command)
    _need(prod(command.shape) <= written.end - written.begin, "its rows are written over each other")


# ---- computing -------------------------------------------------------------------------------------


def _computing(command: Computing) -> None:
    for fm in (*inputs_of(command), command.ofm):
        _feature_map(fm)
    steps = zip(command.ofm.shape, command.ofm.strides, strict=True)
    _need(all(stride for size, stride in steps if size > 1), "elements of its ofm lie on each other")
    _requantize(command.requantize, command.ofm)
    if not isinstance(command, Elementwise):
        for fm in inputs_of(command):
            nonzero = [size for size, stride in zip(fm.shape, fm.strides, strict=True) if stride or size == 1]
            _need(len(nonzero) == len(fm.shape), "only operands of elementwise commands are broadcast")
            _need(fm.size * fm.dtype.nbytes <= max(fm.span, 1), "elements of its ifm lie on each other")
    match command:
        case Conv() | Depthwise() | Pool():
            _windows(command)
        case MatMul():
            _matmul(command)
        case Elementwise():
            _elementwise(command)
        case Table():
            _table(command)
        case Resize():
            _resize(command)
        case Reduce():
            _reduce(command)


def _feature_map(fm: FeatureMap) -> None:
    item = fm.dtype.nbytes
    _need(min(fm.shape) > 0, f"a feature map of shape {fm.shape}")
    _need(min(fm.strides) >= 0, f"a feature map with strides {fm.strides}")
    _need(fm.offset >= 0 and fm.offset % item == 0, f"offset {fm.offset} of elements of {item} bytes")
    _need(all(stride % item == 0 for stride in fm.strides), f"strides {fm.strides} of elements of {item} bytes")


def _requantize(stage: Requantize, ofm: FeatureMap) -> None:
    _scale(stage.multiplier, stage.shift)
    low, high = ofm.dtype.low, ofm.dtype.high
    _need(low <= stage.low <= stage.high <= high, f"a clamp to {stage.low} and {stage.high} of {ofm.dtype.name}")
    _need(low <= stage.zero_point <= high, f"zero point {stage.zero_point} of {ofm.dtype.name}")
    if stage.scales:
        _need(stage.scales.nbytes == SCALE_NBYTES * ofm.shape[3], f"{stage.scales.nbytes} bytes of scales")
        _need(stage.scales.offset % 4 == 0, "scales are aligned to 4 bytes")
    if stage.table:
        _need(ofm.dtype is Dtype.INT8 and stage.table.nbytes == 256, "a table of an output is one of 256 int8")


def _scale(multiplier: int, shift: int) -> None:
    _need(multiplier >= 0, f"multiplier {multiplier}")
    _need(shift in _SHIFTS, f"shift {shift} is not from {_SHIFTS[0]} to {_SHIFTS[-1]}")


def _zero_point(zero_point: int, dtype: Dtype) -> None:
    _need(dtype.low <= zero_point <= dtype.high, f"zero point {zero_point} of {dtype.name}")


def _windows(command: Conv | Depthwise | Pool) -> None:
    ifm, ofm, geometry = command.ifm, command.ofm, command.geometry
    _geometry(geometry)
    _need(ifm.dtype is not Dtype.INT32, "its ifm is int32")
    _zero_point(command.zero_point, ifm.dtype)
    height, width = geometry.output(*ifm.shape[1:3])
    channels = ofm.shape[3] if isinstance(command, Conv) else ifm.shape[3]
    expected = (ifm.shape[0], height, width, channels)
    _need(ofm.shape == expected, f"its ofm is {ofm.shape}, and what comes out is {expected}")
    top, left, bottom, right = geometry.pads
    padded = (ifm.shape[1] * geometry.upscale[0] + top + bottom) * (ifm.shape[2] * geometry.upscale[1] + left + right)
    _need(ifm.shape[0] * ifm.shape[3] * padded <= _MOST_PADDED_ELEMENTS, "its padded ifm is too large")
    if isinstance(command, Pool):
        _need(geometry.upscale == (1, 1) and geometry.dilation == (1, 1), "pools have no upscale and no dilation")
        _need(command.kind is PoolKind.MAX or prod(geometry.kernel) <= 1 << 16, "a mean is of at most 65536 elements")
        _need(not command.requantize.scales, "a pool has one scale")
    else:
        _need(bool(command.weights), "it has no weights")


def _geometry(geometry: Geometry) -> None:
    at_least_one = (*geometry.kernel, *geometry.stride, *geometry.dilation, *geometry.upscale)
    _need(min(at_least_one) >= 1, f"{geometry}")
    _need(prod(geometry.kernel) <= _MOST_KERNEL_ELEMENTS, f"a kernel of {geometry.kernel}")
    for axis, pads in enumerate((geometry.pads[::2], geometry.pads[1::2])):
        reach = geometry.dilation[axis] * (geometry.kernel[axis] - 1) + 1
        _need(min(pads) >= 0 and max(pads) < reach, f"pads {pads} of a kernel that reaches over {reach}")


def _matmul(command: MatMul) -> None:
    (n, h, w, c), (n2, h2, w2, c2) = command.ifm.shape, command.ifm2.shape
    _need((n2, h2, w2) == (n, h, c), f"{command.ifm.shape} times {command.ifm2.shape}")
    _need(command.ofm.shape == (n, h, w, c2), f"its ofm is {command.ofm.shape}, and what comes out is {(n, h, w, c2)}")
    for operand, zero_point in ((command.ifm, command.zero_point), (command.ifm2, command.zero_point2)):
        _need(operand.dtype is not Dtype.INT32, "it multiplies int32")
        _zero_point(zero_point, operand.dtype)


def _elementwise(command: Elementwise) -> None:
    for operand in operands_of(command):
        shape = operand.feature_map.shape
        _need(shape == command.ofm.shape, f"an operand is {shape}, its ofm {command.ofm.shape}")
        _operand(operand)
    _need(len(operands_of(command)) == 2 or command.b == UNUSED, f"{command.kind.name} has a second operand")


def _operand(operand: Operand) -> None:
    _scale(operand.multiplier, operand.shift)
    _zero_point(operand.zero_point, operand.feature_map.dtype)
    # one bit for the zero point; the sum of both operands has one more
    bits = 8 * operand.feature_map.dtype.nbytes + 1 if operand.zero_point else 8 * operand.feature_map.dtype.nbytes
    _need(0 <= operand.left_shift <= 32 - bits, f"{bits} bits shifted left by {operand.left_shift}")


def _table(command: Table) -> None:
    dtype = command.ifm.dtype
    _need(command.ifm.shape == command.ofm.shape, f"its ofm is {command.ofm.shape}, its ifm {command.ifm.shape}")
    _need(dtype in _TABLE_NBYTES and command.table.nbytes == _TABLE_NBYTES[dtype], f"no table of {dtype.name}")
    _need(command.table.offset % 2 == 0, "tables are aligned to 2 bytes")


def _resize(command: Resize) -> None:
    _need(command.ifm.dtype is not Dtype.INT32, "its ifm is int32")
    _zero_point(command.zero_point, command.ifm.dtype)
    _need((command.ifm.shape[0], command.ifm.shape[3]) == (command.ofm.shape[0], command.ofm.shape[3]), "n, c differ")
    scales = (*command.scale_n, *command.scale_d)
    _need(min(scales) >= 1 and max(scales) <= _MOST_SCALE, f"scales {scales}")


def _reduce(command: Reduce) -> None:
    _need(0 < command.axes < 16, f"axes {command.axes}")
    expected = tuple(1 if command.axes >> dim & 1 else size for dim, size in enumerate(command.ifm.shape))
    _need(command.ofm.shape == expected, f"its ofm is {command.ofm.shape}, and what comes out is {expected}")
    _zero_point(command.zero_point, command.ifm.dtype)
