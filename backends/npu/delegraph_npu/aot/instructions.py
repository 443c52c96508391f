"""One operator on one tile -> its commands, with multipliers and shifts between the grids that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Final

import numpy as np

from delegraph_machines.fixed_point import quantized_multiplier
from delegraph_machines.region_pool import RegionPool
from delegraph_npu import commands as npu
from delegraph_npu.aot import ir
from delegraph_npu.aot.tiling import aligned
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.commands import Region

__all__ = ["Constants", "Piece", "Tile", "instructions"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes at `source` that are loaded to `offset` in the SRAM of a block of weights."""

    source: npu.Address
    nbytes: int
    offset: int = 0


@dataclass(slots=True)
class Constants:
    """The regions WEIGHTS and TABLES as they grow; equal contents are stored once. `shared`: the weights are those of
    several partitions, so that scales, which depend on a partition's grids, lie apart (`weight_streams.py`)."""

    blocks: WeightBlocks
    weights: RegionPool
    shared: bool = False
    tables: bytearray = field(default_factory=bytearray)
    _tables: dict[bytes, int] = field(default_factory=dict)

    def table(self, content: bytes) -> int:
        """The offset of `content` in TABLES."""
        if content not in self._tables:
            self._tables[content] = len(self.tables)
            self.tables += content + bytes(aligned(len(content)) - len(content))
        return self._tables[content]

    def block(self, operator: ir.Convolution, begin: int, end: int) -> list[Piece]:
        """The pieces from which the block of these channels is loaded into SRAM."""
        block = self.blocks.block(operator, begin, end)
        if not self.shared:
            return [Piece(npu.Address(Region.WEIGHTS, self.weights.place(block.data)), len(block.data))]
        scales, weights = self.table(block.scales), self.weights.place(block.stream)
        return [
            Piece(npu.Address(Region.TABLES, scales), len(block.scales)),
            Piece(npu.Address(Region.WEIGHTS, weights), len(block.stream), block.weights_offset),
        ]


@dataclass(frozen=True, slots=True)
class Tile:
    """`box` of an operator's output: the input feature maps and their parts, and the output feature map.

    `weights` and `table` are offsets in SRAM; `number` is the operator's, for the counters.
    """

    operator: ir.Operator
    box: ir.Box
    inputs: Sequence[npu.FeatureMap]
    parts: Sequence[ir.Box]
    output: npu.FeatureMap
    weights: int | None
    table: npu.Block
    constants: Constants
    number: int

    def stage(self, scales: npu.Block = npu.NOWHERE) -> npu.Requantize:
        """The output stage for the operator's sums, with the scales by channel in `scales`, or a single multiplier."""
        operator = self.operator
        multiplier, shift = _scaled(1.0 if scales else float(operator.rescaling))
        fused = self.table if operator.table is not None else npu.NOWHERE
        return npu.Requantize(
            operator.rounded_to.zero_point, operator.low, operator.high, multiplier, shift, scales, fused
        )


def _scaled(scale: float) -> tuple[int, int]:
    multiplier, shift = quantized_multiplier(scale)
    return int(multiplier), int(shift)


@singledispatch
def instructions(operator: ir.Operator, tile: Tile) -> list[npu.Computing]:
    """The commands for a tile of `operator`, in order."""
    raise NotImplementedError(f"no command for {operator}")


@instructions.register
def _convolution(operator: ir.Convolution, tile: Tile) -> list[npu.Computing]:
    assert tile.weights is not None
    block = tile.constants.blocks.block(operator, *tile.box[3])
    scales = npu.Block(Region.SRAM, tile.weights, block.scales_nbytes)
    weights = npu.Block(Region.SRAM, tile.weights + block.weights_offset, block.weights_nbytes)
    command = npu.Depthwise if operator.depthwise else npu.Conv
    return [
        command(
            tile.inputs[0],
            operator.inputs[0].zero_point,
            tile.output,
            _geometry(operator.window, tile),
            weights,
            tile.stage(scales),
            tile.number,
        )
    ]


def _geometry(window: ir.Window, tile: Tile) -> npu.Geometry:
    pads = window.pads(tile.box, tile.parts[0])
    return npu.Geometry(window.kernel, window.stride, window.dilation, pads, window.upscale)


@instructions.register
def _pool(operator: ir.Pool, tile: Tile) -> list[npu.Computing]:
    kinds = {
        "max": npu.PoolKind.MAX,
        "average": npu.PoolKind.AVERAGE,
        "average_padded": npu.PoolKind.AVERAGE_PADDED,
    }
    zero_point = operator.inputs[0].zero_point
    geometry = _geometry(operator.window, tile)
    kind = kinds[operator.kind]
    return [npu.Pool(kind, tile.inputs[0], zero_point, tile.output, geometry, tile.stage(), tile.number)]


@instructions.register
def _matmul(operator: ir.Matmul, tile: Tile) -> list[npu.Computing]:
    a, b = operator.inputs
    first, second = tile.inputs
    return [npu.MatMul(first, a.zero_point, second, b.zero_point, tile.output, tile.stage(), tile.number)]


# ---- element by element ---------------------------------------------------------------------------------------------

