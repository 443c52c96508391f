"""ExecuTorch's `executorch.devtools.bundled_program.serialize`: a bundled program <-> the bytes of a `.bpte`."""

from delegraph.devtools import BundledProgram, load_bundled_program, serialize_bundled_program
from delegraph.program.schema import Buffer
from delegraph_executorch.devtools.bundled_program import records as bp_schema
from delegraph_executorch.exir._serialize.records import record_of

__all__ = ["deserialize_from_flatbuffer_to_bundled_program", "serialize_from_bundled_program_to_flatbuffer"]


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """The bytes of a `.bpte`."""
    return serialize_bundled_program(bundled_program)


def deserialize_from_flatbuffer_to_bundled_program(flatbuffer: Buffer) -> bp_schema.BundledProgram:
    """The records of a `.bpte`; `delegraph.devtools.load_bundled_program` gives a BundledProgram. Raises
    `InvalidProgram`.
    """
    load_bundled_program(flatbuffer)
    return record_of(flatbuffer, bp_schema.BundledProgram)
