"""A delegate's blob: header, OpenVINO IR, weights. Written by `aot`, read by `runtime`, with NumPy alone.

    "DLGOPVN" + version byte | u32 header length | u32 CRC-32 of header, xml, bin | header (JSON) | xml | bin | weights

All integers are little endian; xml, bin and weights begin at multiples of 64 bytes from the blob's start. The xml is
OpenVINO's IR, version 11 (docs.openvino.ai, "OpenVINO IR format"), and the bin has its small constants. A large weight
is a Parameter in the xml; the header says where the weight lies, in this blob or, under a key, in the program's named
data, from where it is read in place. The weights are not summed: that would read them all at each load.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Final, TypeVar

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer, PlacesInfo, shared_data

__all__ = [
    "ALIGNMENT",
    "BACKEND_ID",
    "BLOB_VERSION",
    "CODES",
    "DTYPES",
    "INPUT",
    "PAIRS",
    "WEIGHT",
    "Blob",
    "TensorInfo",
    "Weight",
    "damaged",
    "pack",
    "unpack",
    "weight_data",
]

BACKEND_ID: Final = "OpenVinoIR"
BLOB_VERSION: Final = 2
ALIGNMENT: Final = 64

INPUT: Final = "input:"
WEIGHT: Final = "weight:"
"""How the names of the IR's Parameters begin; the index follows."""

DTYPES: Final[dict[str, tuple[str, int]]] = {
    "bool": ("boolean", 1),
    "uint8": ("u8", 1),
    "int8": ("i8", 1),
    "int16": ("i16", 2),
    "int32": ("i32", 4),
    "int64": ("i64", 8),
    "float16": ("f16", 2),
    "bfloat16": ("bf16", 2),
    "float32": ("f32", 4),
}
"""Our dtypes -> OpenVINO's names of them, and the size of an element."""

PAIRS: Final = "complex64"
"""The dtype of inputs and outputs that are pairs of float32 within the graph, along one more dim."""

CODES: Final = "uint4"
"""The dtype of weights of 4 bits, two to a byte, the lower half first: OpenVINO's u4."""

