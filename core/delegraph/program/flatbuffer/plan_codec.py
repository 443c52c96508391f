"""Execution plans <-> the tables of `schema/program.fbs`; a delegate's `processed` is there a location and an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from delegraph.lazy_dataclass import replace
from delegraph.program import schema
from delegraph.program._generated import program_tables
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.flatbuffer.record_codec import RecordCodec
from delegraph.program.schema import AllocationDetails, ExecutionPlan

if TYPE_CHECKING:
    from delegraph.program.flatbuffer.builder import Table

__all__ = ["INLINE", "SEGMENT", "DataReference", "decode_plan", "encode_plan"]

INLINE: Final = 0
SEGMENT: Final = 1

DataReference: TypeAlias = tuple[int, int]
"""The location (0 inline, 1 segment) and index of a delegate's blob."""


def encode_plan(plan: ExecutionPlan, references: Sequence[DataReference]) -> Table:
    """The table of one method. `references[i]` says where the program's delegate blob `i` is."""
    delegates = [replace(delegate, processed=references[delegate.processed]) for delegate in plan.delegates]  # type: ignore[arg-type]
    return _CODEC.encode("ExecutionPlan", replace(plan, delegates=tuple(delegates)))


def decode_plan(reader: FlatBufferReader, position: int, index_of: Callable[[DataReference], int]) -> ExecutionPlan:
    """The method at `position`. `index_of` turns a reference to a blob into its index in `Program.delegate_data`.

    Structure is checked here and by the reader: what is not there, a union or enum code that means nothing. Meaning
    (index ranges, sizes, kinds) is `verify.py`'s.
    """
    plan: ExecutionPlan = _CODEC.decode("ExecutionPlan", reader, position)
    delegates = [replace(delegate, processed=index_of(delegate.processed)) for delegate in plan.delegates]  # type: ignore[arg-type]
    return replace(plan, delegates=tuple(delegates))


def _halves(allocation: AllocationDetails) -> tuple[int, int, int]:
    high, low = divmod(allocation.memory_offset, 2**32)
    return allocation.memory_id, low, high


def _joined(memory_id: int, low: int, high: int) -> AllocationDetails:
    return AllocationDetails(memory_id, high << 32 | low)


_CODEC: Final = RecordCodec(program_tables, vars(schema), {"AllocationDetails": (_halves, _joined)})
