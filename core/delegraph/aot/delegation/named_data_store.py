"""Blobs under keys, each stored once however often it is added."""

from __future__ import annotations

from math import lcm

import torch

from delegraph.interfaces.lowering import NamedDataStoreOutput
from delegraph.program.content_pool import ContentPool
from delegraph.program.schema import NamedData

__all__ = ["NamedDataStore"]


class NamedDataStore:
    """Collects named blobs (ExecuTorch `exir/_serialize/_named_data_store.py`)."""

    def __init__(self) -> None:
        self._tags: dict[str, str | None] = {}
        self._data: dict[str, NamedData] = {}
        self._pool = ContentPool()

    def add_named_data(
        self, key: str, data: bytes | torch.Tensor, alignment: int = 1, external_tag: str | None = None
    ) -> None:
        """Store `data` under `key`, aligned to `alignment` bytes, in the `.pte` or in the `.ptd` of `external_tag`.

        Adding the same bytes under the same key again is allowed; other bytes raise ValueError.
        """
        content = _tensor_bytes(data) if isinstance(data, torch.Tensor) else bytes(data)
        old = self._data.get(key)
        if old is None:
            content = bytes(self._pool.buffers[self._pool.add(content)])  # no copy: what it holds are bytes
        elif old.data != content:
            raise ValueError(f"named data {key!r}: {len(content)} bytes differ from the {len(old.data)} stored before")
        if old is not None and self._tags[key] != external_tag:
            raise ValueError(f"named data {key!r} is tagged {self._tags[key]!r}, now {external_tag!r}")
        self._tags[key] = external_tag
        self._data[key] = NamedData(content if old is None else old.data, lcm(alignment, old.alignment if old else 1))

    def merge(self, output: NamedDataStoreOutput) -> None:
        """Take over everything in `output`."""
        tagged = [(None, output.pte_data), *output.external_data.items()]
        for tag, entries in tagged:
            for key, named in entries.items():
                self.add_named_data(key, bytes(named.data), named.alignment, tag)

    def get_named_data_store_output(self) -> NamedDataStoreOutput:
        """What has been stored, by destination."""
        external: dict[str, dict[str, NamedData]] = {}
        pte: dict[str, NamedData] = {}
        for key, named in self._data.items():
            tag = self._tags[key]
            (pte if tag is None else external.setdefault(tag, {}))[key] = named
        return NamedDataStoreOutput(pte, external)


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    contiguous = tensor.detach().cpu().contiguous()
    return contiguous.reshape(-1).view(torch.uint8).numpy().tobytes()
