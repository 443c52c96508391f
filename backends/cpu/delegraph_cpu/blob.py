"""A delegate's blob: header, ONNX graph, weights. Written by `aot`, read by `runtime`, with NumPy alone.

    "DLGRCPU" + version byte | u32 header length | u32 CRC-32 of header and graph | header (JSON) | graph | weights

All integers are little endian. Graph and weights begin at multiples of 64 bytes from the blob's start. The graph
is an ONNX ModelProto without its large weights: the header says for each of them where it lies here, or under which
key it lies in the program's named data. The weights are not summed: that would read them all at each load.

Version 2 has the states: buffers that the graph changes, each an input and an output of it. Version 3 has weights that
are unpacked when it is loaded: the graph's are made of those that lie here.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer, PlacesInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ALIGNMENT",
    "BACKEND_ID",
    "BLOB_VERSION",
    "READABLE_VERSIONS",
    "Blob",
    "StateInfo",
    "TensorInfo",
    "UnpackedWeight",
    "Weight",
    "bytes_of",
    "damaged",
    "pack",
    "unpack",
]

BACKEND_ID: Final = "CpuBackend"
BLOB_VERSION: Final = 3
READABLE_VERSIONS: Final = (1, 2, 3)
ALIGNMENT: Final = 64

_MAGIC: Final = b"DLGRCPU"
_PREFIX: Final = struct.Struct("<8sII")

ITEM_SIZES: Final[dict[str, int]] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the graph. A dynamic dim is the text of its symbol; `scalar` marks a number,
    or an argument that the graph does not take."""

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
class UnpackedWeight:
    """A weight of the graph, int8, that is made of others which are not the graph's, by their names: see `codes.py`."""

    name: str
    packed: str
    scale: str
    row_scale: str
    zero_point: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """What it is made of."""
        every = (self.packed, self.scale, self.row_scale, self.zero_point)
        return tuple(name for name in every if name is not None)


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A mutable buffer, by its name in the model: the graph's input `name`, and its new value, the output `output`.

    At first it holds what lies at the offset `initial`; None: zeros. With `in_place` both are bound to its memory:
    the operator that writes the output is the only one that reads the input, and changes it where it lies.
    """

    buffer: str
    name: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    in_place: bool
    initial: int | None = None

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return prod(self.shape) * ITEM_SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob's content. `graph` and `data` (what offsets of weights and states count from) are views when read.

    `multiply_adds` is about what a run computes; None: not known. `unpacked` are made of `weights`. `places` are what
    inputs are, as far as that is known.
    """

    onnxruntime: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[Weight, ...]
    graph: Buffer
    data: Buffer = b""
    states: tuple[StateInfo, ...] = ()
    multiply_adds: int | None = None
    unpacked: tuple[UnpackedWeight, ...] = ()
    places: tuple[PlacesInfo, ...] = ()


def pack(blob: Blob, chunks: Sequence[Buffer]) -> bytes:
    """The bytes of `blob`; `chunks` are the bytes of its weights that have no key, then of its states that begin with
    something else than zeros, in order.

    The offsets of both are set here, whatever they were.
    """
    weights, states, offset = [], [], 0
    for weight in blob.weights:
        if weight.key is None:
            weight = replace(weight, offset=offset)
            offset = _aligned(offset + weight.nbytes)
        weights.append(asdict(weight))
    for state in blob.states:
        if state.initial is not None:
            state = replace(state, initial=offset)
            offset = _aligned(offset + state.nbytes)
        states.append(asdict(state))
    header = json.dumps(
        {
            "onnxruntime": blob.onnxruntime,
            "inputs": [asdict(info) for info in blob.inputs],
            "outputs": [asdict(info) for info in blob.outputs],
            "weights": weights,
            "states": states,
            "graph": len(blob.graph),
            "multiply_adds": blob.multiply_adds,
            "unpacked": [asdict(weight) for weight in blob.unpacked],
            "places": [asdict(places) for places in blob.places],
        }
    ).encode()
    crc = zlib.crc32(blob.graph, zlib.crc32(header))
    return b"".join(
        _padded([_PREFIX.pack(_MAGIC + bytes([BLOB_VERSION]), len(header), crc) + header, blob.graph, *chunks])
    )


def unpack(processed: Buffer) -> Blob:
    """The content of a blob, as views into it. Raises `DelegateInvalidCompatibility` if it is damaged or foreign."""
    view = memoryview(processed).cast("B")
    if len(view) < _PREFIX.size:
        raise damaged(f"it has {len(view)} bytes, fewer than its prefix")
    magic, header_size, crc = _PREFIX.unpack_from(view)
    version = magic[-1]
    if magic[:-1] != _MAGIC or version not in READABLE_VERSIONS:
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
            tuple(_state(entry) for entry in fields["states"]) if version > 1 else (),
            _size_or_none(fields.get("multiply_adds")),  # blobs of earlier versions of this package have none
            tuple(_unpacked(entry) for entry in fields["unpacked"]) if version > 2 else (),
            tuple(_places(entry) for entry in fields.get("places", ())),  # nor these
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise damaged(f"its header cannot be read ({type(error).__name__}: {error!s:.200})") from error
    if len(graph) != graph_size or zlib.crc32(graph, zlib.crc32(header)) != crc:
        raise damaged("its header and graph do not have the checksum that it states")
    for weight in blob.weights:
        _check_weight(weight, len(blob.data))
    for state in blob.states:
        _check_state(state, len(blob.data))
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
        _sizes(entry["shape"]),
        _size(entry["nbytes"]),
        _size(entry["offset"]),
        None if key is None else _text(key),
    )


