"""The bytes of an ONNX graph -> the tensors that it keeps in files, found before anybody opens one.

An ONNX tensor may say that its data lies in a file, or, to onnxruntime, at an address in memory. A blob is a stranger's
file: its graph may leave out only the weights that the blob itself has. This reads the protobuf's fields as they lie
there (protobuf.dev/programming-guides/encoding), by the numbers of `onnx.proto3`, without parsing their meaning: the
`onnx` package is not needed at run time, and a tensor that is hidden in an attribute or a subgraph is found as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer

__all__ = [
    "ELEMENT_TYPES",
    "ExternalTensor",
    "Field",
    "encoded",
    "external_tensor",
    "external_tensors",
    "fields",
    "refuse_files",
]

ELEMENT_TYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
    16: "bfloat16",
}  # fmt: skip
"""The numbers of `TensorProto.DataType` in `onnx.proto3`."""

_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR, _SPARSE, _FUNCTION, _TRAINING, _MAIN_GRAPH, _INITIALIZER = range(10)

_INSIDE: Final[dict[int, dict[int, int]]] = {
    _MODEL: {7: _MAIN_GRAPH, 20: _TRAINING, 25: _FUNCTION},
    _MAIN_GRAPH: {1: _NODE, 5: _INITIALIZER, 15: _SPARSE},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _TRAINING: {1: _GRAPH, 2: _GRAPH},
}
"""The messages in which a tensor can lie: the kind of message -> the numbers of fields that hold other messages."""

_NODE_OP_TYPE: Final = 4
_TENSOR_DIMS, _TENSOR_DATA_TYPE, _TENSOR_NAME, _TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 1, 2, 8, 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_CONTEXT_OF_AN_ENGINE: Final = b"EPContext"
"""An operator of onnxruntime whose attribute names a file."""

Field: TypeAlias = "tuple[int, memoryview | int | None]"
"""A field's number, and its bytes if it has a length (a string or a message), or its value if it is an integer."""


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """An initializer whose data lies elsewhere: `nbytes` at `offset`. `element_type` is a number of `onnx.proto3`."""

    name: str
    element_type: int
    dims: tuple[int, ...]
    offset: int
    nbytes: int


def refuse_files(graph: Buffer, weights: Collection[str]) -> None:
    """Raise `DelegateInvalidCompatibility` unless all external tensors of `graph` are initializers named in `weights`.

    Each weight can be left out once. Bytes that are not a protobuf are refused as well.
    """
    view = memoryview(graph).cast("B")
    left = {name.encode(): name for name in weights}
    messages = [(_MODEL, view)]
    while messages:
        kind, message = messages.pop()
        if kind in (_TENSOR, _INITIALIZER):
            _check_tensor(message, left if kind == _INITIALIZER else {})
            continue
        inside = _INSIDE[kind]
        for number, content in fields(message):
            if not isinstance(content, memoryview):
                continue
            if number in inside:
                messages.append((inside[number], content))
            elif kind == _NODE and number == _NODE_OP_TYPE and bytes(content) == _CONTEXT_OF_AN_ENGINE:
                raise _refusal("an EPContext node, which names a file")


def _check_tensor(message: memoryview, left: dict[bytes, str]) -> None:
    """Raise unless the tensor's data lies in it, or it is one of the weights `left`, from which it is removed."""
    name, external = b"", False
    for number, content in fields(message):
        if number == _TENSOR_NAME and isinstance(content, memoryview):
            name = bytes(content)  # protobuf: the last of repeated fields counts
        external |= number in (_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION)
    if external and left.pop(name, None) is None:
        raise _refusal(f"tensor {name.decode(errors='replace')!r:.80} refers to a file, and is not one of its weights")


def external_tensors(graph: Buffer) -> list[ExternalTensor]:
    """The initializers of a model whose data lies elsewhere. Raises as `refuse_files`, and `ValueError`."""
    tensors: list[ExternalTensor] = []
    for number, main in fields(memoryview(graph).cast("B")):
        if isinstance(main, memoryview) and _INSIDE[_MODEL].get(number) == _MAIN_GRAPH:
            for inner, tensor in fields(main):
                if isinstance(tensor, memoryview) and _INSIDE[_MAIN_GRAPH].get(inner) == _INITIALIZER:
                    external = external_tensor(tensor)
                    tensors += [] if external is None else [external]
    return tensors


def external_tensor(tensor: memoryview) -> ExternalTensor | None:
    """The place of an initializer's data elsewhere; None: the data lies in it. Raises as `external_tensors`."""
    name, element_type, dims = "", 0, list[int]()
    place: dict[bytes, bytes] = {}
    for number, content in fields(tensor):
        if isinstance(content, int):
            if number == _TENSOR_DIMS:
                dims.append(content)
            elif number == _TENSOR_DATA_TYPE:
                element_type = content
        elif content is not None:
            if number == _TENSOR_NAME:
                name = bytes(content).decode()
            elif number == _TENSOR_DIMS:
                dims += _packed(content)
            elif number == _TENSOR_EXTERNAL_DATA:
                entry = {key: bytes(text) for key, text in fields(content) if isinstance(text, memoryview)}
                place[entry.get(_ENTRY_KEY, b"")] = entry.get(_ENTRY_VALUE, b"")
    if not place:
        return None
    nbytes = int(place.get(b"length", b""))
    return ExternalTensor(name, element_type, tuple(dims), int(place.get(b"offset", b"0")), nbytes)


def _packed(content: memoryview) -> Iterator[int]:
    at = 0
    while at < len(content):
        value, at = _varint(content, at)
        yield value


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a message, in order. Raises if the bytes are not those of one."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        content: memoryview | int | None = None
        if wire_type == _VARINT:
            content, at = _varint(message, at)
        elif wire_type in _FIXED:
            at += _FIXED[wire_type]
        elif wire_type == _LENGTH:
            size, at = _varint(message, at)
            content, at = message[at : at + size], at + size
        else:
            raise _refusal(f"its graph is not a protobuf: a field has wire type {wire_type}")
        if at > end or number == 0:
            raise _refusal("its graph is not a protobuf: a field reaches beyond its end")
        yield number, content


def encoded(number: int, content: int | Sequence[Buffer]) -> list[Buffer]:
    """The pieces of a field whose content is an integer, or bytes or a message, in pieces that are not copied."""
    if isinstance(content, int):
        return [_encoded_varint(number << 3 | _VARINT) + _encoded_varint(content)]
    size = sum(memoryview(piece).nbytes for piece in content)
    return [_encoded_varint(number << 3 | _LENGTH) + _encoded_varint(size), *content]


_VARINT, _LENGTH = 0, 2
_FIXED: Final = {1: 8, 5: 4}
_LONGEST_VARINT: Final = 10


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, as the 64 bits that a parser keeps, and the position behind it."""
    value = 0
    for position, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + position + 1
    raise _refusal("its graph is not a protobuf: a number has no end")


def _encoded_varint(value: int) -> bytes:
    groups = [value >> 7 * position & 0x7F for position in range(max(1, -(-value.bit_length() // 7)))]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def _refusal(why: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"a blob of CpuBackend is refused: {why}; lower the program again")
