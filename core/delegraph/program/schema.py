"""The records of a program: frozen, they mirror ExecuTorch's `schema/program.fbs`, free of bytes and offsets.

One difference in shape: data are *content*, not segments. A `Program` holds its constants, mutable data,
delegate blobs and named data as buffers; `serialize.py` lays them out in segments, and `deserialize.py`
hands them back as views into the file. Field names, union codes and index rules are ExecuTorch's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TypeAlias

from delegraph.lazy_dataclass import dataclass, field

__all__ = [
    "AllocationDetails",
    "BackendDelegate",
    "Bool",
    "BoolList",
    "Buffer",
    "Chain",
    "CompileSpec",
    "ContainerMetadata",
    "DelegateCall",
    "DeviceType",
    "Double",
    "DoubleList",
    "ExecutionPlan",
    "ExtraTensorInfo",
    "Frame",
    "FreeCall",
    "Instruction",
    "Int",
    "IntList",
    "JumpFalseCall",
    "KernelCall",
    "Layout",
    "MoveCall",
    "NamedData",
    "NonConstBufferDevice",
    "Null",
    "Operator",
    "OptionalTensorList",
    "Program",
    "ScalarType",
    "String",
    "Tensor",
    "TensorDataLocation",
    "TensorList",
    "TensorShapeDynamism",
    "Value",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything that holds bytes; the reader returns a read-only memoryview into the source."""


class ScalarType(IntEnum):
    """Element types, with PyTorch's codes (`c10/core/ScalarType.h`)."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX32 = 8
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4x2 = 16
    QUINT2x4 = 17
    BITS1X8 = 18
    BITS2X4 = 19
    BITS4X2 = 20
    BITS8 = 21
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29


class TensorShapeDynamism(IntEnum):
    """Whether `Tensor.sizes` is the shape, its upper bound, or unknown until run time."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


class Layout(IntEnum):
    """The layout of a tensor's data. The other codes of the schema are not used."""

    STRIDED = 0


class TensorDataLocation(IntEnum):
    """Where a constant's bytes are: in this file, or in a `.ptd` under its fully qualified name."""

    SEGMENT = 0
    EXTERNAL = 1


class DeviceType(IntEnum):
    """Devices that a planned buffer can live on."""

    CPU = 0
    CUDA = 1


# ---- values ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllocationDetails:
    """A place in planned memory. `memory_id` is 1-based; `memory_offset` in bytes, 64 bit."""

    memory_id: int
    memory_offset: int


@dataclass(frozen=True, slots=True)
class ExtraTensorInfo:
    """The fields that only some tensors have: an external location, or the name of a buffer."""

    mutable_data_segments_idx: int = 0
    fully_qualified_name: str | None = None
    location: TensorDataLocation = TensorDataLocation.SEGMENT
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor value.

    Where its bytes are, by (`data_buffer_idx`, `allocation_info`): (>0, None) constant; (0, set) planned;
    (0, None) a pointer given at run time; (>0, set) planned, with initial data from the mutable data.
    `sizes` are upper bounds when `shape_dynamism` is DYNAMIC_BOUND. `dim_order` lists dims from outer to inner.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    data_buffer_idx: int = 0
    allocation_info: AllocationDetails | None = None
    shape_dynamism: TensorShapeDynamism = TensorShapeDynamism.STATIC
    requires_grad: bool = False
    layout: Layout = Layout.STRIDED
    storage_offset: int = 0
    extra_tensor_info: ExtraTensorInfo | None = None


@dataclass(frozen=True, slots=True)
class Null:
    """None."""


@dataclass(frozen=True, slots=True)
class Int:
    """A 64-bit integer, or a symbolic one that instructions write."""

    value: int


@dataclass(frozen=True, slots=True)
class Bool:
    """True or false."""

    value: bool


@dataclass(frozen=True, slots=True)
class Double:
    """A 64-bit float."""

    value: float


@dataclass(frozen=True, slots=True)
class String:
    """A text."""

    value: str


@dataclass(frozen=True, slots=True)
class IntList:
    """Boxed: `items` are indices of Int values, so that a SymInt can stand in a list."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubleList:
    """`items` are literals."""

    items: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoolList:
    """`items` are literals."""

    items: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class TensorList:
    """`items` are indices of Tensor values, each lower than the list's own index."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptionalTensorList:
    """`items` are indices of Tensor values; -1 is None."""

    items: tuple[int, ...]


