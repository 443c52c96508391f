"""Bundled programs, ETDumps and ETRecords under ExecuTorch's names: what is in them is `delegraph`'s."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import torch

import delegraph.devtools
from delegraph.aot import ETRecord, ExecutorchProgramManager
from delegraph.devtools import (
    MethodTestSuite,
    load_bundled_program,
    serialize_bundled_program,
)
from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program.etdump import ETDump as ETDumpFlatCC
from delegraph.program.etdump import deserialize_etdump, serialize_etdump
from delegraph.program.schema import Buffer
from delegraph_executorch.devtools import bundle_records as bp_schema
from delegraph_executorch.exir._serialize.records import record_of

ConfigValue: TypeAlias = torch.Tensor | int | bool | float
MethodInputType: TypeAlias = Sequence[ConfigValue]
MethodOutputType: TypeAlias = Sequence[torch.Tensor]
DataContainer: TypeAlias = list | tuple | dict  # type: ignore[type-arg]  # its users ask for its arguments


class BundleMismatch(InvalidArgument, AssertionError):
    """Test cases that do not fit the program; ExecuTorch raises an `AssertionError` for them."""


class BundledProgram(delegraph.devtools.BundledProgram):
    """A program and its test suites. Raises `BundleMismatch` if they do not fit each other."""

    def __init__(
        self,
        executorch_program: ExecutorchProgramManager | None,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        try:
            super().__init__(executorch_program, method_test_suites, pte_file_path)
        except (InvalidArgument, InvalidType) as error:
            raise BundleMismatch(str(error)) from error

    def serialize_to_schema(self) -> bp_schema.BundledProgram:
        """The records of ExecuTorch's schema."""
        return record_of(serialize_bundled_program(self), bp_schema.BundledProgram)


def serialize_from_bundled_program_to_flatbuffer(bundled_program: delegraph.devtools.BundledProgram) -> bytes:
    """The bytes of a `.bpte`."""
    return serialize_bundled_program(bundled_program)


def deserialize_from_flatbuffer_to_bundled_program(flatbuffer: Buffer) -> bp_schema.BundledProgram:
    """The records of a `.bpte`; `delegraph.devtools.load_bundled_program` gives a BundledProgram. Raises
    `InvalidProgram`.
    """
    load_bundled_program(flatbuffer)
    return record_of(flatbuffer, bp_schema.BundledProgram)


BUNDLED_PROGRAM_SCHEMA_VERSION = 2


class PROFILE_EVENT_ENUM(Enum):
    """Names of events that the runtime itself gives."""

    RUN_MODEL = "Method::execute"
    OPERATOR_CALL = "OPERATOR_CALL"
    DELEGATE_CALL = "DELEGATE_CALL"
    LOAD_MODEL = "Program::load_method"


def serialize_to_etdump_flatcc(etdump: ETDumpFlatCC) -> bytes:
    """The flatbuffer, without the size that a runtime's file begins with. Raises `InvalidArgument`."""
    return serialize_etdump(etdump, size_prefixed=False)


def deserialize_from_etdump_flatcc(data: bytes, size_prefixed: bool = True) -> ETDumpFlatCC:
    """The records of a runtime's file or, if not `size_prefixed`, of a bare flatbuffer. Raises `InvalidArgument`."""
    return deserialize_etdump(data, size_prefixed)


def _get_reference_outputs(bundled_program: Any) -> Any:
    """The expected outputs of each case, by method. Raises `ValueError` for a case without."""
    record = ETRecord()
    record.update_reference_outputs(bundled_program)
    return record._reference_outputs


def _get_representative_inputs(bundled_program: Any) -> Any:
    """The inputs of the first case of `forward`, None without that. Raises `ValueError` for a method without cases."""
    record = ETRecord()
    record.update_representative_inputs(bundled_program)
    return record._representative_inputs
