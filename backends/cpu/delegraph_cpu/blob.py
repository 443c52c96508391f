"""A delegate's blob: header, ONNX graph, weights. Written by `aot`, read by `runtime`, with NumPy alone.

    header | graph | weights        sections of a `delegraph.interfaces.BlobFormat`

The graph is an ONNX ModelProto without its large weights: the header says for each of them where it lies here, or under
which key it lies in the program's named data.

Version 2 has the states: buffers that the graph changes, each an input and an output of it. Version 3 has weights that
are unpacked when it is loaded: the graph's are made of those that lie here. Version 4 has sections; the versions before
it are read, too:

    "DLGRCPU", u8 version | u32 header length | u32 CRC-32 of header and graph | header, JSON | graph | weights
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delegraph.interfaces import BlobFormat, BlobTensor, Buffer, PlacesInfo, Size, read_record, shared_data
from delegraph.lazy_dataclass import dataclass, fields, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ALIGNMENT",
    "BACKEND_ID",
    "BLOB_VERSION",
    "FORMAT",
    "READABLE_VERSIONS",
    "SUBMIT",
    "Blob",
    "StateInfo",
    "UnpackedWeight",
    "Weight",
    "bytes_of",
    "damaged",
    "pack",
    "unpack",
    "unpack_as",
]

BACKEND_ID: Final = "CpuBackend"
READABLE_VERSIONS: Final = (1, 2, 3, 4)
FORMAT: Final = BlobFormat(BACKEND_ID, "delegraph-cpu", READABLE_VERSIONS)
BLOB_VERSION: Final = FORMAT.version

SUBMIT: Final = "submit"
"""The compile spec of delegates that are submitted, to run beside other ones."""

ALIGNMENT: Final = FORMAT.alignment
damaged: Final = FORMAT.damaged

ITEM_SIZES: Final[dict[str, int]] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight outside the graph: `nbytes` at `offset` in the blob, or the named data under `key`."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    nbytes: Size
    offset: Size = 0
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
        """The names of the weights that it is made of."""
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
    shape: tuple[Size, ...]
    in_place: bool
    initial: Size | None = None

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
    inputs: tuple[BlobTensor, ...]
    outputs: tuple[BlobTensor, ...]
    weights: tuple[Weight, ...]
    graph: Buffer
    data: Buffer = b""
    states: tuple[StateInfo, ...] = ()
    multiply_adds: Size | None = None
    unpacked: tuple[UnpackedWeight, ...] = ()
    places: tuple[PlacesInfo, ...] = ()

    def bytes_of(self, weight: Weight, named_data: Mapping[str, Buffer]) -> memoryview:
        """The bytes of a weight, where they lie. Raises `DelegateInvalidCompatibility` if `named_data` lacks them."""
        if weight.key is None:
            return memoryview(self.data)[weight.offset : weight.offset + weight.nbytes]
        return memoryview(shared_data(BACKEND_ID, named_data, weight.key, weight.nbytes))


_B = TypeVar("_B", bound=Blob)


def pack(blob: Blob, chunks: Sequence[Buffer | Callable[[], Buffer]], form: BlobFormat = FORMAT) -> bytes:
    """The bytes of `blob`; `chunks` are the bytes of its weights that have no key, then of its states that begin with
    something else than zeros, in order; a function makes them when they are written. `form` is the format of another
    backend that has such blobs.

    The offsets of both are set here, whatever they were.
    """
    kept = [weight for weight in blob.weights if weight.key is None]
    begun = [state for state in blob.states if state.initial is not None]
    offsets = form.places([*(weight.nbytes for weight in kept), *(state.nbytes for state in begun)])
    weights = [weight if weight.key is not None else replace(weight, offset=next(offsets)) for weight in blob.weights]
    states = [state if state.initial is None else replace(state, initial=next(offsets)) for state in blob.states]
    blob = replace(blob, weights=tuple(weights), states=tuple(states))
    header = {field.name: getattr(blob, field.name) for field in fields(blob) if field.name not in ("graph", "data")}
    return form.pack(header, {"graph": blob.graph, "weights": chunks})


def unpack(processed: Buffer) -> Blob:
    """The content of a blob, as views into it. Raises `DelegateInvalidCompatibility` if it is damaged or foreign."""
    return _blob_of(Blob, *_content(memoryview(processed).cast("B")), FORMAT)


def unpack_as(record: type[_B], processed: Buffer, form: BlobFormat) -> _B:
    """As `unpack`, a blob of another backend's format, whose header is a `record`."""
    content = form.unpack(processed)
    return _blob_of(record, content.header, content.read("graph"), content.view("weights"), form)


