"""The machine's programs as frozen records: regions of outer memory, loops, commands. `binary.py` has their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

from delegraph.interfaces import Size
from delegraph.lazy_dataclass import dataclass
from delegraph_dsp.isa import Loop

__all__ = [
    "BACKEND_ID",
    "BINARY_FUNCTIONS",
    "BLOB_VERSION",
    "DTYPES",
    "FUNCTIONS",
    "ITEM_NBYTES",
    "KERNELS",
    "REDUCTIONS",
    "Command",
    "Launch",
    "Operand",
    "Operator",
    "Program",
    "Region",
    "Result",
    "Transfer",
    "Wait",
    "nbytes_of",
    "span",
]

BACKEND_ID: Final = "DspBackend"
BLOB_VERSION: Final = 2

DTYPES: Final = ("int8", "int16", "int32", "int64", "float16", "float32", "bool")
"""Dtypes, by their numbers in a binary. Products are of the first two and of float16; the others are for tables,
indices, and inputs and outputs."""

ITEM_NBYTES: Final[Mapping[str, int]] = dict(zip(DTYPES, (1, 2, 4, 8, 2, 4, 1), strict=True))

KERNELS: Final = (
    *("copy", "convert", "fill", "unary", "binary", "clamp", "where", "table", "add_int", "mul_int", "rescale"),
    *("quantize", "dequantize", "matmul", "matmul_int", "softmax", "softmax_int", "norm", "norm_int", "reduce"),
    *("reduce_int", "resize_nearest", "resize_linear", "resize_linear_int", "gather"),
)
"""Kernels, by their numbers in a binary; `runtime/kernels` has their operands and results."""

FUNCTIONS: Final = (
    *("exp", "log", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "erf", "sqrt", "rsqrt", "reciprocal", "softplus"),
    *("hardsigmoid", "hardswish", "sin", "cos", "elu", "mish", "log1p", "expm1", "abs", "neg", "relu", "floor", "ceil"),
)
"""Functions of one float16, by their numbers in a binary; `runtime/functions.py` computes them."""

BINARY_FUNCTIONS: Final = ("add", "sub", "mul", "div", "maximum", "minimum", "gt", "lt", "ge", "le", "eq", "ne")
"""Functions of two float16, by their numbers in a binary; the results of the last six are bool."""

REDUCTIONS: Final = ("sum", "mean", "amax", "amin")
"""Reductions of a row, by their numbers in a binary."""


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of outer memory, with a name for messages: constants, scratch, or an argument of `dtype` and `shape`."""

    kind: str
    nbytes: Size
    dtype: str = "int8"
    shape: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in the TCM: the byte of its first element, and the strides of its elements, in elements."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return behind(self.offset, self.dtype, self.shape, self.strides)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last, both included; 0 if there are none."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def behind(begin: int, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> int:
    """The first byte behind a tensor whose first element is at the byte `begin`."""
    return begin + span(shape, strides) * ITEM_NBYTES[dtype]


@dataclass(frozen=True, slots=True)
class Transfer:
    """DMA: `rows` of `row_nbytes`, every `stride` bytes from `begin` in the region on, to or from the TCM, where they
    lie one after the other from `tcm`. It runs beside the following commands, until its channel is waited for. `task`
    is the number of its operator."""

    load: bool
    region: int
    begin: int
    tcm: int
    row_nbytes: int
    rows: int
    stride: int
    channel: int
    task: int

    @property
    def nbytes(self) -> int:
        """The bytes that it moves."""
        return self.rows * self.row_nbytes

    @property
    def end(self) -> int:
        """The first byte of the region behind it."""
        return self.begin + (self.rows - 1) * self.stride + self.row_nbytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until all transfers of a channel are done."""

    channel: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel on operands; it writes the last one. `loops` are (number of a loop, its iterations), which give its
    cost. `operator` is the number of its operator."""

    kernel: str
    operands: tuple[Operand, ...]
    integers: tuple[int, ...]
    reals: tuple[float, ...]
    loops: tuple[tuple[int, int], ...]
    operator: int


Command: TypeAlias = Transfer | Wait | Launch


@dataclass(frozen=True, slots=True)
class Result:
    """Where an operator's result lies once its last command has run: in the TCM, or in the region of this number; the
    byte of its first element, and the strides of its elements, in elements."""

    region: Size | None
    begin: Size
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return behind(self.begin, self.dtype, self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the model: a name, and its name in the model's dialect. `result` is None of one whose result is
    not what the model's call gives."""

    name: str
    target: str
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled partition. `regions` are the constants, the scratch memory, the inputs, then the outputs;
    `constants_key` is that of the constants if they lie in the named data, for other partitions as well."""

    device: str
    tcm_nbytes: int
    regions: tuple[Region, ...]
    constants: bytes | memoryview
    loops: tuple[Loop, ...]
    commands: tuple[Command, ...]
    operators: tuple[Operator, ...]
    constants_key: str = ""

    @property
    def inputs(self) -> list[Region]:
        """The inputs of a call, in order."""
        return [region for region in self.regions if region.kind == "input"]

    @property
    def outputs(self) -> list[Region]:
        """The outputs of a call, in order."""
        return [region for region in self.regions if region.kind == "output"]


def nbytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor."""
    return prod(shape) * ITEM_NBYTES[dtype]
