"""Programs: records <-> bytes <-> text. Imports neither torch nor anything of the stages around it.

The public names, each imported when it is first used. The other records are in `delegraph.program.schema` and
`delegraph.program.flat_tensor`, public as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.program.alternatives import alternatives_of, methods_of
    from delegraph.program.checks.verify import verify_program
    from delegraph.program.debug_data import DebugData, SourceNode, debug_data_of
    from delegraph.program.devices import TARGET_DEVICE_COMPILE_SPEC_KEY, Device, target_device
    from delegraph.program.dtypes import DTYPES, nbytes, numpy_dtype, scalar_type
    from delegraph.program.files.deserialize import deserialize_program
    from delegraph.program.files.seal import sealed
    from delegraph.program.files.segment_source import SegmentSource
    from delegraph.program.files.serialize import SerializationConfig, serialize_program, write_program
    from delegraph.program.flat_tensor import (
        ExternalData,
        FlatTensor,
        deserialize_flat_tensor,
        serialize_flat_tensor,
        write_flat_tensor,
    )
    from delegraph.program.memory.memory_maps import MemoryMap, memory_map
    from delegraph.program.raw_tables import read_tables, table_layouts, write_tables
    from delegraph.program.schema import Program, ScalarType
    from delegraph.program.signatures import sign_file
    from delegraph.program.strides import dense_strides
    from delegraph.program.text.from_text import from_text
    from delegraph.program.text.to_text import to_text

__all__ = [
    "DTYPES",
    "TARGET_DEVICE_COMPILE_SPEC_KEY",
    "DebugData",
    "Device",
    "ExternalData",
    "FlatTensor",
    "MemoryMap",
    "Program",
    "ScalarType",
    "SegmentSource",
    "SerializationConfig",
    "SourceNode",
    "alternatives_of",
    "debug_data_of",
    "dense_strides",
    "deserialize_flat_tensor",
    "deserialize_program",
    "from_text",
    "memory_map",
    "methods_of",
    "nbytes",
    "numpy_dtype",
    "read_tables",
    "scalar_type",
    "sealed",
    "serialize_flat_tensor",
    "serialize_program",
    "sign_file",
    "table_layouts",
    "target_device",
    "to_text",
    "verify_program",
    "write_flat_tensor",
    "write_program",
    "write_tables",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.program.alternatives": ("alternatives_of", "methods_of"),
        "delegraph.program.checks.verify": ("verify_program",),
        "delegraph.program.debug_data": ("DebugData", "SourceNode", "debug_data_of"),
        "delegraph.program.devices": ("TARGET_DEVICE_COMPILE_SPEC_KEY", "Device", "target_device"),
        "delegraph.program.dtypes": ("DTYPES", "nbytes", "numpy_dtype", "scalar_type"),
        "delegraph.program.files.deserialize": ("deserialize_program",),
        "delegraph.program.files.seal": ("sealed",),
        "delegraph.program.files.segment_source": ("SegmentSource",),
        "delegraph.program.files.serialize": ("SerializationConfig", "serialize_program", "write_program"),
        "delegraph.program.flat_tensor": (
            "ExternalData",
            "FlatTensor",
            "deserialize_flat_tensor",
            "serialize_flat_tensor",
            "write_flat_tensor",
        ),
        "delegraph.program.memory.memory_maps": ("MemoryMap", "memory_map"),
        "delegraph.program.raw_tables": ("read_tables", "table_layouts", "write_tables"),
        "delegraph.program.schema": ("Program", "ScalarType"),
        "delegraph.program.signatures": ("sign_file",),
        "delegraph.program.strides": ("dense_strides",),
        "delegraph.program.text.from_text": ("from_text",),
        "delegraph.program.text.to_text": ("to_text",),
    },
)
