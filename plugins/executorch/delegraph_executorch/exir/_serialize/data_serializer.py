"""Data under names, in bytes of some format (ExecuTorch `exir/_serialize/data_serializer.py`)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from delegraph_executorch.exir._serialize._cord import Cord
from delegraph_executorch.exir.tensor_layout import TensorLayout

__all__ = ["DataEntry", "DataPayload", "DataSerializer"]


@dataclass
class DataEntry:
    """One entry: which buffer it is, how that is aligned in bytes, and of a tensor how it is laid out."""

    buffer_index: int
    alignment: int
    tensor_layout: TensorLayout | None

    @property
    def data(self) -> bytes:
        """The bytes themselves, once the entry is in a `NamedDataStoreOutput`."""
        data: bytes = self.__dict__["_data"]
        return data


@dataclass
class DataPayload:
    """Entries by name, and the buffers that they refer to; several may refer to one."""

    buffers: Sequence[bytes]
    named_data: dict[str, DataEntry]


class DataSerializer(ABC):
    """A format of files with named data."""

    @abstractmethod
    def serialize(self, data: DataPayload) -> Cord:
        """The bytes of a file."""

    @abstractmethod
    def deserialize(self, blob: Cord) -> DataPayload:
        """What the bytes of a file hold."""
