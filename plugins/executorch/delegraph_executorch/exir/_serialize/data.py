"""Data under names: bytes in pieces, entries, the store that delegates fill (ExecuTorch `exir/_serialize`).

What is stored, and what is refused, is `delegraph.aot.NamedDataStore`'s; here is the form in which ExecuTorch's code
looks at it: numbered buffers, and entries that refer to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

import torch

from delegraph import aot
from delegraph.program.flat_tensor import ExternalData
from delegraph.program.schema import NamedData
from delegraph_executorch.exir._serialize.file_data import FileBackedData, in_memory
from delegraph_executorch.exir.tensor import TensorLayout


class Cord:
    """A sequence of bytes that is put together without copying its pieces."""

    def __init__(self, data: bytes | FileBackedData | Cord | None = None) -> None:
        self._buffers: list[bytes | FileBackedData] = []
        self._byte_size = 0
        if data is not None:
            self.append(data)

    def __len__(self) -> int:
        return self._byte_size

    def __bytes__(self) -> bytes:
        return b"".join(map(in_memory, self._buffers))

    def append(self, data: bytes | FileBackedData | Cord) -> None:
        """Add `data` at the end. Raises TypeError for anything but bytes, data in a file, and cords."""
        if isinstance(data, Cord):
            self._buffers.extend(data._buffers)
        elif isinstance(data, (bytes, FileBackedData)):
            self._buffers.append(data)
        else:
            raise TypeError(f"a Cord takes bytes, FileBackedData and Cords, not {type(data).__name__}")
        self._byte_size += len(data)

    def write_to_file(self, outfile: BinaryIO) -> None:
        """Write all pieces in order."""
        for piece in self._buffers:
            outfile.write(in_memory(piece))


def pad_to(data: bytes, length: int) -> bytes:
    """`data` and zeros, `length` bytes in all. Raises ValueError if it is longer already."""
    if length < len(data):
        raise ValueError(f"the data have {len(data)} bytes, more than the {length} to pad them to")
    return data.ljust(length, b"\0")


def padding_required(offset: int, alignment: int) -> int:
    """Bytes from `offset` to the next multiple of `alignment`."""
    return -offset % alignment


def aligned_size(input_size: int, alignment: int) -> int:
    """`input_size` rounded up to a multiple of `alignment`."""
    return input_size + padding_required(input_size, alignment)


@dataclass
class DataEntry:
    """One entry: which buffer it is, how that is aligned in bytes, and of a tensor how it is laid out."""

    buffer_index: int
    alignment: int
    tensor_layout: TensorLayout | None

    @property
    def data(self) -> bytes | memoryview:
        """The bytes themselves, once the entry is in a `NamedDataStoreOutput`."""
        data: bytes | memoryview = self.__dict__["_data"]
        return data


@dataclass
class DataPayload:
    """Entries by name, and the buffers that they refer to; several may refer to one."""

    buffers: Sequence[bytes | FileBackedData]
    named_data: dict[str, DataEntry]


class DataSerializer(ABC):
    """A format of files with named data."""

    @abstractmethod
    def serialize(self, data: DataPayload) -> Cord:
        """The bytes of a file."""

    @abstractmethod
    def deserialize(self, blob: Cord) -> DataPayload:
        """What the bytes of a file hold."""


@dataclass
class NamedDataStoreOutput:
    """What has been stored. `PreprocessResult` takes it as it takes that of `delegraph.aot`."""

    buffers: list[bytes | FileBackedData]
    pte_data: dict[str, DataEntry]
    external_data: dict[str, dict[str, DataEntry]]

    def __post_init__(self) -> None:
        for entries in (self.pte_data, *self.external_data.values()):
            for entry in entries.values():
                entry.__dict__["_data"] = in_memory(self.buffers[entry.buffer_index])


class NamedDataStore(aot.NamedDataStore):
    """Collects named blobs, each content once."""

    def __init__(self) -> None:
        super().__init__()
        self._layouts: dict[str, TensorLayout | None] = {}
        self._in_files: dict[int, FileBackedData] = {}  # by the id of their view

    @property
    def buffers(self) -> list[bytes | FileBackedData]:
        """The distinct contents, in the order in which they came."""
        return self.get_named_data_store_output().buffers

    @property
    def pte_data(self) -> dict[str, DataEntry]:
        """What goes into the `.pte`."""
        return self.get_named_data_store_output().pte_data

    @property
    def external_data(self) -> dict[str, dict[str, DataEntry]]:
        """What goes into `.ptd` files, by their names."""
        return self.get_named_data_store_output().external_data

    def add_named_data(  # type: ignore[override]  # a layout of ExecuTorch's kind, of lists
        self,
        key: str,
        data: bytes | FileBackedData | torch.Tensor,
        alignment: int | None = 1,
        external_tag: str | None = None,
        tensor_layout: TensorLayout | None = None,
    ) -> None:
        """Store `data` under `key`. Raises ValueError where the key has other data, or the tensor another layout."""
        alignment = 1 if alignment is None else alignment
        if alignment <= 0:
            raise ValueError(f"alignment is {alignment}; it has to be greater than 0")
        if isinstance(data, torch.Tensor):
            layout = TensorLayout.from_tensor(data)
            if tensor_layout not in (None, layout):
                raise ValueError(f"the tensor for {key!r} has the layout {layout}, not {tensor_layout}")
            data, tensor_layout = _memory_of(data), layout
        if isinstance(data, FileBackedData):
            self._in_files[id(data.view)] = data
        super().add_named_data(key, in_memory(data), alignment, external_tag)
        self._layouts.setdefault(key, tensor_layout)

    def merge_named_data_store(self, other: NamedDataStoreOutput) -> None:
        """Take over everything in `other`. Raises ValueError where a key has other data here."""
        for tag, entries in chain([(None, other.pte_data)], other.external_data.items()):
            for key, entry in entries.items():
                content = other.buffers[entry.buffer_index]
                self.add_named_data(key, content, entry.alignment, tag, entry.tensor_layout)

    def get_named_data_store_output(self) -> NamedDataStoreOutput:  # type: ignore[override]
        """What has been stored, by destination."""
        stored = super().get_named_data_store_output()
        buffers: list[bytes | FileBackedData] = []
        numbers: dict[int, int] = {}  # by the content's id: equal ones are one

        def entries(named: Iterable[tuple[str, NamedData | ExternalData]]) -> dict[str, DataEntry]:
            found: dict[str, DataEntry] = {}
            for key, blob in named:
                content = id(blob.data)
                if content not in numbers:
                    numbers[content] = len(buffers)
                    buffers.append(self._in_files.get(content) or bytes(blob.data))
                found[key] = DataEntry(numbers[content], blob.alignment, self._layouts[key])
            return found

        pte = entries(stored.pte_data.items())
        external = {tag: entries(blobs.items()) for tag, blobs in stored.external_data.items()}
        return NamedDataStoreOutput(buffers, pte, external)


def _memory_of(tensor: torch.Tensor) -> bytes:
    """The bytes as they lie in memory: those of a tensor that is channels last, in that order."""
    order = tensor.dim_order()
    return tensor.detach().cpu().permute(order).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