_MAGIC: Final = b"DLGOPVN"
_PREFIX: Final = struct.Struct("<8sII")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the graph. A dynamic dim is the text of its symbol; `scalar` marks a Python number.

    `used` is False for an argument that the graph does not read, and has no Parameter for. `places` are those of
    other tensors that an input holds.
    """

    dtype: str
    shape: tuple[int | str, ...]
    scalar: bool = False
    used: bool = True
    places: tuple[PlacesInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight outside the IR: at `offset` among the blob's weights, or the named data under `key`."""

    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    key: str | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return -(-prod(self.shape) // 2) if self.dtype == CODES else prod(self.shape) * DTYPES[self.dtype][1]


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob's content; `xml`, `bin` and `data`, where the weights are, are views when read.

    `openvino` is the version that wrote the IR. `int8_products`: values may be rounded to 8 bits, by groups of 32, that
    are multiplied with integer weights which are dequantized in the graph. `bfloat16`: what is multiplied is that in
    the program, and may be computed in it.
    """

    openvino: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[Weight, ...]
    xml: Buffer
    bin: Buffer
    data: Buffer = b""
    int8_products: bool = False
    bfloat16: bool = False


def pack(blob: Blob, chunks: Sequence[Buffer]) -> bytes:
    """The bytes of `blob`; `chunks` are those of its weights that have no key, in order, for offsets see `places`."""
    header = json.dumps(
        {
            "openvino": blob.openvino,
            "inputs": [_told(info) for info in blob.inputs],
            "outputs": [_told(info) for info in blob.outputs],
            "weights": [asdict(weight) for weight in blob.weights],
            "int8_products": blob.int8_products,
            "bfloat16": blob.bfloat16,
            "xml": len(blob.xml),
            "bin": len(blob.bin),
        }
    ).encode()
    summed = zlib.crc32(blob.bin, zlib.crc32(blob.xml, zlib.crc32(header)))
    prefix = _PREFIX.pack(_MAGIC + bytes([BLOB_VERSION]), len(header), summed)
    return b"".join(_padded(part) for part in (prefix + header, blob.xml, blob.bin, *chunks))


def _told(info: TensorInfo) -> dict[str, Any]:
    return {name: value for name, value in asdict(info).items() if value or name != "places"}


def places(sizes: Sequence[int]) -> list[int]:
    """The offsets of chunks of these sizes, each aligned."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end = _aligned(end + size)
    return offsets


def unpack(processed: Buffer) -> Blob:
    """Read a blob. Raises `DelegateInvalidCompatibility` for one that is foreign, newer or damaged."""
    view = memoryview(processed).cast("B")
    if len(view) < _PREFIX.size:
        raise damaged(f"it has {len(view)} bytes")
    magic, size, summed = _PREFIX.unpack_from(view)
    if magic != _MAGIC + bytes([BLOB_VERSION]):
        raise DelegateInvalidCompatibility(_foreign(magic))
    header = view[_PREFIX.size : _PREFIX.size + size]
    fields = _parsed(header)
    xml_start = _aligned(_PREFIX.size + size)
    bin_start = _aligned(xml_start + fields["xml"])
    xml, constants = view[xml_start : xml_start + fields["xml"]], view[bin_start : bin_start + fields["bin"]]
    if len(xml) != fields["xml"] or len(constants) != fields["bin"]:
        raise damaged("it is cut short")
    if zlib.crc32(constants, zlib.crc32(xml, zlib.crc32(header))) != summed:
        raise damaged("its checksum is wrong")
    data = view[_aligned(bin_start + fields["bin"]) :]
    blob = Blob(
        fields["openvino"], fields["inputs"], fields["outputs"], fields["weights"], xml, constants, data,
        int8_products=fields["int8_products"], bfloat16=fields["bfloat16"],
    )  # fmt: skip
    for weight in blob.weights:
        if weight.key is None and (weight.offset % ALIGNMENT or weight.offset > len(data) - weight.nbytes):
            raise damaged(f"a weight of {weight.nbytes} bytes lies at {weight.offset} of {len(data)}")
    return blob


def weight_data(weight: Weight, blob: Blob, named_data: Mapping[str, Buffer]) -> memoryview:
    """The bytes of a weight, where they lie. Raises `DelegateInvalidCompatibility` if `named_data` lacks them."""
    if weight.key is None:
        return memoryview(blob.data)[weight.offset : weight.offset + weight.nbytes]
    return memoryview(shared_data(BACKEND_ID, named_data, weight.key, weight.nbytes)).cast("B")


def damaged(what: str) -> DelegateInvalidCompatibility:
    """The error for a blob that cannot be what lowering wrote."""
    return DelegateInvalidCompatibility(f"a blob of {BACKEND_ID} is damaged: {what}; copy or lower the program again")


def _foreign(magic: bytes) -> str:
    if magic[:-1] == _MAGIC:
        return (
            f"a blob of {BACKEND_ID} has format {magic[-1]}, this delegraph-openvino reads {BLOB_VERSION};"
            " lower the program again, or install the delegraph-openvino that wrote it"
        )
    return f"these bytes are not a blob of {BACKEND_ID}: they begin with {magic!r}; lower the program again"


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(part: Buffer) -> bytes:
    return bytes(part) + bytes(_aligned(len(part)) - len(part))


# ---- the header, which a stranger may have written ------------------------------------------------------------------

_T = TypeVar("_T")


def _parsed(header: memoryview) -> dict[str, Any]:
    try:
        fields = {"int8_products": False, "bfloat16": False} | json.loads(bytes(header))
        return {key: read(fields[key]) for key, read in _FIELDS.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(f"its header cannot be read, {type(error).__name__}: {error!s:.80}") from error


def _list_of(read: Callable[[Mapping[str, Any]], _T]) -> Callable[[Any], tuple[_T, ...]]:
    def read_all(value: Any) -> tuple[_T, ...]:
        return tuple(read(entry) for entry in _typed(list, value))

    return read_all


def _tensor_info(entry: Mapping[str, Any]) -> TensorInfo:
    shape = tuple(dim if isinstance(dim, str) else _size(dim) for dim in _typed(list, entry["shape"]))
    places = _list_of(_places)(entry.get("places", []))
    dtype = PAIRS if entry["dtype"] == PAIRS else _dtype(entry["dtype"])
    return TensorInfo(dtype, shape, _typed(bool, entry["scalar"]), _typed(bool, entry["used"]), places)


def _places(entry: Mapping[str, Any]) -> PlacesInfo:
    first, last = (_typed(int, entry[end]) for end in ("first", "last"))
    from_end = _typed(bool, entry["from_end"])
    return PlacesInfo(
        _typed(str, entry["input"]), _typed(str, entry["tensor"]), _size(entry["size"]), first, last, from_end
    )


def _weight(entry: Mapping[str, Any]) -> Weight:
    key = entry["key"]
    shape = tuple(map(_size, _typed(list, entry["shape"])))
    dtype = CODES if entry["dtype"] == CODES else _dtype(entry["dtype"])
    return Weight(dtype, shape, _size(entry["offset"]), None if key is None else _typed(str, key))


def _typed(kind: type[_T], value: Any) -> _T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, not {value!r:.40}")
    return value


def _size(value: Any) -> int:
    if not 0 <= _typed(int, value) < 2**63:
        raise TypeError(f"expected a size, not {value!r:.40}")
    return int(value)


def _dtype(value: Any) -> str:
    if _typed(str, value) not in DTYPES:
        raise TypeError(f"there is no dtype {value!r:.40}")
    return str(value)


_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "openvino": lambda value: _typed(str, value),
    "inputs": _list_of(_tensor_info),
    "outputs": _list_of(_tensor_info),
    "weights": _list_of(_weight),
    "int8_products": lambda value: _typed(bool, value),
    "bfloat16": lambda value: _typed(bool, value),
    "xml": _size,
    "bin": _size,
}
