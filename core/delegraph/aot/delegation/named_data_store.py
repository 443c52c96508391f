"""Blobs under keys, each stored once however often it is added."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
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

    def externalize_pte_data(self, max_data_bytes: int, tag_prefix: str) -> None:
        """Move what is for the `.pte` to `.ptd` files, shards of at most `max_data_bytes` bytes of different contents.

        Keys go into shards in alphabetical order, those of one content together. A shard is called `tag_prefix`, then
        "_" and the SHA-256 of its keys with zeros between, as in ExecuTorch. Raises ValueError, and moves nothing,
        where a content is larger than a shard or a file of other data has that name.
        """
        if isinstance(max_data_bytes, bool) or not isinstance(max_data_bytes, int) or max_data_bytes <= 0:
            raise ValueError(f"max_data_bytes is {max_data_bytes!r}; an external data shard takes a positive integer")
        if not tag_prefix:
            raise ValueError("tag_prefix is empty; the prefix must be nonempty")
        moved: dict[str, _Entry] = {}
        for keys in self._shards(max_data_bytes):
            tag = f"{tag_prefix}_{sha256(chr(0).join(keys).encode()).hexdigest()}"
            if any(entry.tag == tag for entry in self._entries.values()):
                raise ValueError(f"external data tag collision: {tag} has other data; give another prefix")
            moved |= {key: replace(self._entries[key], tag=tag) for key in keys}
        self._entries = {key: entry for key, entry in self._entries.items() if key not in moved} | moved

    def _shards(self, max_data_bytes: int) -> list[list[str]]:
        """The keys of each shard."""
        keys_of: dict[int, list[str]] = {}  # by content, which the pool has once
        for key in sorted(key for key, entry in self._entries.items() if entry.tag is None):
            keys_of.setdefault(id(self._entries[key].content), []).append(key)
        shards: list[list[str]] = []
        free = 0
        for keys in keys_of.values():
            size = memoryview(self._entries[keys[0]].content).nbytes
            if size > max_data_bytes:
                raise ValueError(
                    f"named data {keys[0]!r}: {size} bytes exceeds external data shard cap {max_data_bytes}"
                )
            if size > free or not shards:
                shards.append([])
                free = max_data_bytes
            shards[-1] += keys
            free -= size
        return [sorted(shard) for shard in shards]

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
