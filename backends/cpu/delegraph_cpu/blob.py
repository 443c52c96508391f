"""A delegate's blob: header, ONNX graph, weights. Written by `aot`, read by `runtime`, with NumPy alone.

    "DLGRCPU" + version byte | u32 header length | u32 CRC-32 of header and graph | header (JSON) | graph | weights

All integers are little endian. Graph and weights begin at multiples of 64 bytes from the blob's start. The graph
is an ONNX ModelProto without its large weights: the header says for each of them where it lies here, or under which
key it lies in the program's named data. The weights are not summed: that would read them all at each load.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Final

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer

__all__ = ["ALIGNMENT", "BACKEND_ID", "BLOB_VERSION", "Blob", "TensorInfo", "Weight", "pack", "unpack"]

BACKEND_ID: Final = "CpuBackend"
BLOB_VERSION: Final = 1
ALIGNMENT: Final = 64

_MAGIC: Final = b"DLGRCPU" + bytes([BLOB_VERSION])
_PREFIX: Final = struct.Struct("<8sII")

ITEM_SIZES: Final[dict[str, int]] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the graph. A dynamic dim is the text of its symbol; `scalar` marks a Python integer."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight outside the graph: `nbytes` at `offset` in the blob, or the named data under `key`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int = 0
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob's content. `graph` and `data` (what the weights' offsets count from) are views when read."""

    onnxruntime: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[Weight, ...]
    graph: Buffer
    data: Buffer = b""


def pack(blob: Blob, chunks: Sequence[Buffer]) -> bytes:
    """The bytes of `blob`; `chunks` are the bytes of its weights that have no key, in order.

    The weights' offsets are set here, whatever they were.
    """
    weights, offset = [], 0
    for weight in blob.weights:
        if weight.key is None:
            weight = Weight(weight.name, weight.dtype, weight.shape, weight.nbytes, offset)
            offset = _aligned(offset + weight.nbytes)
        weights.append(asdict(weight))
    header = json.dumps(
        {
            "onnxruntime": blob.onnxruntime,
            "inputs": [asdict(info) for info in blob.inputs],
            "outputs": [asdict(info) for info in blob.outputs],
            "weights": weights,
            "graph": len(blob.graph),
        }
    ).encode()
    crc = zlib.crc32(blob.graph, zlib.crc32(header))
    return b"".join(_padded([_PREFIX.pack(_MAGIC, len(header), crc) + header, blob.graph, *chunks]))


def unpack(processed: Buffer) -> Blob:
    """The content of a blob, as views into it. Raises `DelegateInvalidCompatibility` if it is damaged or foreign."""
    view = memoryview(processed).cast("B")
    if len(view) < _PREFIX.size:
        raise _damaged(f"it has {len(view)} bytes, fewer than its prefix")
    magic, header_size, crc = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise DelegateInvalidCompatibility(_foreign(magic))
    header = view[_PREFIX.size : _PREFIX.size + header_size]
    try:
        fields = json.loads(bytes(header))
        graph_size = _size(fields["graph"])
        graph_start = _aligned(_PREFIX.size + header_size)
        graph = view[graph_start : graph_start + graph_size]
        blob = Blob(
            _text(fields["onnxruntime"]),
            tuple(_info(entry) for entry in fields["inputs"]),
            tuple(_info(entry) for entry in fields["outputs"]),
            tuple(_weight(entry) for entry in fields["weights"]),
            graph,
            view[_aligned(graph_start + graph_size) :],
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise _damaged(f"its header cannot be read ({type(error).__name__}: {error!s:.200})") from error
    if graph_size < 0 or len(graph) != graph_size or zlib.crc32(graph, zlib.crc32(header)) != crc:
        raise _damaged("its header and graph do not have the checksum that it states")
    for weight in blob.weights:
        _check_weight(weight, len(blob.data))
    _check_names(blob)
    return blob


def _info(entry: dict[str, Any]) -> TensorInfo:
    shape = tuple(dim if isinstance(dim, str) else _size(dim) for dim in entry["shape"])
    info = TensorInfo(_text(entry["name"]), _text(entry["dtype"]), shape, entry["scalar"])
    if info.dtype not in ("", *ITEM_SIZES) or not isinstance(info.scalar, bool):
        raise ValueError(f"{entry!r:.80} describes neither a tensor nor a number")
    return info


def _weight(entry: dict[str, Any]) -> Weight:
    key = entry["key"]
    return Weight(
        _text(entry["name"]),
        _text(entry["dtype"]),
        tuple(_size(dim) for dim in entry["shape"]),
        _size(entry["nbytes"]),
        _size(entry["offset"]),
        None if key is None else _text(key),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {value!r:.40}")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"expected a size, not {value!r:.40}")
    return value


def _check_names(blob: Blob) -> None:
    """Each output is computed once, into memory of its own: onnxruntime does not write one that is an input."""
    outputs = [info.name for info in blob.outputs]
    if len(set(outputs)) < len(outputs) or not {info.name for info in blob.inputs if info.dtype}.isdisjoint(outputs):
        raise _damaged("an output is listed twice, or is an input")
    names = [weight.name for weight in blob.weights]
    if len(set(names)) < len(names):
        raise _damaged("a weight is listed twice")


def _check_weight(weight: Weight, available: int) -> None:
    item_size = ITEM_SIZES.get(weight.dtype)
    if item_size is None or prod(weight.shape) * item_size != weight.nbytes:
        raise _damaged(f"weight {weight.name!r}: {weight.dtype} {weight.shape} is not {weight.nbytes} bytes")
    if weight.key is None and (weight.offset > available - weight.nbytes or weight.offset % ALIGNMENT):
        raise _damaged(
            f"weight {weight.name!r} lies at {weight.offset}, beyond the {available} bytes of weights, or not at a"
            f" multiple of {ALIGNMENT}"
        )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(chunks: Sequence[Buffer]) -> Iterator[Buffer]:
    for chunk in chunks:
        size = memoryview(chunk).nbytes
        yield chunk
        yield bytes(_aligned(size) - size)


def _damaged(what: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"a blob of CpuBackend is damaged: {what}; copy or lower the program again")


def _foreign(magic: bytes) -> str:
    if magic[:7] == _MAGIC[:7]:
        return (
            f"a blob of CpuBackend has format {magic[7]}, this delegraph-cpu reads {BLOB_VERSION};"
            " lower the program again, or install the delegraph-cpu that wrote it"
        )
    return f"these bytes are no blob of CpuBackend: they begin with {magic!r}; lower the program again"
