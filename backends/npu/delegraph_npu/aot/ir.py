"""The NPU's own graph: integer tensors in NHWC with scale and zero point, and the operators that the command set has.

A tensor has four dims here, n, h, w and c, whatever its dims in the program; `order` says which dims they are there.
Operators are in the order in which they run. A pass turns a `Graph` into another; `str(graph)` is the text of a dump.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Binary",
    "Box",
    "Concat",
    "Convolution",
    "Copy",
    "Elementwise",
    "Graph",
    "Laid",
    "Matmul",
    "Operator",
    "Order",
    "Pad",
    "Pool",
    "Reduce",
    "Reshape",
    "Resize",
    "Slice",
    "Table",
    "Tensor",
    "Transpose",
    "Unary",
    "Window",
]

Shape: TypeAlias = tuple[int, int, int, int]
"""n, h, w, c."""

Box: TypeAlias = tuple[tuple[int, int], ...]
"""Part of a tensor: (begin, end) of n, h, w and c."""

Order: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""The program's dim that lies in each of n, h, w and c; None for a dim of one element that the program does not
have."""

HEADROOM: Final = {np.dtype(np.int8): 20, np.dtype(np.int16): 12}
"""Bits of headroom of sums, as in TFLite and in ExecuTorch's Arm backend."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Integers in NHWC; real = (integer - zero_point) * scale. A constant has `content`."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    scale: float = 1.0
    zero_point: int = 0
    content: NDArray[Any] | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, its elements side by side."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def whole(self) -> Box:
        """The box of all elements."""
        return tuple((0, size) for size in self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest integer of its dtype."""
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)

    def same_grid(self, other: Tensor) -> bool:
        """Whether equal integers of both stand for equal numbers."""
        return (self.scale, self.zero_point, self.dtype) == (other.scale, other.zero_point, other.dtype)

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape))
        return f"{self.name}: {self.dtype.name}[{sizes}] *{self.scale:.6g} @{self.zero_point}"


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A tensor, its shape in the program, and the program's dim that lies in each of n, h, w and c."""

    tensor: Tensor
    shape: tuple[int, ...]
    order: Order


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """The fields of all operators: operands, a result, its limits as integers, and the nodes that it came from.

    `table`, if any, is looked up for every element of the result after it is limited, before it is written: a fused
    activation. Its entries are on the grid of `output`, its indices on that of `before_table`.
    """

    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    low: int
    high: int
    table: NDArray[Any] | None = field(default=None, kw_only=True, repr=False)
    before_table: Tensor | None = field(default=None, kw_only=True, repr=False)
    debug_handles: tuple[int, ...] = field(default=(), kw_only=True, repr=False)

    @property
    def rounded_to(self) -> Tensor:
        """The tensor whose grid the operator itself rounds to: its output, or `before_table`."""
        return self.before_table or self.output

    @property
    def rescaling(self) -> float | NDArray[np.float64]:
        """The factor from sums to steps of `rounded_to`; of a convolution by channel."""
        return 1.0

    def reads(self, box: Box, operand: int) -> Box:
        """The part of an operand on which `box` of the output depends."""
        return self.inputs[operand].whole

    def describe(self) -> str:
        """The attributes, for a dump."""
        return ""

    def __str__(self) -> str:
        parts = [type(self).__name__.lower(), self.describe(), f"[{self.low}, {self.high}]"]
        parts += ["table"] if self.table is not None else []
        operands = ", ".join(tensor.name for tensor in self.inputs)
        return f"{self.output} = {' '.join(filter(None, parts))} ({operands})"


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The walk of a window over h and w: pairs are (vertical, horizontal), `padding` is top, left, bottom, right.

    `upscale` - 1 virtual zeros lie between elements of the input: a transposed convolution.
    """

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    upscale: tuple[int, int] = (1, 1)

    def reads(self, span: tuple[int, int], size: int, axis: int) -> tuple[int, int]:
        """The rows of an input of `size` (axis 0; columns: 1) that the rows `span` of the output read."""
        first, last = self.reach(span, axis)
        begin = max(-(-first // self.upscale[axis]), 0)
        return begin, max(min(last // self.upscale[axis] + 1, size), begin + 1)

    def pads(self, box: Box, read: Box) -> tuple[int, int, int, int]:
        """The padding (top, left, bottom, right) around `read`, the existing part of the input of `box` of the
        output."""
        before, behind = [], []
        for axis in (0, 1):
            first, last = self.reach(box[1 + axis], axis)
            begin, end = read[1 + axis]
            before.append(begin * self.upscale[axis] - first)
            behind.append(last - (end - 1) * self.upscale[axis])
        return before[0], before[1], behind[0], behind[1]

    def reach(self, span: tuple[int, int], axis: int) -> tuple[int, int]:
        """The first and the last place, in the upscaled input, that the rows `span` of the output read."""
        first = span[0] * self.stride[axis] - self.padding[axis]
        last = (span[1] - 1) * self.stride[axis] - self.padding[axis] + (self.kernel[axis] - 1) * self.dilation[axis]
        return first, last

    def __str__(self) -> str:
        parts = [f"{self.kernel[0]}x{self.kernel[1]}"]
        standard = Window()
        for name in ("stride", "padding", "dilation", "upscale"):
            value = getattr(self, name)
            parts += [f"{name} {value}"] if value != getattr(standard, name) else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Convolution(Operator):
    """Sums of products over a window; with `depthwise` each channel has its own kernel.

    `weight` is int8, [out, kh, kw, in], or [kh, kw, out] if depthwise, `bias` int64 in steps of input and weight
    scale, `weight_scale` one scale for each channel of the output.
    """

    window: Window
    weight: NDArray[np.int8] = field(repr=False)
    bias: NDArray[np.int64] = field(repr=False)
    weight_scale: NDArray[np.float64] = field(repr=False)
    depthwise: bool = False

    @property
    def rescaling(self) -> NDArray[np.float64]:
        return self.inputs[0].scale * self.weight_scale / self.rounded_to.scale

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of the whole output, without those of zeros between elements of the input."""
        n, h, w, _ = self.output.shape
        spread = self.window.upscale[0] * self.window.upscale[1]
        return n * h * w * int(self.weight.size) // spread

    def reads(self, box: Box, operand: int) -> Box:
        _, height, width, channels = self.inputs[0].shape
        h, w = (self.window.reads(box[1 + axis], (height, width)[axis], axis) for axis in (0, 1))
        return box[0], h, w, box[3] if self.depthwise else (0, channels)

    def describe(self) -> str:
        return f"depthwise {self.window}" if self.depthwise else str(self.window)


