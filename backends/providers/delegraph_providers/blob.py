"""A delegate's blob, where a provider compiles at lowering: header and binary. Written by `aot`, read by `runtime`.

header | binary        sections of a `delegraph.interfaces.BlobFormat`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delegraph.interfaces import BlobFormat, BlobTensor, Buffer, read_record
from delegraph.lazy_dataclass import dataclass
from delegraph_providers.providers import Provider

__all__ = ["BLOB_VERSION", "DTYPES", "Blob", "CompiledNode", "format_of", "pack", "unpack"]

BLOB_VERSION: Final = 1
_HEADER: Final = ("provider", "sdk", "inputs", "outputs", "read", "written", "nodes")

DTYPES: Final = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
}
"""Dtypes of inputs and outputs, by their numbers in ONNX (`TensorProto.DataType`)."""


@dataclass(frozen=True, slots=True)
class CompiledNode:
    """A node of the ONNX graph that was compiled, called as its first result, and what it reads of inputs and of other
    nodes' results."""

    name: str
    operator: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob's content. `provider` is the version that compiled `binary`, `sdk` that of the tools below it; `read` and
    `written` are the names of the inputs and outputs of `binary`, in its order, which may read fewer inputs. It was
    compiled of `nodes`."""

    provider: str
    sdk: str
    inputs: tuple[BlobTensor, ...]
    outputs: tuple[BlobTensor, ...]
    read: tuple[str, ...]
    written: tuple[str, ...]
    binary: Buffer
    nodes: tuple[CompiledNode, ...] = ()


def format_of(provider: Provider) -> BlobFormat:
    """The format of the blobs of a provider, whichever of the two kinds they are."""
    return BlobFormat(provider.backend_id, "delegraph-providers", (BLOB_VERSION,))


def pack(blob: Blob, provider: Provider) -> bytes:
    """The bytes of `blob`."""
    header = {name: getattr(blob, name) for name in _HEADER}
    return format_of(provider).pack(header, {"binary": blob.binary})


def unpack(processed: Buffer, provider: Provider) -> Blob:
    """Read a blob. Raises `DelegateInvalidCompatibility` for one that is foreign, newer or damaged."""
    form = format_of(provider)
    content = form.unpack(processed)
    with form.reading():
        blob = read_record(Blob, content.header, binary=content.read("binary"))
        _check((*blob.inputs, *blob.outputs))
        if not {*blob.read} <= {tensor.name for tensor in blob.inputs}:
            raise TypeError("its binary reads what is no input")
        if sorted(blob.written) != sorted(tensor.name for tensor in blob.outputs):
            raise TypeError("its binary writes other things than outputs")
    return blob


def _check(tensors: Sequence[BlobTensor]) -> None:
    for tensor in tensors:
        if tensor.dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in tensor.shape):
            raise TypeError(f"a tensor of {tensor.dtype!r:.40} and the sizes {tensor.shape!r:.80}")
