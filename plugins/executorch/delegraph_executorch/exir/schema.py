"""What a program is, in ExecuTorch's records (`exir/schema.py`): mutable, and one to one with `schema/program.fbs`.

`delegraph.program.schema` has the same content as frozen records, without segments and wrappers; the bytes of a `.pte`
lead from one to the other (`exir/_serialize`).
"""

# Without `from __future__ import annotations`: a field whose type is written as a string is a union with a tag in JSON.

from dataclasses import dataclass
from enum import IntEnum
from typing import Union

from delegraph.aot import CompileSpec as CompileSpec
from delegraph.program.schema import DeviceType as DeviceType
from delegraph.program.schema import ScalarType as ScalarType
from delegraph.program.schema import TensorDataLocation as TensorDataLocation
from delegraph.program.schema import TensorShapeDynamism as TensorShapeDynamism


@dataclass
class AllocationDetails:
    """A place in planned memory, its offset in two halves of 32 bits."""

    memory_id: int
    memory_offset_low: int
    memory_offset_high: int

    @property
    def memory_offset(self) -> int:
        """The offset in bytes."""
        return self.memory_offset_low | self.memory_offset_high << 32


@dataclass
class ExtraTensorInfo:
    """What only some tensors carry."""

    mutable_data_segments_idx: int = 0
    fully_qualified_name: str | None = None
    location: TensorDataLocation = TensorDataLocation.SEGMENT
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0


@dataclass
class Tensor:
    """A tensor value."""

    scalar_type: ScalarType
    storage_offset: int
    sizes: list[int]
    dim_order: list[int]
    requires_grad: bool
    layout: int
    data_buffer_idx: int
    allocation_info: AllocationDetails | None
    shape_dynamism: TensorShapeDynamism
    extra_tensor_info: ExtraTensorInfo | None = None


@dataclass
class Null:
    """None."""


@dataclass
class Int:
    """A 64-bit integer."""

    int_val: int


@dataclass
class Bool:
    """True or false."""

    bool_val: bool


@dataclass
class Double:
    """A 64-bit float; infinities as JSON has to write them, "inf" and "-inf"."""

    double_val: float | str

    def __post_init__(self) -> None:
        if self.double_val in (float("inf"), float("-inf")):
            self.double_val = str(self.double_val)


@dataclass
class String:
    """A text."""

    string_val: str


@dataclass
class ContainerMetadata:
    """The structure of a method's arguments and results."""

    encoded_inp_str: str
    encoded_out_str: str


@dataclass
class IntList:
    """Indices of Int values."""

    items: list[int]


@dataclass
class DoubleList:
    """Numbers."""

    items: list[float]


@dataclass
class BoolList:
    """Truth values."""

    items: list[bool]


@dataclass
class TensorList:
    """Indices of Tensor values."""

    items: list[int]


@dataclass
class OptionalTensorList:
    """Indices of Tensor values; -1 is None."""

    items: list[int]


KernelTypes = Union[  # noqa: UP007  (users ask it for `__args__`, and by `typing.get_origin`)
    Int, Double, Bool, String, Tensor, IntList, BoolList, DoubleList, TensorList, Null, OptionalTensorList
]


@dataclass
class EValue:
    """A value of a method."""

    val: "KernelTypes"


@dataclass
class Buffer:
    """The bytes of a constant."""

    storage: bytes


@dataclass
class BackendDelegateInlineData:
    """The bytes of a delegate."""

    data: bytes


@dataclass
class KernelCall:
    """Call a kernel."""

    op_index: int
    args: list[int]


@dataclass
class DelegateCall:
    """Call a delegate."""

    delegate_index: int
    args: list[int]


@dataclass
class MoveCall:
    """Copy a value."""

    move_from: int
    move_to: int


@dataclass
class JumpFalseCall:
    """Jump if a condition is false."""

    cond_value_index: int
    destination_instruction: int


@dataclass
class FreeCall:
    """Release memory."""

    value_index: int


InstructionArguments = Union[KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall]  # noqa: UP007


@dataclass
class Instruction:
    """One step of a chain."""

    instr_args: "InstructionArguments"


@dataclass
class Frame:
    """One line of a stack trace."""

    filename: str
    lineno: int
    name: str
    context: str


@dataclass
class FrameList:
    """A stack trace."""

    items: list[Frame]


class DataLocation(IntEnum):
    """Where a delegate's bytes are."""

    INLINE = 0
    SEGMENT = 1


@dataclass
class BackendDelegateDataReference:
    """Which bytes are a delegate's."""

    location: DataLocation
    index: int


@dataclass
class BackendDelegate:
    """What a delegate call calls."""

    id: str
    processed: BackendDelegateDataReference
    compile_specs: list[CompileSpec]


@dataclass
class Chain:
    """Instructions in order."""

    inputs: list[int]
    outputs: list[int]
    instructions: list[Instruction]
    stacktrace: list[FrameList] | None


@dataclass
class Operator:
    """The name of a kernel."""

    name: str
    overload: str


@dataclass
class NonConstBufferDevice:
    """The device of one planned buffer."""

    buffer_idx: int = 0
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0


@dataclass
class ExecutionPlan:
    """A method."""

    name: str
    container_meta_type: ContainerMetadata
    values: list[EValue]
    inputs: list[int]
    outputs: list[int]
    chains: list[Chain]
    operators: list[Operator]
    delegates: list[BackendDelegate]
    non_const_buffer_sizes: list[int]
    non_const_buffer_device: list[NonConstBufferDevice] | None = None


@dataclass
class DataSegment:
    """Where a segment lies, from the segments' start."""

    offset: int
    size: int


@dataclass
class SubsegmentOffsets:
    """Where the data of one segment begin in it."""

    segment_index: int
    offsets: list[int]


@dataclass
class NamedData:
    """The segment under a key."""

    key: str
    segment_index: int


@dataclass
class Program:
    """A whole program; its data are in it, or in segments behind the flatbuffer."""

    version: int
    execution_plan: list[ExecutionPlan]
    constant_buffer: list[Buffer]
    backend_delegate_data: list[BackendDelegateInlineData]
    segments: list[DataSegment]
    constant_segment: SubsegmentOffsets
    mutable_data_segments: list[SubsegmentOffsets] | None = None
    named_data: list[NamedData] | None = None