@dataclass(frozen=True, slots=True, eq=False)
class Matmul(Operator):
    """Rows times columns of two tensors: [n, h, w, k] x [n, h, k, c] -> [n, h, w, c]."""

    @property
    def rescaling(self) -> float:
        return self.inputs[0].scale * self.inputs[1].scale / self.rounded_to.scale

    def reads(self, box: Box, operand: int) -> Box:
        n, h, w, c = box
        k = (0, self.inputs[0].shape[3])
        return (n, h, w, k) if operand == 0 else (n, h, k, c)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of the whole output."""
        return int(np.prod(self.output.shape)) * self.inputs[0].shape[3]


@dataclass(frozen=True, slots=True, eq=False)
class Pool(Operator):
    """The "max" of a window, or its "average" without the padding, or with it: "average_padded"."""

    kind: str
    window: Window

    def reads(self, box: Box, operand: int) -> Box:
        _, height, width, _ = self.inputs[0].shape
        h, w = (self.window.reads(box[1 + axis], (height, width)[axis], axis) for axis in (0, 1))
        return box[0], h, w, box[3]

    def describe(self) -> str:
        return f"{self.kind} {self.window}"


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Operator):
    """ "add", "sub", "mul" or "shift_right" of two tensors, whose dims of one element are repeated.

    Between tensors of int32 nothing is rounded but a product, which is shifted right by `shift` bits, half up.
    """

    kind: str
    shift: int = 0

    @property
    def headroom(self) -> int:
        """The bits by which operands of a sum are shifted left before they are rounded to a common grid."""
        return HEADROOM[self.inputs[0].dtype]

    @property
    def common(self) -> float:
        """The step of that common grid, before the shift."""
        return 2 * max(self.inputs[0].scale, self.inputs[1].scale)

    @property
    def rescaling(self) -> float:
        if self.output.dtype == np.int32:
            return 1.0
        if self.kind == "mul":
            return self.inputs[0].scale * self.inputs[1].scale / self.rounded_to.scale
        return self.common / (self.rounded_to.scale * 2.0**self.headroom)

    def reads(self, box: Box, operand: int) -> Box:
        return _broadcast(box, self.inputs[operand].shape)

    def describe(self) -> str:
        return self.kind


def _broadcast(box: Box, shape: Shape) -> Box:
    return tuple((0, 1) if size == 1 else span for span, size in zip(box, shape, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Elementwise(Operator):
    """Operators that read, for an element of the result, the same element of the operand."""

    def reads(self, box: Box, operand: int) -> Box:
        return box


@dataclass(frozen=True, slots=True, eq=False)
class Copy(Elementwise):
    """The operand on the grid of the result."""

    @property
    def rescaling(self) -> float:
        return self.inputs[0].scale / self.rounded_to.scale


@dataclass(frozen=True, slots=True, eq=False)
class Table(Elementwise):
    """The operand's integers looked up: in 256 entries (int8), or in 513 with interpolation between them (int16), whose
    results have 7 bits more than the entries."""

    entries: NDArray[Any] = field(repr=False)

    @property
    def rescaling(self) -> float:
        return 1.0 if self.inputs[0].dtype == np.int8 else 2.0**-7

    def describe(self) -> str:
        return f"{len(self.entries)} entries"


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Elementwise):
    """ "count_leading_zeros" of int32."""

    kind: str

    def describe(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Operator):
    """The "sum" or the "max" along the dims `axes`, which have one element in the result.

    The sum of int8 or int16 is that of the differences to the zero point, multiplied by `factor` when it is rounded:
    an average. A sum in int32 is not rounded.
    """

    kind: str
    axes: tuple[int, ...]
    factor: float = 1.0

    @property
    def rescaling(self) -> float:
        whole = self.kind == "max" or self.output.dtype == np.int32
        return 1.0 if whole else self.inputs[0].scale * self.factor / self.rounded_to.scale

    def reads(self, box: Box, operand: int) -> Box:
        whole = self.inputs[0].whole
        return tuple(whole[i] if i in self.axes else box[i] for i in range(4))

    def describe(self) -> str:
        return f"{self.kind} over {''.join('nhwc'[axis] for axis in self.axes)}"


@dataclass(frozen=True, slots=True, eq=False)
class Resize(Operator):
    """Other sizes, "nearest" or "bilinear", as in TOSA 1.0: row y reads row (y * denominator + offset) / numerator."""

    kind: str
    scale: tuple[int, int, int, int]
    """numerator and denominator of y, of x"""
    offset: tuple[int, int]

    @property
    def rescaling(self) -> float:
        weights = self.scale[0] * self.scale[2] if self.kind == "bilinear" else 1
        return self.inputs[0].scale / (weights * self.rounded_to.scale)

    def reads(self, box: Box, operand: int) -> Box:
        whole = self.inputs[0].shape
        spans = []
        for axis in (0, 1):
            numerator, denominator = self.scale[2 * axis : 2 * axis + 2]
            first, last = (
                (y * denominator + self.offset[axis]) // numerator for y in (box[1 + axis][0], box[1 + axis][1] - 1)
            )
            size = whole[1 + axis]
            begin = min(max(first, 0), size - 1)
            spans.append((begin, max(min(last + 2, size), begin + 1)))
        return box[0], spans[0], spans[1], box[3]

    def describe(self) -> str:
        return f"{self.kind} scale {self.scale} offset {self.offset}"


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Operator):
    """The operands one behind the other along `axis`."""

    axis: int

    def describe(self) -> str:
        return f"along {'nhwc'[self.axis]}"


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Operator):
    """A part of the operand: from `begin`, every `step`th."""

    begin: Shape
    step: Shape

    def reads(self, box: Box, operand: int) -> Box:
        return tuple(
            (first + span[0] * step, first + (span[1] - 1) * step + 1)
            for span, first, step in zip(box, self.begin, self.step, strict=True)
        )

    def describe(self) -> str:
        return f"from {self.begin} by {self.step}"


@dataclass(frozen=True, slots=True, eq=False)
class Pad(Operator):
    """The operand, with `before` elements of `value` before it."""

    before: Shape
    value: int

    def reads(self, box: Box, operand: int) -> Box:
        spans = []
        for span, first, size in zip(box, self.before, self.inputs[0].shape, strict=True):
            begin = min(max(span[0] - first, 0), size - 1)
            spans.append((begin, max(min(span[1] - first, size), begin + 1)))
        return tuple(spans)

    def describe(self) -> str:
        return f"{self.value} before {self.before}"


@dataclass(frozen=True, slots=True, eq=False)
class Reshape(Operator):
    """The same elements in the same order, in another shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Transpose(Operator):
    """The dims of the operand in another order: dim i of the result is dim `order[i]` of it."""

    order: tuple[int, int, int, int]

    def reads(self, box: Box, operand: int) -> Box:
        spans = dict(zip(self.order, box, strict=True))
        return tuple(spans[i] for i in range(4))

    def describe(self) -> str:
        return f"{self.order}"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Operators in order, between inputs and outputs. `results` are those of the program's calls."""

    inputs: tuple[Laid, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Laid, ...]
    results: tuple[Laid, ...] = ()

    def readers(self) -> dict[Tensor, list[Operator]]:
        """Tensor -> the operators that read it."""
        readers: dict[Tensor, list[Operator]] = {}
        for operator in self.operators:
            for tensor in operator.inputs:
                readers.setdefault(tensor, []).append(operator)
        return readers

    def __str__(self) -> str:
        lines = [f"input  {laid.tensor} as {laid.order}" for laid in self.inputs]
        lines += [f"       {operator}" for operator in self.operators]
        return "\n".join([*lines, *(f"output {laid.tensor.name} as {laid.order}" for laid in self.outputs)]) + "\n"
