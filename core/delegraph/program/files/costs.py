"""A program -> the bytes of its file that are there for alternatives of delegates alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from delegraph.program._generated import program_tables as tables
from delegraph.program.alternatives import is_alternative
from delegraph.program.buffers import byte_view
from delegraph.program.checks.verify_values import is_external
from delegraph.program.files.header import pack_head
from delegraph.program.flatbuffer.builder import Tables, build, rows
from delegraph.program.flatbuffer.plan_codec import INLINE, DataReference, encode_plan
from delegraph.program.schema import ExecutionPlan, Program, Tensor

__all__ = ["costs_of"]


def costs_of(program: Program) -> Mapping[str, int]:
    """The bytes of each alternative, by its plan's name: its tables, and the constants, initial states and blobs that
    no method and no earlier alternative has. What backends share by key is not counted, nor is padding."""
    known: dict[tuple[str, int], None] = {}
    costs = {}
    for plan in sorted(program.execution_plan, key=is_alternative):  # the methods first
        own = _data_of(plan, program)
        if is_alternative(plan):
            costs[plan.name] = _tables_nbytes(plan) + sum(n for key, n in own.items() if key not in known)
        known |= dict.fromkeys(own)
    return MappingProxyType(costs)


def _data_of(plan: ExecutionPlan, program: Program) -> dict[tuple[str, int], int]:
    """The bytes of the data that a plan refers to, by what they are and their index."""
    sizes = {("blob", d.processed): byte_view(program.delegate_data[d.processed]).nbytes for d in plan.delegates}
    for value in plan.values:
        if isinstance(value, Tensor) and value.data_buffer_idx and not is_external(value):
            kind, data = (
                ("constant", program.constants)
                if value.allocation_info is None
                else ("mutable data", program.mutable_data)
            )
            sizes[kind, value.data_buffer_idx] = byte_view(data[value.data_buffer_idx]).nbytes
    return sizes


def _tables_nbytes(plan: ExecutionPlan) -> int:
    """The bytes of the flatbuffer's tables for `plan`, about: other plans may have texts in common with it."""
    references: list[DataReference] = [(INLINE, 0)] * (1 + max((d.processed for d in plan.delegates), default=0))
    no_buffers, no_blobs = rows(tables.BUFFER, ()), rows(tables.BACKEND_DELEGATE_INLINE_DATA, ())

    def with_plans(*plans: ExecutionPlan) -> int:
        encoded = Tables(lambda plan: encode_plan(plan, references), plans)
        root = tables.PROGRAM, (0, encoded, no_buffers, no_blobs, None, None, None, None)
        return len(build(pack_head(None, 16), root))

    return with_plans(plan) - with_plans()
