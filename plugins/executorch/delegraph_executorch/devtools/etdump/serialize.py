"""ExecuTorch's `executorch.devtools.etdump.serialize`: an ETDump's records <-> its bytes."""

from __future__ import annotations

from delegraph.program.etdump import deserialize_etdump, serialize_etdump
from delegraph_executorch.devtools.etdump.schema_flatcc import ETDumpFlatCC

__all__ = ["deserialize_from_etdump_flatcc", "serialize_to_etdump_flatcc"]


def serialize_to_etdump_flatcc(etdump: ETDumpFlatCC) -> bytes:
    """The flatbuffer, without the size that a runtime's file begins with. Raises `InvalidArgument`."""
    return serialize_etdump(etdump, size_prefixed=False)


def deserialize_from_etdump_flatcc(data: bytes, size_prefixed: bool = True) -> ETDumpFlatCC:
    """The records of a runtime's file or, if not `size_prefixed`, of a bare flatbuffer. Raises `InvalidArgument`."""
    return deserialize_etdump(data, size_prefixed)
