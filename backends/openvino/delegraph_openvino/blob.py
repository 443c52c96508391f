"""A delegate's blob: header, OpenVINO IR, weights. Written by `aot`, read by `runtime`, with NumPy alone.

    header | xml | bin | weights        sections of a `delegraph.interfaces.BlobFormat`

The xml is OpenVINO's IR, version 11 (docs.openvino.ai, "OpenVINO IR format"), and the bin has its small constants. A
large weight is a Parameter in the xml; the header says where the weight lies, in this blob or, under a key, in the
program's named data, from where it is read in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any, Final

from delegraph.interfaces import BlobFormat, Buffer, PlacesInfo, Size, read_record, shared_data
from delegraph.lazy_dataclass import dataclass

__all__ = [
    "ALIGNMENT",
    "BACKEND_ID",
    "BLOB_VERSION",
    "CODES",
    "DTYPES",
    "ELEMENT_TYPES",
    "FORMAT",
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
BLOB_VERSION: Final = 3
FORMAT: Final = BlobFormat(BACKEND_ID, "delegraph-openvino", (BLOB_VERSION,))
ALIGNMENT: Final = FORMAT.alignment
damaged: Final = FORMAT.damaged

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

ELEMENT_TYPES: Final = {dtype: name for dtype, (name, _) in DTYPES.items()} | {CODES: "u4"}
"""OpenVINO's names of what constants are made of."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the graph. A dynamic dim is the text of its symbol; `scalar` marks a Python number.

    `used` is False for an argument that the graph does not read, and has no Parameter for. `places` are those of
    other tensors that an input holds.
    """

    dtype: str
    shape: tuple[Size | str, ...]
    scalar: bool = False
    used: bool = True
    places: tuple[PlacesInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight outside the IR: at `offset` among the blob's weights, or the named data under `key`."""

    dtype: str
    shape: tuple[Size, ...]
    offset: Size = 0
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
    """The bytes of `blob`; `chunks` are those of its weights that have no key, in order, for
    offsets see `BlobFormat.places`."""
    header = {
        "openvino": blob.openvino,
        "inputs": list(map(_told, blob.inputs)),
        "outputs": list(map(_told, blob.outputs)),
        "weights": blob.weights,
        "int8_products": blob.int8_products,
        "bfloat16": blob.bfloat16,
    }
    return FORMAT.pack(header, {"xml": blob.xml, "bin": blob.bin, "weights": chunks})


def _told(info: TensorInfo) -> dict[str, Any]:
    return {name: value for name, value in asdict(info).items() if value or name != "places"}


def unpack(processed: Buffer) -> Blob:
    """Read a blob. Raises `DelegateInvalidCompatibility` for one that is foreign, newer or damaged."""
    content = FORMAT.unpack(processed)
    xml, constants, data = content.read("xml"), content.read("bin"), content.view("weights")
    with FORMAT.reading():
        blob = read_record(Blob, content.header, xml=xml, bin=constants, data=data)
        own = dict.fromkeys((*blob.inputs, *blob.outputs), PAIRS) | dict.fromkeys(blob.weights, CODES)
        for record, further in own.items():
            if record.dtype not in (*DTYPES, further):
                raise TypeError(f"there is no dtype {record.dtype!r:.40}")
    for weight in blob.weights:
        if weight.key is None and (weight.offset % ALIGNMENT or weight.offset > len(data) - weight.nbytes):
            raise damaged(f"a weight of {weight.nbytes} bytes lies at {weight.offset} of {len(data)}")
    return blob


def weight_data(weight: Weight, blob: Blob, named_data: Mapping[str, Buffer]) -> memoryview:
    """The bytes of a weight, where they lie. Raises `DelegateInvalidCompatibility` if `named_data` lacks them."""
    if weight.key is None:
        return memoryview(blob.data)[weight.offset : weight.offset + weight.nbytes]
    return memoryview(shared_data(BACKEND_ID, named_data, weight.key, weight.nbytes)).cast("B")
