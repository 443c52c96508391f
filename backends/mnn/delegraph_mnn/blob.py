"""A delegate's blob: header, ONNX graph, weights, as in `delegraph_cpu.blob`, whose records these are. Written by
`aot`, read by `runtime`."""

from __future__ import annotations

from typing import Final

from delegraph.interfaces import BlobFormat, Buffer
from delegraph_cpu.blob import Blob, unpack_as

__all__ = ["BACKEND_ID", "FORMAT", "unpack"]

BACKEND_ID: Final = "MnnBackend"
FORMAT: Final = BlobFormat(BACKEND_ID, "delegraph-mnn", (1,))


def unpack(processed: Buffer) -> Blob:
    """The content of a blob. Raises `DelegateInvalidCompatibility` for one that is foreign, newer or damaged."""
    return unpack_as(Blob, processed, FORMAT)