def _blob_of(record: type[_B], header: object, graph: memoryview, data: memoryview, form: BlobFormat) -> _B:
    """The blob that a header describes, checked."""
    with form.reading():
        blob = read_record(record, header, graph=graph, data=data)
        for info in (*blob.inputs, *blob.outputs):
            if info.dtype not in ("", *ITEM_SIZES):
                raise ValueError(f"{info!r:.80} describes neither a tensor nor a number")
        for shape in (*(weight.shape for weight in blob.weights), *(state.shape for state in blob.states)):
            _check_shape(shape)
    for weight in blob.weights:
        _check_weight(weight, len(blob.data), form)
    for state in blob.states:
        if state.dtype not in ITEM_SIZES:
            raise form.damaged(f"state {state.buffer!r:.80} has no dtype: {state.dtype!r:.40}")
        if state.initial is not None:
            _check_place(f"state {state.buffer!r:.80}", state.initial, state.nbytes, len(blob.data), form)
    _check_names(blob, form)
    return blob


_BEFORE_SECTIONS: Final = (b"DLGRCPU\1", b"DLGRCPU\2", b"DLGRCPU\3")


def _content(view: memoryview) -> tuple[Any, memoryview, memoryview]:
    """The header, the graph and the weights, of whichever version."""
    if bytes(view[:8]) not in _BEFORE_SECTIONS:
        content = FORMAT.unpack(view)
        return content.header, content.read("graph"), content.view("weights")
    size, summed = (int.from_bytes(view[at : at + 4], "little") for at in (8, 12))
    text, start = view[16 : 16 + size], FORMAT.aligned(16 + size)
    with FORMAT.reading():
        header = json.loads(bytes(text))
        end = start + header["graph"]
        graph = view[start:end]
    if zlib.crc32(graph, zlib.crc32(text)) != summed:
        raise damaged("its checksum is wrong")
    return header, graph, view[FORMAT.aligned(end) :]


def _check_shape(shape: tuple[int, ...]) -> None:
    """Raise unless NumPy can make an array of it, also where a size is 0."""
    if len(shape) > _MOST_DIMS or prod(size for size in shape if size) * max(ITEM_SIZES.values()) >= 2**63:
        raise ValueError(f"no array has the shape {shape!r:.80}")


_MOST_DIMS: Final = 32
"""NumPy's limit before 2.0."""


def _check_names(blob: Blob, form: BlobFormat) -> None:
    """Each output is computed once, into memory of its own: onnxruntime does not write one that is an input."""
    outputs = [info.name for info in blob.outputs] + [state.output for state in blob.states]
    inputs = {info.name for info in blob.inputs if info.dtype}.union(state.name for state in blob.states)
    if len(set(outputs)) < len(outputs) or not inputs.isdisjoint(outputs):
        raise form.damaged("an output is listed twice, or is an input")
    if len({state.buffer for state in blob.states}) < len(blob.states):
        raise form.damaged("a state is listed twice")
    names = [*(weight.name for weight in blob.weights), *(weight.name for weight in blob.unpacked)]
    if len(set(names)) < len(names):
        raise form.damaged("a weight is listed twice")


def _check_weight(weight: Weight, available: int, form: BlobFormat) -> None:
    item_size = ITEM_SIZES.get(weight.dtype)
    if item_size is None or prod(weight.shape) * item_size != weight.nbytes:
        raise form.damaged(f"weight {weight.name!r}: {weight.dtype} {weight.shape} is not {weight.nbytes} bytes")
    if weight.key is None:
        _check_place(f"weight {weight.name!r}", weight.offset, weight.nbytes, available, form)


def _check_place(what: str, offset: int, nbytes: int, available: int, form: BlobFormat) -> None:
    if offset > available - nbytes or offset % ALIGNMENT:
        raise form.damaged(
            f"{what} lies at {offset}, beyond the {available} bytes of weights, or not at a multiple of {ALIGNMENT}"
        )


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The bytes of `array`, without a copy if it is contiguous."""
    return memoryview(array.reshape(-1).view("uint8").data)