_KINDS: Final = {
    "add": npu.ElementwiseKind.ADD,
    "sub": npu.ElementwiseKind.SUB,
    "mul": npu.ElementwiseKind.MUL,
    "shift_left": npu.ElementwiseKind.SHIFT_LEFT,
    "shift_right": npu.ElementwiseKind.SHIFT_RIGHT,
    "count_leading_zeros": npu.ElementwiseKind.COUNT_LEADING_ZEROS,
}


@instructions.register
def _binary(operator: ir.Binary, tile: Tile) -> list[npu.Computing]:
    a, b = operator.inputs
    maps = [_repeated(ifm, tile.output) for ifm in tile.inputs]
    kind = _KINDS[operator.kind]
    if operator.output.dtype == np.int32 or operator.kind == "mul":
        first, second = (npu.Operand(ifm, t.zero_point) for ifm, t in zip(maps, (a, b), strict=True))
    else:
        first, second = (
            npu.Operand(ifm, t.zero_point, operator.headroom, *_scaled(t.scale / operator.common))
            for ifm, t in zip(maps, (a, b), strict=True)
        )
    return [npu.Elementwise(kind, first, second, tile.output, tile.stage(), tile.number)]


def _repeated(ifm: npu.FeatureMap, output: npu.FeatureMap) -> npu.FeatureMap:
    """`ifm`, with dims of one element repeated to the output's sizes."""
    n, h, w, c = (
        stride if size == target else 0
        for size, stride, target in zip(ifm.shape, ifm.strides, output.shape, strict=True)
    )
    return replace(ifm, shape=output.shape, strides=(n, h, w, c))


@instructions.register
def _copy(operator: ir.Copy, tile: Tile) -> list[npu.Computing]:
    operand = npu.Operand(tile.inputs[0], operator.inputs[0].zero_point)
    return [npu.Elementwise(npu.ElementwiseKind.COPY, operand, npu.UNUSED, tile.output, tile.stage(), tile.number)]


@instructions.register
def _unary(operator: ir.Unary, tile: Tile) -> list[npu.Computing]:
    operand = npu.Operand(tile.inputs[0])
    return [npu.Elementwise(_KINDS[operator.kind], operand, npu.UNUSED, tile.output, tile.stage(), tile.number)]


@instructions.register
def _table(operator: ir.Table, tile: Tile) -> list[npu.Computing]:
    """Zero points are in the entries already."""
    stage = replace(tile.stage(), zero_point=0)
    return [npu.Table(tile.inputs[0], tile.table, tile.output, stage, tile.number)]


@instructions.register
def _pad(operator: ir.Pad, tile: Tile) -> list[npu.Computing]:
    """The number everywhere, and the operand's part over it."""
    source = operator.inputs[0]
    content = np.array([operator.value], source.dtype).tobytes()
    number = npu.FeatureMap(
        Region.TABLES,
        tile.constants.table(content),
        tile.output.dtype,
        npu.Layout.NHWC,
        tile.output.shape,
        (0, 0, 0, 0),
    )
    stage = replace(tile.stage(), zero_point=0)
    fill = npu.Elementwise(npu.ElementwiseKind.COPY, npu.Operand(number), npu.UNUSED, tile.output, stage, tile.number)
    spans = [
        (max(span[0], first), min(span[1], first + size))
        for span, first, size in zip(tile.box, operator.before, source.shape, strict=True)
    ]
    if any(begin >= end for begin, end in spans):
        return [fill]
    offset, from_offset = tile.output.offset, tile.inputs[0].offset
    for (begin, _), span, first, part, to, taken in zip(
        spans, tile.box, operator.before, tile.parts[0], tile.output.strides, tile.inputs[0].strides, strict=True
    ):
        offset += (begin - span[0]) * to
        from_offset += (begin - first - part[0]) * taken
    n, h, w, c = (end - begin for begin, end in spans)
    taken_map = replace(tile.inputs[0], offset=from_offset, shape=(n, h, w, c))
    given_map = replace(tile.output, offset=offset, shape=(n, h, w, c))
    copy = npu.Elementwise(npu.ElementwiseKind.COPY, npu.Operand(taken_map), npu.UNUSED, given_map, stage, tile.number)
    return [fill, copy]


# ---- other shapes ---------------------------------------------------------------------------------------------------


@instructions.register
def _reduce(operator: ir.Reduce, tile: Tile) -> list[npu.Computing]:
    kind = {"sum": npu.ReduceKind.SUM, "max": npu.ReduceKind.MAX}[operator.kind]
    axes = sum(1 << axis for axis in operator.axes)
    zero_point = operator.inputs[0].zero_point
    return [npu.Reduce(kind, axes, tile.inputs[0], zero_point, tile.output, tile.stage(), tile.number)]


@instructions.register
def _resize(operator: ir.Resize, tile: Tile) -> list[npu.Computing]:
    source = operator.inputs[0]
    ny, dy, nx, dx = operator.scale
    mode = {"nearest": npu.ResizeMode.NEAREST, "bilinear": npu.ResizeMode.BILINEAR}[operator.kind]
    vertical, horizontal = (
        tile.box[1 + axis][0] * d + operator.offset[axis] - tile.parts[0][1 + axis][0] * n
        for axis, (n, d) in enumerate(((ny, dy), (nx, dx)))
    )
    return [
        npu.Resize(
            mode, tile.inputs[0], source.zero_point, (ny, nx), (dy, dx), (vertical, horizontal), tile.output,
            tile.stage(), tile.number,
        )
    ]  # fmt: skip