def _unpacked(entry: dict[str, Any]) -> UnpackedWeight:
    zero_point = entry["zero_point"]
    name, packed, scale, row_scale = (_text(entry[field]) for field in ("name", "packed", "scale", "row_scale"))
    return UnpackedWeight(name, packed, scale, row_scale, None if zero_point is None else _text(zero_point))


def _state(entry: dict[str, Any]) -> StateInfo:
    initial = entry["initial"]
    return StateInfo(
        _text(entry["buffer"]),
        _text(entry["name"]),
        _text(entry["output"]),
        _text(entry["dtype"]),
        _sizes(entry["shape"]),
        _flag(entry["in_place"]),
        _size_or_none(initial),
    )


def _places(entry: dict[str, Any]) -> PlacesInfo:
    first, last = (_integer(entry[field]) for field in ("first", "last"))
    tensor = _text(entry["tensor"])
    return PlacesInfo(_text(entry["input"]), tensor, _size(entry["size"]), first, last, _flag(entry["from_end"]))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, not {value!r:.40}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {value!r:.40}")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"expected a size, not {value!r:.40}")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) >= 2**63:
        raise TypeError(f"expected an integer, not {value!r:.40}")
    return value


def _sizes(value: Any) -> tuple[int, ...]:
    """Those of an array that NumPy can make, also where one is 0."""
    shape = tuple(map(_size, value))
    if len(shape) > _MOST_DIMS or prod(size for size in shape if size) * max(ITEM_SIZES.values()) >= 2**63:
        raise ValueError(f"no array has the shape {value!r:.80}")
    return shape


_MOST_DIMS: Final = 32
"""NumPy's limit before 2.0."""


def _size_or_none(value: Any) -> int | None:
    return None if value is None else _size(value)


def _check_names(blob: Blob) -> None:
    """Each output is computed once, into memory of its own: onnxruntime does not write one that is an input."""
    outputs = [info.name for info in blob.outputs] + [state.output for state in blob.states]
    inputs = {info.name for info in blob.inputs if info.dtype}.union(state.name for state in blob.states)
    if len(set(outputs)) < len(outputs) or not inputs.isdisjoint(outputs):
        raise damaged("an output is listed twice, or is an input")
    if len({state.buffer for state in blob.states}) < len(blob.states):
        raise damaged("a state is listed twice")
    names = [*(weight.name for weight in blob.weights), *(weight.name for weight in blob.unpacked)]
    if len(set(names)) < len(names):
        raise damaged("a weight is listed twice")


def _check_weight(weight: Weight, available: int) -> None:
    item_size = ITEM_SIZES.get(weight.dtype)
    if item_size is None or prod(weight.shape) * item_size != weight.nbytes:
        raise damaged(f"weight {weight.name!r}: {weight.dtype} {weight.shape} is not {weight.nbytes} bytes")
    if weight.key is None:
        _check_place(f"weight {weight.name!r}", weight.offset, weight.nbytes, available)


def _check_state(state: StateInfo, available: int) -> None:
    if state.dtype not in ITEM_SIZES:
        raise damaged(f"state {state.buffer!r:.80} has no dtype: {state.dtype!r:.40}")
    if state.initial is not None:
        _check_place(f"state {state.buffer!r:.80}", state.initial, state.nbytes, available)


def _check_place(what: str, offset: int, nbytes: int, available: int) -> None:
    if offset > available - nbytes or offset % ALIGNMENT:
        raise damaged(
            f"{what} lies at {offset}, beyond the {available} bytes of weights, or not at a multiple of {ALIGNMENT}"
        )


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The bytes of `array`, without a copy if it is contiguous."""
    return memoryview(array.reshape(-1).view("uint8").data)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(chunks: Sequence[Buffer]) -> Iterator[Buffer]:
    for chunk in chunks:
        size = memoryview(chunk).nbytes
        yield chunk
        yield bytes(_aligned(size) - size)


def damaged(what: str) -> DelegateInvalidCompatibility:
    """What to raise for a blob of which `what` is to be said."""
    return DelegateInvalidCompatibility(f"a blob of CpuBackend is damaged: {what}; copy or lower the program again")


_READABLE: Final = " and ".join(map(str, READABLE_VERSIONS))


def _foreign(magic: bytes) -> str:
    if magic[:-1] == _MAGIC:
        return (
            f"a blob of CpuBackend has format {magic[-1]}, this delegraph-cpu reads {_READABLE};"
            " lower the program again, or install the delegraph-cpu that wrote it"
        )
    return f"these bytes are no blob of CpuBackend: they begin with {magic!r}; lower the program again"
