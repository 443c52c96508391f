"""Blobs under keys, each stored once however often it is added."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Any

import torch

from delegraph.aot.graph.stored_tensor import external_data
from delegraph.interfaces.lowering import NamedDataStoreOutput
from delegraph.program.buffers import are_equal, byte_view
from delegraph.program.files.content_pool import ContentPool
from delegraph.program.flat_tensor import ExternalData, TensorLayout
from delegraph.program.schema import Buffer, NamedData, ScalarType

__all__ = ["NamedDataStore"]


@dataclass(frozen=True, slots=True)
class _Entry:
    content: Buffer
    alignment: int
    tag: str | None
    layout: TensorLayout | None


class NamedDataStore:
    """Collects named blobs (ExecuTorch `exir/_serialize/_named_data_store.py`)."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._pool = ContentPool()

    def add_named_data(
        self,
        key: str,
        data: Buffer | torch.Tensor,
        alignment: int = 1,
        external_tag: str | None = None,
        tensor_layout: TensorLayout | None = None,
    ) -> None:
        """Store `data` under `key`, aligned to `alignment` bytes, in the `.pte` or in the `.ptd` of `external_tag`.

        A tensor and a read-only view are kept and not copied: do not change what is behind them.

        In a `.ptd` a tensor has its layout beside it, which loading checks: give a weight there the name that it has in
        the model, and it is the same entry for kernels and for all backends. Adding the same bytes under the same key
        again is allowed; other bytes, another layout or another file raise ValueError.
        """
        content: Buffer
        if isinstance(data, torch.Tensor):
            stored = external_data(data)
            content, tensor_layout = byte_view(stored.data), stored.tensor_layout
        else:
            content = data if memoryview(data).readonly else bytes(data)
        old = self._entries.get(key)
        if old is None:
            content = self._pool.buffers[self._pool.add(content)]
            self._entries[key] = _Entry(content, alignment, external_tag, tensor_layout)
            return
        if not are_equal(old.content, content):
            size, before = (memoryview(each).nbytes for each in (content, old.content))
            raise ValueError(f"named data {key!r}: {size} bytes differ from the {before} stored before")
        if old.tag != external_tag:
            raise ValueError(f"named data {key!r} is tagged {old.tag!r}, now {external_tag!r}")
        if None not in (old.layout, tensor_layout) and old.layout != tensor_layout:
            raise ValueError(f"named data {key!r} is {old.layout}, now {tensor_layout}")
        layout = old.layout or tensor_layout
        self._entries[key] = _Entry(old.content, lcm(alignment, old.alignment), external_tag, layout)

    def merge(self, output: NamedDataStoreOutput) -> None:
        """Take over everything in `output`."""
        for key, named in output.pte_data.items():
            self.add_named_data(key, named.data, named.alignment)
        for tag, entries in output.external_data.items():
            for key, entry in entries.items():
                self.add_named_data(key, entry.data, entry.alignment, tag, _layout(entry.tensor_layout))

    def get_named_data_store_output(self) -> NamedDataStoreOutput:
        """The stored data, by destination."""
        external: dict[str, dict[str, ExternalData]] = {}
        pte: dict[str, NamedData] = {}
        for key, entry in self._entries.items():
            if entry.tag is None:
                pte[key] = NamedData(entry.content, entry.alignment)
            else:
                entries = external.setdefault(entry.tag, {})
                entries[key] = ExternalData(entry.content, entry.layout, entry.alignment)
        return NamedDataStoreOutput(pte, external)


def _layout(layout: Any) -> TensorLayout | None:
    """A layout as the file has it; ExecuTorch's record of one has lists."""
    if layout is None or isinstance(layout, TensorLayout):
        return layout
    return TensorLayout(ScalarType(layout.scalar_type), tuple(layout.sizes), tuple(layout.dim_order))
