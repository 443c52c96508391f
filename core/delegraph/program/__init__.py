"""What a program is: records <-> bytes <-> text. Imports neither torch nor anything of the stages around it.

The public names, each imported when it is first used. The other records are in `delegraph.program.schema`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delegraph.program.deserialize import deserialize_program
    from delegraph.program.flat_tensor import (
        ExternalData,
        FlatTensor,
        deserialize_flat_tensor,
        serialize_flat_tensor,
        write_flat_tensor,
    )
    from delegraph.program.schema import Program, ScalarType
    from delegraph.program.segment_source import SegmentSource
    from delegraph.program.serialize import SerializationConfig, serialize_program, write_program
    from delegraph.program.tensor_size import nbytes
    from delegraph.program.text import to_text
    from delegraph.program.verify import verify_program

__all__ = [
    "ExternalData",
    "FlatTensor",
    "Program",
    "ScalarType",
    "SegmentSource",
    "SerializationConfig",
    "deserialize_flat_tensor",
    "deserialize_program",
    "nbytes",
    "serialize_flat_tensor",
    "serialize_program",
    "to_text",
    "verify_program",
    "write_flat_tensor",
    "write_program",
]

_MODULES: Final = {
    "ExternalData": "flat_tensor",
    "FlatTensor": "flat_tensor",
    "Program": "schema",
    "ScalarType": "schema",
    "SegmentSource": "segment_source",
    "SerializationConfig": "serialize",
    "deserialize_flat_tensor": "flat_tensor",
    "deserialize_program": "deserialize",
    "nbytes": "tensor_size",
    "serialize_flat_tensor": "flat_tensor",
    "serialize_program": "serialize",
    "to_text": "text",
    "verify_program": "verify",
    "write_flat_tensor": "flat_tensor",
    "write_program": "serialize",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)
