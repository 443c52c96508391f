"""What the machine runs, as frozen records: regions of outer memory, loops, commands. `binary.py` has their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from delegraph.interfaces import Size
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
    "Transfer",
    "Wait",
    "nbytes_of",
    "span",
]

BACKEND_ID: Final = "DspBackend"
BLOB_VERSION: Final = 2

DTYPES: Final = ("int8", "int16", "int32", "int64", "float16", "float32", "bool")
"""By their numbers in a binary. Products are of the first two and of float16; the others are for tables, indices and
what comes from outside."""

ITEM_NBYTES: Final[Mapping[str, int]] = dict(zip(DTYPES, (1, 2, 4, 8, 2, 4, 1), strict=True))

KERNELS: Final = (
    *("copy", "convert", "fill", "unary", "binary", "clamp", "where", "table", "add_int", "mul_int", "rescale"),
    *("quantize", "dequantize", "matmul", "matmul_int", "softmax", "softmax_int", "norm", "norm_int", "reduce"),
    *("reduce_int", "resize_nearest", "resize_linear", "resize_linear_int", "gather"),
)
"""By their numbers in a binary; `runtime/kernels` says what each takes and computes."""

FUNCTIONS: Final = (
    *("exp", "log", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "erf", "sqrt", "rsqrt", "reciprocal", "softplus"),
    *("hardsigmoid", "hardswish", "sin", "cos", "elu", "mish", "log1p", "expm1", "abs", "neg", "relu", "floor", "ceil"),
)
"""Of one float16, by their numbers in a binary; `runtime/functions.py` computes them."""

BINARY_FUNCTIONS: Final = ("add", "sub", "mul", "div", "maximum", "minimum", "gt", "lt", "ge", "le", "eq", "ne")
"""Of two float16, by their numbers in a binary; the last six give bool."""

REDUCTIONS: Final = ("sum", "mean", "amax", "amin")
"""Of a row, by their numbers in a binary."""


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of outer memory, with a name for messages: constants, scratch, or an argument of `dtype` and `shape`."""

    kind: str
    nbytes: Size
    dtype: str = "int8"
    shape: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in the TCM: where its first element lies, in bytes, and how far apart its elements are, in elements."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + span(self.shape, self.strides) * ITEM_NBYTES[self.dtype]


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie from the first to the last, both included; 0 if there are none."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


@dataclass(frozen=True, slots=True)
class Transfer:
    """DMA: `rows` of `row_nbytes`, every `stride` bytes from `begin` in the region on, to or from the TCM, where they
    lie one after the other from `tcm`. It runs beside what follows, until its channel is waited for. `task` is the
    number of the operator that it works for."""

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
        """What it moves."""
        return self.rows * self.row_nbytes

    @property
    def end(self) -> int:
        """The first byte of the region behind it."""
        return self.begin + (self.rows - 1) * self.stride + self.row_nbytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Until all transfers of a channel are through."""

    channel: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel on operands, the last of which it writes. `loops` are (number of a loop, its iterations): what it
    costs. `operator` is the number of the operator that this is a part of."""

    kernel: str
    operands: tuple[Operand, ...]
    integers: tuple[int, ...]
    reals: tuple[float, ...]
    loops: tuple[tuple[int, int], ...]
    operator: int


Command: TypeAlias = Transfer | Wait | Launch


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the model: a name, and what the delegate's debug handles are found under."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled partition. `regions` are the constants, the scratch memory, the inputs, then the outputs;
    `constants_key` is that of the constants where they lie in the named data, for other partitions as well."""

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
        """What a call takes, in order."""
        return [region for region in self.regions if region.kind == "input"]

    @property
    def outputs(self) -> list[Region]:
        """What a call gives, in order."""
        return [region for region in self.regions if region.kind == "output"]


def nbytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor."""
    return prod(shape) * ITEM_NBYTES[dtype]
