"""What a program is, in ExecuTorch's records (`exir/schema.py`): mutable, and one to one with `schema/program.fbs`.

`delegraph.program.schema` has the same content as frozen records, without segments and wrappers; the bytes of a `.pte`
lead from one to the other (`exir/_serialize`).
"""

# Without `from __future__ import annotations`: a field whose type is written as a string is a union with a tag in JSON.

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from delegraph.aot import CompileSpec
from delegraph_executorch.table_records import table_records


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
class Double:
    """A 64-bit float; infinities as JSON has to write them, "inf" and "-inf"."""

    double_val: float | str

    def __post_init__(self) -> None:
        if self.double_val in (float("inf"), float("-inf")):
            self.double_val = str(self.double_val)


class DataLocation(IntEnum):
    """Where a delegate's bytes are."""

    INLINE = 0
    SEGMENT = 1


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:
    globals().update(
        table_records(
            b"ET12",
            __name__,
            classes={kind.__name__: kind for kind in (AllocationDetails, CompileSpec, DataLocation, Double)},
            unions={"val": "KernelTypes", "instr_args": "InstructionArguments"},
            first={"Tensor": ("scalar_type", "storage_offset", "sizes", "dim_order", "requires_grad", "layout")},
            may_be_none=("allocation_info", "stacktrace"),
            may_be_left_out=(
                *("ExtraTensorInfo", "NonConstBufferDevice", "extra_tensor_info"),
                *("non_const_buffer_device", "mutable_data_segments", "named_data"),
            ),
        )
    )
