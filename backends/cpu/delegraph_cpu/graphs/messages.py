"""The messages of an ONNX model, and those of their fields that lowering writes (`onnx.proto` of ONNX 1.23).

There are no others in a graph that a blob holds: no functions, no training, no sparse tensors, no strings as data.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypeAlias

from delegraph.lazy_dataclass import dataclass

__all__ = ["MESSAGES", "Content", "Field", "Message"]

Message: TypeAlias = "dict[str, Any]"
"""The content of a message, by the names of its fields: an int, text, bytes, a message; of a repeated one a list."""


class Content(Enum):
    """The kind of a field, and so how it is encoded (protobuf.dev/programming-guides/encoding)."""

    INTEGER = 0
    """64 bits with a sign."""
    COUNT = 1
    """An integer from 0 to 2^31 - 1: enumerations, too."""
    FLOAT = 2
    """float32, kept as its four bytes."""
    TEXT = 3
    BYTES = 4
    MESSAGE = 5


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its number, name and content. `message` is the kind of a message."""

    number: int
    name: str
    content: Content
    repeated: bool = False
    message: str = ""


def _several(number: int, name: str, content: Content) -> Field:
    return Field(number, name, content, repeated=True)


def _message(number: int, name: str, message: str) -> Field:
    return Field(number, name, Content.MESSAGE, message=message)


def _messages(number: int, name: str, message: str) -> Field:
    return Field(number, name, Content.MESSAGE, repeated=True, message=message)


INTEGER, COUNT, FLOAT, TEXT, BYTES = Content.INTEGER, Content.COUNT, Content.FLOAT, Content.TEXT, Content.BYTES

MESSAGES: Final[dict[str, tuple[Field, ...]]] = {
    "ModelProto": (
        Field(1, "ir_version", COUNT),
        Field(2, "producer_name", TEXT),
        Field(3, "producer_version", TEXT),
        _message(7, "graph", "GraphProto"),
        _messages(8, "opset_import", "OperatorSetIdProto"),
    ),
    "OperatorSetIdProto": (Field(1, "domain", TEXT), Field(2, "version", COUNT)),
    "GraphProto": (
        _messages(1, "node", "NodeProto"),
        Field(2, "name", TEXT),
        _messages(5, "initializer", "TensorProto"),
        Field(10, "doc_string", TEXT),
        _messages(11, "input", "ValueInfoProto"),
        _messages(12, "output", "ValueInfoProto"),
        _messages(13, "value_info", "ValueInfoProto"),
    ),
    "NodeProto": (
        _several(1, "input", TEXT),
        _several(2, "output", TEXT),
        Field(3, "name", TEXT),
        Field(4, "op_type", TEXT),
        _messages(5, "attribute", "AttributeProto"),
        Field(6, "doc_string", TEXT),
        Field(7, "domain", TEXT),
    ),
    "AttributeProto": (
        Field(1, "name", TEXT),
        Field(2, "f", FLOAT),
        Field(3, "i", INTEGER),
        Field(4, "s", TEXT),
        _message(5, "t", "TensorProto"),
        _message(6, "g", "GraphProto"),
        _several(7, "floats", FLOAT),
        _several(8, "ints", INTEGER),
        _several(9, "strings", TEXT),
        Field(20, "type", COUNT),
    ),
    "TensorProto": (
        _several(1, "dims", INTEGER),
        Field(2, "data_type", COUNT),
        Field(8, "name", TEXT),
        Field(9, "raw_data", BYTES),
        Field(12, "doc_string", TEXT),
        _messages(13, "external_data", "StringStringEntryProto"),
        Field(14, "data_location", COUNT),
    ),
    "StringStringEntryProto": (Field(1, "key", TEXT), Field(2, "value", TEXT)),
    "ValueInfoProto": (Field(1, "name", TEXT), _message(2, "type", "TypeProto")),
    "TypeProto": (_message(1, "tensor_type", "TypeProto.Tensor"),),
    "TypeProto.Tensor": (Field(1, "elem_type", COUNT), _message(2, "shape", "TensorShapeProto")),
    "TensorShapeProto": (_messages(1, "dim", "TensorShapeProto.Dimension"),),
    "TensorShapeProto.Dimension": (Field(1, "dim_value", INTEGER), Field(2, "dim_param", TEXT)),
}
"""The kinds of messages -> their fields, in the order in which they are written: that of their numbers."""
