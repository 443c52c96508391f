"""BundledProgram <-> the bytes of a `.bpte` ("BP08"), one flatbuffer of the tables in `schema/bundled_program.fbs`.

Format: ExecuTorch `devtools/bundled_program/schema/bundled_program_schema.fbs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Final

from delegraph.devtools.bundled_program.bundle import BundledCase, BundledProgram
from delegraph.devtools.bundled_program.cases import BundledTensor, BundledValue, MethodTestCase, MethodTestSuite
from delegraph.errors import InvalidArgument, InvalidProgram, InvalidType
from delegraph.program import nbytes
from delegraph.program._generated import bundled_program_tables as tables
from delegraph.program.buffers import byte_view
from delegraph.program.checks.verify_values import geometry_violations
from delegraph.program.files.atomic_file import write_atomically
from delegraph.program.files.header import BUNDLED_IDENTIFIER
from delegraph.program.flatbuffer.builder import MAX_SIZE, Table, Tables, Vector, build, numbers, rows
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.schema import Buffer, ScalarType
from delegraph.runtime.data_loader import Source, open_data_loader

__all__ = ["load_bundled_program", "serialize_bundled_program", "write_bundled_program"]

VERSION: Final = 2
"""ExecuTorch `devtools/bundled_program/version.py`."""
PROGRAM_ALIGNMENT: Final = 32
DATA_ALIGNMENT: Final = 16

TENSOR, INT, BOOL, DOUBLE = range(1, 5)
"""Codes of the members of `ValueUnion`."""


# ---- records -> bytes ------------------------------------------------------------------------------


def serialize_bundled_program(bundled: BundledProgram) -> bytes:
    """The bytes of the `.bpte`. Raises `InvalidArgument` if they would exceed 2 GiB."""
    program = byte_view(bundled.buffer)
    if len(program) > MAX_SIZE:
        raise InvalidArgument(
            f"the program has {len(program):,} bytes, and a bundled program no more than {MAX_SIZE:,} in all;"
            " keep the weights in a .ptd (ExecutorchBackendConfig(external_constants=True))"
        )
    suites = [(suite.method_name, Tables(_case_table, suite.test_cases)) for suite in bundled.suites]
    fields = (VERSION, rows(tables.BUNDLED_METHOD_TEST_SUITE, suites), Vector(program, len(program), PROGRAM_ALIGNMENT))
    return bytes(build(bytes(4) + BUNDLED_IDENTIFIER, (tables.BUNDLED_PROGRAM, fields)))


def write_bundled_program(bundled: BundledProgram, path: str | PathLike[str]) -> None:
    """Write the `.bpte` to `path`: whole or not at all. Raises `InvalidArgument` and `OSError`."""
    write_atomically(path, [serialize_bundled_program(bundled)])


def _case_table(case: BundledCase) -> Table:
    return tables.BUNDLED_METHOD_TEST_CASE, (
        Tables(_value_table, case.inputs),
        Tables(_value_table, case.expected_outputs),
    )


def _value_table(value: BundledValue) -> Table:
    code, table = _union(value)
    return tables.VALUE, (code, table)


def _union(value: BundledValue) -> tuple[int, Table]:
    if isinstance(value, BundledTensor):
        data = byte_view(value.data)
        return TENSOR, (
            tables.TENSOR,
            (
                value.scalar_type,
                numbers("i", value.sizes),
                Vector(data, len(data), DATA_ALIGNMENT),
                numbers("B", value.dim_order),
            ),
        )
    if isinstance(value, bool):
        return BOOL, (tables.BOOL, (value,))
    return (INT, (tables.INT, (value,))) if isinstance(value, int) else (DOUBLE, (tables.DOUBLE, (value,)))


# ---- bytes -> records ------------------------------------------------------------------------------


def load_bundled_program(source: Source) -> BundledProgram:
    """The bundled program in bytes, a path (mapped), a binary file object or a `DataLoader`.

    Its `executorch_program` and the tensors of its cases are read-only views into the source. Raises `AccessFailed`,
    and `InvalidProgram` for what is not a `.bpte`, is damaged, or holds cases that do not fit their methods.
    """
    loader = open_data_loader(source)
    if loader.size() < 8 or bytes(loader.load(4, 4)) != BUNDLED_IDENTIFIER:
        raise InvalidProgram(
            f"not a .bpte: it does not have {BUNDLED_IDENTIFIER!r} at byte 4; is it a .pte, for delegraph.load?"
        )
    reader = FlatBufferReader(byte_view(loader.load(0, loader.size())), InvalidProgram)
    version, suites, program = reader.table(tables.BUNDLED_PROGRAM, reader.root())
    if version != VERSION:
        raise InvalidProgram(f"version is {version}; this version of Delegraph reads .bpte files of version {VERSION}")
    read = [_suite(reader, at, f"method_test_suites[{index}]") for index, at in enumerate(reader.tables(suites))]
    try:
        return BundledProgram(reader.view(program), read)
    except (InvalidArgument, InvalidType) as error:
        raise InvalidProgram(f"the cases do not fit the program: {error}") from error


def _suite(reader: FlatBufferReader, position: int, path: str) -> MethodTestSuite:
    name, cases = reader.table(tables.BUNDLED_METHOD_TEST_SUITE, position)
    read = [_case(reader, at, f"{path}.test_cases[{index}]") for index, at in enumerate(reader.tables(cases))]
    return MethodTestSuite(reader.string(name), read)


def _case(reader: FlatBufferReader, position: int, path: str) -> MethodTestCase:
    inputs, outputs = reader.table(tables.BUNDLED_METHOD_TEST_CASE, position)
    return MethodTestCase(
        _values(reader, reader.tables(inputs), f"{path}.inputs"),
        _values(reader, reader.tables(outputs), f"{path}.expected_outputs"),
    )


def _values(reader: FlatBufferReader, positions: Sequence[int], path: str) -> list[object]:
    return [_value(reader, at, f"{path}[{index}]") for index, at in enumerate(positions)]


def _value(reader: FlatBufferReader, position: int, path: str) -> object:
    code, at = reader.table(tables.VALUE, position)
    if at is None or code not in _LAYOUTS:
        raise InvalidProgram(f"{path}.val has the type {code}; known are {TENSOR} (Tensor) to {DOUBLE} (Double)")
    fields = reader.table(_LAYOUTS[code], at)
    return _tensor(reader, fields, at, path).array() if code == TENSOR else fields[0]


_LAYOUTS: Final = {TENSOR: tables.TENSOR, INT: tables.INT, BOOL: tables.BOOL, DOUBLE: tables.DOUBLE}


def _tensor(reader: FlatBufferReader, fields: list[Any], position: int, path: str) -> BundledTensor:
    code, sizes_at, data_at, order_at = fields
    sizes, dim_order = reader.vector("i", sizes_at), reader.vector("B", order_at)
    kind = reader.enum(ScalarType, code, position)
    data: Buffer = reader.view(data_at)
    for violation in geometry_violations(kind, sizes, dim_order):
        raise InvalidProgram(f"{path}.val{violation}")
    if memoryview(data).nbytes < nbytes(kind, sizes):
        raise InvalidProgram(f"{path}.val.data has {memoryview(data).nbytes} bytes, its tensor {nbytes(kind, sizes)}")
    return BundledTensor(kind, sizes, dim_order, data)
