"""The NPU's commands: one frozen dataclass for each, and for each part of a command.

The machine executes a straight list of commands in order. A computing command is done before the next one begins. A
DMA transfer runs beside the following commands, until a `DmaWait` on its channel. Every computing command ends in the
output stage: its sums, 32-bit integers, are requantized, clamped, looked up in a table if it has one, and written.

    ifm ──┐
          ├── multiply, add ── int32 sums ── + bias, × multiplier >> shift, + zero point, clamp ── table ── ofm
    weights ┘

Feature maps have four dims, n, h, w, c, and a stride in bytes for each: a slice, a transposed or a broadcast (stride 0)
operand is a descriptor, not a copy. Numbers are as in TOSA 1.0 (https://www.mlplatform.org/tosa/tosa_spec.html).
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, TypeAlias

from delegraph.lazy_dataclass import dataclass

__all__ = [
    "BRICK",
    "IDENTITY_MULTIPLIER",
    "IDENTITY_SHIFT",
    "NOWHERE",
    "UNUSED",
    "Address",
    "Block",
    "Command",
    "Conv",
    "Depthwise",
    "DmaStart",
    "DmaWait",
    "Dtype",
    "Elementwise",
    "ElementwiseKind",
    "FeatureMap",
    "Geometry",
    "Layout",
    "MatMul",
    "Operand",
    "Pool",
    "PoolKind",
    "Reduce",
    "ReduceKind",
    "Region",
    "Requantize",
    "Resize",
    "ResizeMode",
    "Stop",
    "Table",
    "dense",
]

BRICK = 16
"""Channels that lie beside each other in the layout `BRICKS` (Ethos-U's NHCWB16)."""

IDENTITY_MULTIPLIER, IDENTITY_SHIFT = 1 << 30, 30
"""A scale of one: whatever the rounding, values do not change."""

Dims: TypeAlias = tuple[int, int, int, int]
"""One number for each of n, h, w, c."""


class Region(IntEnum):
    """A memory as commands see it, each with addresses from 0.

    SRAM is on the chip; DRAM has the tensors that do not fit there, and a delegate's inputs and outputs where they are
    not put into SRAM; WEIGHTS and TABLES are read-only parts of the blob: compressed weights, and all other constants.
    """

    SRAM = 0
    DRAM = 1
    WEIGHTS = 2
    TABLES = 3


class Dtype(IntEnum):
    """Signed integers, little endian."""

    INT8 = 0
    INT16 = 1
    INT32 = 2

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return 1 << self

    @property
    def low(self) -> int:
        """The smallest value."""
        return -(1 << (8 * self.nbytes - 1))

    @property
    def high(self) -> int:
        """The largest value."""
        return (1 << (8 * self.nbytes - 1)) - 1


class Layout(IntEnum):
    """The layout of channels: each at the channel stride; or bricks of 16 side by side, the stride being a brick's."""

    NHWC = 0
    BRICKS = 1


class PoolKind(IntEnum):
    """The result of a window. `AVERAGE` divides by the elements that are no padding, `AVERAGE_PADDED` by all."""

    MAX = 0
    AVERAGE = 1
    AVERAGE_PADDED = 2


class ElementwiseKind(IntEnum):
    """The function of `a` and `b`; `COPY`, `ABS` and `COUNT_LEADING_ZEROS` (of 32 bits) read `a` alone. Shifts are by 0
    to 31 bits: to the left bits beyond 32 are lost, to the right the result is rounded half up."""

    COPY = 0
    ABS = 1
    ADD = 2
    SUB = 3
    MUL = 4
    MAXIMUM = 5
    MINIMUM = 6
    SHIFT_LEFT = 7
    SHIFT_RIGHT = 8
    COUNT_LEADING_ZEROS = 9


class ReduceKind(IntEnum):
    """The function that reduces elements to one."""

    SUM = 0
    MAX = 1
    MIN = 2


class ResizeMode(IntEnum):
    """TOSA RESIZE: the nearest element, or the sum of four with weights that add up to scale_n's product."""

    NEAREST = 0
    BILINEAR = 1


# ---- what commands are made of ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """A byte of a region."""

    region: Region
    offset: int


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of a region that lie side by side; a block of 0 bytes does not exist and is false."""

    region: Region
    offset: int
    nbytes: int

    def __bool__(self) -> bool:
        return self.nbytes != 0


NOWHERE = Block(Region.SRAM, 0, 0)
"""The place of a block that a command does not have."""


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A tensor of four dims (n, h, w, c), and the bytes between neighbours in each."""

    region: Region
    offset: int
    dtype: Dtype
    layout: Layout
    shape: Dims
    strides: Dims

    @property
    def size(self) -> int:
        """The number of elements."""
        n, h, w, c = self.shape
        return n * h * w * c

    @property
    def nbytes(self) -> int:
        """The bytes of its elements; less than it spans if there are gaps, more if it is broadcast."""
        return self.size * self.dtype.nbytes

    @property
    def span(self) -> int:
        """The bytes from the begin of its first element to the end of its last one; bricks count whole."""
        if not self.size:
            return 0
        n, h, w, c = self.shape
        channels, last = (c, 1) if self.layout is Layout.NHWC else (-(-c // BRICK), BRICK)
        steps = zip((n, h, w, channels), self.strides, strict=True)
        return sum((dim - 1) * stride for dim, stride in steps) + last * self.dtype.nbytes


def dense(
    region: Region, offset: int, shape: Dims, dtype: Dtype = Dtype.INT8, layout: Layout = Layout.NHWC
) -> FeatureMap:
    """A feature map without gaps, except in a last brick that is not full."""
    _, h, w, c = shape
    item = dtype.nbytes
    if layout is Layout.NHWC:
        return FeatureMap(region, offset, dtype, layout, shape, (h * w * c * item, w * c * item, c * item, item))
    bricks, row = -(-c // BRICK), w * BRICK * item  # a row of bricks, then the next brick's row
    return FeatureMap(region, offset, dtype, layout, shape, (h * bricks * row, bricks * row, BRICK * item, row))


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of the elementwise engine: `rescale((x - zero_point) << left_shift, multiplier, shift)`."""

    feature_map: FeatureMap
    zero_point: int = 0
    left_shift: int = 0
    multiplier: int = IDENTITY_MULTIPLIER
    shift: int = IDENTITY_SHIFT


UNUSED = Operand(dense(Region.SRAM, 0, (0, 0, 0, 0)))
"""The second operand of an elementwise command that reads only one."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The walk of a window over h and w: each pair is (vertical, horizontal).

    `upscale` - 1 zeros lie between elements of the input (transposed convolution); `pads` are top, left, bottom, right
    around the upscaled input. An output has `(upscaled + pads - dilation * (kernel - 1) - 1) // stride + 1` elements.
    """

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: Dims = (0, 0, 0, 0)
    upscale: tuple[int, int] = (1, 1)

    def output(self, height: int, width: int) -> tuple[int, int]:
        """The sizes h and w of the output for an input of `height` and `width`."""
        top, left, bottom, right = self.pads
        sizes = []
        for axis, (size, pads) in enumerate(((height, top + bottom), (width, left + right))):
            reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            sizes.append(((size - 1) * self.upscale[axis] + 1 + pads - reach) // self.stride[axis] + 1)
        return sizes[0], sizes[1]


@dataclass(frozen=True, slots=True)
class Requantize:
    """The output stage: `clamp(rescale(sum + bias, multiplier, shift) + zero_point, low, high)`, then the table.

    `scales` has (bias, multiplier, shift) as three int32 for each output channel, in place of `multiplier` and `shift`
    and no bias. `table` is of 256 bytes, that of the value v at v + 128: an activation that is no clamp.
    """

    zero_point: int = 0
    low: int = Dtype.INT8.low
    high: int = Dtype.INT8.high
    multiplier: int = IDENTITY_MULTIPLIER
    shift: int = IDENTITY_SHIFT
    scales: Block = NOWHERE
    table: Block = NOWHERE


# ---- commands --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """The end: the last command, and no other."""

    opcode: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class DmaStart:
    """Begin to copy `shape` = (planes, rows, bytes of a row); strides, in bytes, are those of planes and of rows."""

    opcode: ClassVar[int] = 1
    channel: int
    source: Address
    target: Address
    shape: tuple[int, int, int]
    source_strides: tuple[int, int]
    target_strides: tuple[int, int]
    operator: int = 0


@dataclass(frozen=True, slots=True)
class DmaWait:
    """Go on when all transfers that were started on the channel are done."""

    opcode: ClassVar[int] = 2
    channel: int


@dataclass(frozen=True, slots=True)
class Conv:
    """Convolution: weights (ofm channels, kernel h, kernel w, ifm channels), int8, compressed. Linear layers, too."""

    opcode: ClassVar[int] = 3
    ifm: FeatureMap
    zero_point: int
    ofm: FeatureMap
    geometry: Geometry
    weights: Block
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Depthwise:
    """Convolution of each channel with its own kernel: weights (kernel h, kernel w, channels), int8, compressed."""

    opcode: ClassVar[int] = 4
    ifm: FeatureMap
    zero_point: int
    ofm: FeatureMap
    geometry: Geometry
    weights: Block
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """The largest or the mean (TOSA's reciprocal, before the output stage) of each window; `geometry.upscale` is 1."""

    opcode: ClassVar[int] = 5
    kind: PoolKind
    ifm: FeatureMap
    zero_point: int
    ofm: FeatureMap
    geometry: Geometry
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class MatMul:
    """Matrix products for each n and h: ifm (w, c) times ifm2 (w' = c, c'), giving ofm (w, c')."""

    opcode: ClassVar[int] = 6
    ifm: FeatureMap
    zero_point: int
    ifm2: FeatureMap
    zero_point2: int
    ofm: FeatureMap
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """`kind` of a and b, which have the ofm's shape (stride 0 where they are broadcast)."""

    opcode: ClassVar[int] = 7
    kind: ElementwiseKind
    a: Operand
    b: Operand
    ofm: FeatureMap
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Look each element up. int8: 256 bytes, that of v at v + 128. int16: 513 int16, interpolated as by TOSA TABLE.

    The results of int16 have 7 bits more than the entries; the output stage removes them.
    """

    opcode: ClassVar[int] = 8
    ifm: FeatureMap
    table: Block
    ofm: FeatureMap
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Resize:
    """TOSA RESIZE: an output at y reads the input at `(y * scale_d + offset) / scale_n`. Pairs are of h and of w."""

    opcode: ClassVar[int] = 9
    mode: ResizeMode
    ifm: FeatureMap
    zero_point: int
    scale_n: tuple[int, int]
    scale_d: tuple[int, int]
    offset: tuple[int, int]
    ofm: FeatureMap
    requantize: Requantize
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Reduce:
    """`kind` over the dims whose bit is set in `axes` (1: n, 2: h, 4: w, 8: c); they have size 1 in the ofm."""

    opcode: ClassVar[int] = 10
    kind: ReduceKind
    axes: int
    ifm: FeatureMap
    zero_point: int
    ofm: FeatureMap
    requantize: Requantize
    operator: int = 0


Computing: TypeAlias = Conv | Depthwise | Pool | MatMul | Elementwise | Table | Resize | Reduce
Command: TypeAlias = Stop | DmaStart | DmaWait | Computing
