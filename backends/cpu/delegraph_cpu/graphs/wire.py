"""The bytes of an ONNX model <-> its messages: strictly in, and canonical out.

    bytes ── decoded ──> messages ── encoded ──> bytes that no parser reads in another way

A protobuf can be written in many ways, and parsers differ in what they make of the odd ones: a key beyond 32 bits, a
field twice, a number with zeros behind it (protobuf.dev/programming-guides/encoding). Here each message has one form:
known fields, in the order of their numbers, once unless they are repeated, and numbers of as many bytes as they need.
Whatever else is refused, so that `encoded` gives back the bytes that `decoded` took.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer
from delegraph_cpu.graphs.messages import MESSAGES, Content, Field, Message

__all__ = ["decoded", "encoded", "refused"]

_INTEGER, _COUNT, _FLOAT, _TEXT, _BYTES, _MESSAGE = Content
_NUMBERS: Final = (_INTEGER, _COUNT)
_VARINT, _LENGTH, _FOUR_BYTES = 0, 2, 5
_WIRE_TYPES: Final = {Content.INTEGER: _VARINT, Content.COUNT: _VARINT, Content.FLOAT: _FOUR_BYTES}
_DEEPEST: Final = 100
"""Messages in messages: the limit of protobuf's own parsers."""

Readers: TypeAlias = "dict[int, tuple[str, Content, bool, str]]"
"""A field's key, as the bytes are read -> its name, its content, whether it is repeated, the kind of its message."""


Seen: TypeAlias = "dict[tuple[str, bytes], Message]"
"""The small messages so far, by their kind and bytes."""
_FEW_BYTES: Final = 64


def refused(why: str) -> DelegateInvalidCompatibility:
    """The error for a graph that lowering does not write."""
    return DelegateInvalidCompatibility(f"a blob with an ONNX graph is refused: {why}; lower the program again")


def _no_protobuf(why: str) -> DelegateInvalidCompatibility:
    return refused(f"its graph is not a protobuf that lowering writes: {why}")


# ---- in -------------------------------------------------------------------------------------------------------------


def decoded(graph: Buffer, kind: str = "ModelProto") -> Message:
    """The message of `kind` in `graph`. Small messages of the same bytes are one object: change none in place.

    Raises `DelegateInvalidCompatibility` for bytes of another form.
    """
    data = bytes(graph)
    try:
        return _message(data, 0, len(data), kind, _DEEPEST, {})
    except IndexError:
        raise _no_protobuf("it is cut short") from None
    except UnicodeDecodeError as error:
        raise _no_protobuf(f"a text is not UTF-8: {error.reason}") from None


@cache
def _readers(kind: str) -> Readers:
    return {_key(field): (field.name, field.content, field.repeated, field.message) for field in MESSAGES[kind]}


def _key(field: Field) -> int:
    return field.number << 3 | _WIRE_TYPES.get(field.content, _LENGTH)


def _message(data: bytes, at: int, end: int, kind: str, depth: int, seen: Seen) -> Message:
    """The message that lies from `at` to `end`; `depth` is how deep it may nest."""
    fields, before = _readers(kind), 0
    message: Message = {}
    while at < end:
        key = data[at]
        at += 1
        if key > 0x7F:
            key, at = _varint(data, at - 1)
        field = fields.get(key)
        if field is None or key < before:
            raise _no_protobuf(f"a {kind} has a field {key >> 3} of wire type {key & 7} {_why(key, fields)}")
        name, content, repeated, inner = field
        size = 4
        if content is not _FLOAT:  # a size, or the number itself
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _varint(data, at - 1)
        behind = at if content is _INTEGER or content is _COUNT else at + size
        if behind > end:
            raise _no_protobuf(f"a {kind} has a field that reaches beyond its end")
        value: Any
        if content is _TEXT:
            value = data[at:behind].decode()
        elif content is _MESSAGE:
            value = _inner(data, at, behind, inner, depth - 1, seen)
        elif behind > at:
            value = data[at:behind]
        else:
            value = _number(size, content) if content in _NUMBERS else b""
        at = behind
        if not repeated:
            if key == before:
                raise _no_protobuf(f"a {kind} has its {name} twice")
            message[name] = value
        elif key == before:
            message[name].append(value)
        else:
            message[name] = [value]
        before = key
    return message


