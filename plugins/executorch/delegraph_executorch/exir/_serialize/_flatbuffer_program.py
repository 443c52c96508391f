"""Programs, and other records of the files <-> flatbuffers (ExecuTorch `exir/_serialize/_flatbuffer_program.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from delegraph.errors import InvalidArgument
from delegraph.program import read_tables, write_tables
from delegraph.program.schema import Buffer
from delegraph_executorch.exir._serialize._dataclass import _json_to_dataclass, as_dict
from delegraph_executorch.exir.schema import Program, SubsegmentOffsets
from delegraph_executorch.exir.tensor import ALIGNMENT

__all__ = ["_FlatbufferResult", "_flatbuffer_to_program", "_program_to_flatbuffer", "record_of"]

_Record = TypeVar("_Record")


def record_of(data: Buffer, record: type[_Record]) -> _Record:
    """The tables of a `.pte`, `.bpte` or `.ptd` as the record of its root. Raises `InvalidProgram` for other bytes."""
    root: _Record = _json_to_dataclass(read_tables(data), record)
    return root


@dataclass
class _FlatbufferResult:
    """A flatbuffer, and the largest alignment in it."""

    data: bytes
    max_alignment: int


def _program_to_flatbuffer(
    program: Program, *, constant_tensor_alignment: int | None = None, delegate_alignment: int | None = None
) -> _FlatbufferResult:
    """The flatbuffer of `program` as it is. Raises ValueError for an alignment that is not a power of two."""
    alignments = (constant_tensor_alignment or ALIGNMENT, delegate_alignment or ALIGNMENT)
    tables = as_dict(program)
    for plan in tables["execution_plan"]:
        for value in plan["values"]:
            if value["val_type"] == "Double":
                value["val"] = {"double_val": float(value["val"]["double_val"])}
    try:
        return _FlatbufferResult(write_tables(tables, *alignments), max(ALIGNMENT, *alignments))
    except InvalidArgument as error:
        raise ValueError(str(error)) from error


def _flatbuffer_to_program(program_data: bytes) -> Program:
    """The program that a flatbuffer, or the first part of a `.pte`, holds; what is in segments stays there."""
    program = record_of(program_data, Program)
    program.constant_segment = program.constant_segment or SubsegmentOffsets(0, [])
    return program
