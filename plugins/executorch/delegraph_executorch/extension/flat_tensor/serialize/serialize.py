"""ExecuTorch's `executorch.extension.flat_tensor.serialize.serialize`: named data <-> the bytes of a `.ptd`."""

from __future__ import annotations

from dataclasses import dataclass

from delegraph.program import ExternalData, FlatTensor, deserialize_flat_tensor, serialize_flat_tensor
from delegraph.program.flat_tensor import TensorLayout as Layout
from delegraph_executorch.exir._serialize._cord import Cord
from delegraph_executorch.exir._serialize._named_data_store import NamedDataStoreOutput
from delegraph_executorch.exir._serialize.data_serializer import DataEntry, DataPayload, DataSerializer
from delegraph_executorch.exir.tensor_layout import TensorLayout

__all__ = ["FlatTensorConfig", "FlatTensorSerializer"]


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
            key: ExternalData(data.buffers[entry.buffer_index], _layout(entry.tensor_layout), entry.alignment or 1)
            for key, entry in data.named_data.items()
        }
        return Cord(serialize_flat_tensor(FlatTensor(named), self.config.segment_alignment))

    def deserialize(self, blob: Cord) -> DataPayload:
        """What a `.ptd` holds, each content once; alignments are not read back. Raises `InvalidExternalData`."""
        buffers: dict[bytes, int] = {}
        entries = {
            key: DataEntry(buffers.setdefault(bytes(entry.data), len(buffers)), 1, _their_layout(entry.tensor_layout))
            for key, entry in deserialize_flat_tensor(bytes(blob)).named_data.items()
        }
        return DataPayload(list(buffers), entries)

    def deserialize_to_named_data_store_output(self, blob: bytes, name: str) -> NamedDataStoreOutput:
        """What a `.ptd` holds, as what a `NamedDataStore` has for the file `name`. Raises `InvalidExternalData`."""
        payload = self.deserialize(Cord(blob))
        return NamedDataStoreOutput(list(payload.buffers), {}, {name: payload.named_data})


def _layout(layout: TensorLayout | None) -> Layout | None:
    return None if layout is None else Layout(layout.scalar_type, tuple(layout.sizes), tuple(layout.dim_order))


def _their_layout(layout: Layout | None) -> TensorLayout | None:
    return None if layout is None else TensorLayout(layout.scalar_type, list(layout.sizes), list(layout.dim_order))