Value: TypeAlias = (
    Null | Int | Bool | Double | Tensor | String | IntList | DoubleList | BoolList | TensorList | OptionalTensorList
)
"""An EValue. The union code on the wire is the 1-based position in this list."""


# ---- instructions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call operator `op_index` with every schema argument in schema order, then the return slot(s)."""

    op_index: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Call delegate `delegate_index` with its inputs, then its outputs."""

    delegate_index: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Copy the content of the value at `move_from` to the value at `move_to`."""

    move_from: int
    move_to: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Go on at `destination_instruction` (an absolute index in the chain) if the condition is false."""

    cond_value_index: int
    destination_instruction: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Release the memory of an unbounded tensor."""

    value_index: int


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall
"""The union code on the wire is the 1-based position in this list."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack trace."""

    filename: str
    lineno: int
    name: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """A straight list of instructions. `stacktrace`, when kept, has one list of frames per instruction."""

    instructions: tuple[Instruction, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    stacktrace: tuple[tuple[Frame, ...], ...] | None = None


# ---- the program -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operator:
    """`name` is "namespace::op"; `overload` is "" for the default one."""

    name: str
    overload: str = ""

    def __str__(self) -> str:
        """The registry's key: `aten::add.out`, `aten::copy_`."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@dataclass(frozen=True, slots=True)
class CompileSpec:
    """A key and its bytes, from the user to `preprocess` and to the runtime half; the backend gives both meaning."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class BackendDelegate:
    """One delegate call's callee. `processed` is an index into `Program.delegate_data`."""

    id: str
    processed: int
    compile_specs: tuple[CompileSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerMetadata:
    """The pytree specs of a method's arguments ((args), {kwargs}) and result, as torch's JSON."""

    encoded_inp_str: str = ""
    encoded_out_str: str = ""


@dataclass(frozen=True, slots=True)
class NonConstBufferDevice:
    """The device of one planned buffer, where it is not the CPU."""

    buffer_idx: int
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """One method. `non_const_buffer_sizes[0]` is reserved and 0; the rest are bytes per `memory_id`."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    chains: tuple[Chain, ...]
    operators: tuple[Operator, ...] = ()
    delegates: tuple[BackendDelegate, ...] = ()
    non_const_buffer_sizes: tuple[int, ...] = (0, 0)
    container_meta_type: ContainerMetadata = field(default_factory=ContainerMetadata)
    non_const_buffer_device: tuple[NonConstBufferDevice, ...] | None = None

    def __repr__(self) -> str:
        """In a line whatever it does; `to_text` tells all of a program."""
        calls = sum(len(chain.instructions) for chain in self.chains)
        return (
            f"ExecutionPlan({self.name!r}; {len(self.inputs)} inputs, {len(self.outputs)} outputs,"
            f" {len(self.values)} values, {calls} instructions, {len(self.delegates)} delegates)"
        )

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        from delegraph.program.text.html import method_html

        return method_html(self)


@dataclass(frozen=True, slots=True)
class NamedData:
    """A blob that several delegates (or methods) share under one key. `alignment` in bytes."""

    data: Buffer
    alignment: int = 1

    def __repr__(self) -> str:
        return f"NamedData({_total((self.data,))} bytes, alignment={self.alignment})"


@dataclass(frozen=True, slots=True)
class Program:
    """A whole `.pte`.

    `constants[0]` and `mutable_data[0]` are reserved and empty, so that index 0 can mean "none"
    (an empty `mutable_data` means that there is none). Methods stand sorted by name.
    """

    execution_plan: tuple[ExecutionPlan, ...]
    constants: tuple[Buffer, ...] = (b"",)
    mutable_data: tuple[Buffer, ...] = ()
    delegate_data: tuple[Buffer, ...] = ()
    named_data: Mapping[str, NamedData] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0

    def __repr__(self) -> str:
        """In a line whatever the weights are; `to_text` tells all."""
        methods = ", ".join(repr(plan.name) for plan in self.execution_plan)  # which strangers may have named
        return (
            f"Program({methods}; {_total(self.constants)} bytes of constants,"
            f" {_total(self.mutable_data)} of mutable data, {_total(self.delegate_data)} of delegates,"
            f" {_total(entry.data for entry in self.named_data.values())} of named data)"
        )

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        from delegraph.program.text.html import program_html

        return program_html(self)


def _total(buffers: Iterable[Buffer]) -> str:
    return f"{sum(memoryview(buffer).nbytes for buffer in buffers):,}"