def _inner(data: bytes, at: int, end: int, kind: str, depth: int, seen: Seen) -> Message:
    """A message in another: the same object for the same bytes, if they are few: attributes and types recur."""
    if not depth:
        raise _no_protobuf("its messages nest too deep")
    if end - at > _FEW_BYTES:
        return _message(data, at, end, kind, depth, seen)
    key = kind, data[at:end]
    message = seen.get(key)
    if message is None:
        message = seen[key] = _message(data, at, end, kind, depth, seen)
    return message


def _why(key: int, fields: Readers) -> str:
    return "behind one with a higher number" if key in fields else "that is not known"


def _number(value: int, content: Content) -> int:
    if content is _COUNT and value >= 2**31:
        raise _no_protobuf(f"a number {value} is beyond 31 bits")
    return value - (value >> 63 << 64)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, of 64 bits without a sign, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64 or (shift and not byte):
                break
            return value, at
    raise _no_protobuf("a number has more bytes than it needs, or than 64 bits take")


# ---- out ------------------------------------------------------------------------------------------------------------

Writers: TypeAlias = "dict[str, tuple[bytes, Content, bool, str]]"
"""A field's name -> its key in bytes, its content, whether it is repeated, the kind of its message."""

Written: TypeAlias = "dict[tuple[int, bytes], bytes]"
"""The small messages so far, by their identity and key -> the fields that they are in their message."""


def encoded(message: Message, kind: str = "ModelProto") -> list[Buffer]:
    """The bytes of a message of `kind`, whose fields are in the order of their numbers, in pieces: what is no `bytes`
    among its contents is not copied."""
    pieces: list[Buffer] = []
    _write(pieces, message, kind, {})
    return pieces


@cache
def _writers(kind: str) -> Writers:
    return {f.name: (_encoded_varint(_key(f)), f.content, f.repeated, f.message) for f in MESSAGES[kind]}


def _write(pieces: list[Buffer], message: Message, kind: str, written: Written) -> int:
    """Add the pieces of a message; returns how many bytes they have."""
    writers, total = _writers(kind), 0
    for name, value in message.items():
        key, content, repeated, inner = writers[name]
        for each in value if repeated else (value,):
            if content is _MESSAGE:
                total += _write_inner(pieces, each, key, inner, written)
                continue
            if content is _TEXT:
                text = each.encode()
                field = key + _encoded_varint(len(text)) + text
            elif content is _BYTES:
                field = key + _encoded_varint(memoryview(each).nbytes)
                total += memoryview(each).nbytes
                pieces += (field, each)
                total += len(field)
                continue
            else:
                field = key + (each if content is _FLOAT else _encoded_varint(each & _BITS))
            pieces.append(field)
            total += len(field)
    return total


def _write_inner(pieces: list[Buffer], message: Message, key: bytes, kind: str, written: Written) -> int:
    field = written.get((id(message), key))
    if field is not None:
        pieces.append(field)
        return len(field)
    place = len(pieces)
    pieces.append(b"")
    size = _write(pieces, message, kind, written)
    pieces[place] = prefix = key + _encoded_varint(size)
    if size <= _FEW_BYTES:
        field = b"".join(pieces[place:])
        pieces[place:] = [field]
        written[id(message), key] = field
    return len(prefix) + size


_BITS: Final = 2**64 - 1


def _encoded_varint(value: int) -> bytes:
    if value < 0x80:
        return _SHORT[value]
    groups = [value >> 7 * position & 0x7F for position in range(-(-value.bit_length() // 7))]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


_SHORT: Final = [bytes([value]) for value in range(0x80)]
