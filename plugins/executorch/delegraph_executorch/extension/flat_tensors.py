"""ExecuTorch's `executorch.extension.flat_tensor.serialize`: named data <-> the bytes of a `.ptd`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from delegraph import program
from delegraph.program import ExternalData, deserialize_flat_tensor, serialize_flat_tensor
from delegraph.program.flat_tensor import TensorLayout as Layout
from delegraph_executorch.exir._serialize.data import Cord, DataEntry, DataPayload, DataSerializer, NamedDataStoreOutput
from delegraph_executorch.exir._serialize.file_data import in_memory
from delegraph_executorch.exir._serialize.records import converted, record_of
from delegraph_executorch.exir.tensor import TensorLayout
from delegraph_executorch.table_records import table_records

RECORDS = table_records(b"FT01", __name__, classes={"TensorLayout": TensorLayout}, may_be_left_out=("tensor_layout",))
"""The tables of a `.ptd`, as `flat_tensor_schema` has them."""
DataSegment, FlatTensor, NamedData = (RECORDS[name] for name in ("DataSegment", "FlatTensor", "NamedData"))


@dataclass
class FlatTensorConfig:
    """How a `.ptd` is laid out: the alignment of its segments, in bytes."""

    segment_alignment: int = 128


class FlatTensorSerializer(DataSerializer):
    """The format of `.ptd` files."""

    def __init__(self, config: FlatTensorConfig | None = None) -> None:
        self.config = config or FlatTensorConfig()

    def serialize(self, data: DataPayload) -> Cord:
        """The bytes of a `.ptd`, equal contents in one segment. Raises `InvalidExternalData`."""
        named = {
            key: ExternalData(
                in_memory(data.buffers[entry.buffer_index]),
                converted(entry.tensor_layout, Layout),
                entry.alignment or 1,
            )
            for key, entry in data.named_data.items()
        }
        return Cord(serialize_flat_tensor(program.FlatTensor(named), self.config.segment_alignment))

    def deserialize(self, blob: Cord) -> DataPayload:
        """What a `.ptd` holds, each content once; alignments are not read back. Raises `InvalidExternalData`."""
        buffers: dict[bytes, int] = {}
        entries = {
            key: DataEntry(
                buffers.setdefault(bytes(entry.data), len(buffers)), 1, converted(entry.tensor_layout, TensorLayout)
            )
            for key, entry in deserialize_flat_tensor(bytes(blob)).named_data.items()
        }
        return DataPayload(list(buffers), entries)

    def deserialize_to_named_data_store_output(self, blob: bytes, name: str) -> NamedDataStoreOutput:
        """What a `.ptd` holds, as what a `NamedDataStore` has for the file `name`. Raises `InvalidExternalData`."""
        payload = self.deserialize(Cord(blob))
        return NamedDataStoreOutput(list(payload.buffers), {}, {name: payload.named_data})


def _deserialize_to_flat_tensor(flatbuffer: bytes) -> Any:
    """The tables of a `.ptd`. Raises `InvalidProgram` for bytes that are none."""
    return record_of(flatbuffer, FlatTensor)
