"""A header of records, parts and data <-> the bytes of a blob in a backend's own format. No torch.

    magic, 7 bytes + version | u32 header length | u32 CRC-32 of header and parts | header, JSON | parts | data

All numbers are little-endian; parts and data begin at multiples of 64 bytes from the blob's start. The header has the
size of each part under the part's name. The data is not summed: that would read all of it at each load.

A header comes from a stranger. What it says is read as dataclasses, each field of the type that it is annotated with.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.program.schema import Buffer

__all__ = ["BlobFormat", "BlobTensor", "Size", "UnpackedBlob", "read_record"]

Size: TypeAlias = Annotated[int, "a size"]
"""An integer that is not negative."""

_PREFIX: Final = struct.Struct("<8sII")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BlobTensor:
    """An input or output of a delegate's graph. A dynamic dim is the text of its symbol; `scalar` marks a number, or an
    argument that the graph does not take."""

    name: str
    dtype: str
    shape: tuple[Size | str, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class UnpackedBlob:
    """The parts of a blob, as views into it: `header` is whatever JSON it is."""

    version: int
    header: Any
    parts: tuple[memoryview, ...]
    data: memoryview


@dataclass(frozen=True, slots=True)
class BlobFormat:
    """The format of a backend's blobs. `magic` has 7 bytes; `versions` can be read, of which the last is written;
    `parts` are the names of what lies between header and data."""

    backend_id: str
    distribution: str
    magic: bytes
    versions: tuple[int, ...]
    parts: tuple[str, ...] = ()
    alignment: int = 64

    def pack(self, header: Mapping[str, Any], parts: Sequence[Buffer], data: Iterable[Buffer] = ()) -> bytes:
        """The bytes of a blob; `header` has the sizes of `parts`. Each chunk of `data` begins at a multiple of the
        alignment."""
        text = json.dumps(header).encode()
        prefix = _PREFIX.pack(self.magic + bytes([self.versions[-1]]), len(text), _summed(text, parts))
        return b"".join(padded for chunk in (prefix + text, *parts, *data) for padded in self._padded(chunk))

    def unpack(self, processed: Buffer) -> UnpackedBlob:
        """Raises `DelegateInvalidCompatibility` for a blob that is foreign, newer or damaged."""
        view = memoryview(processed).cast("B")
        if len(view) < _PREFIX.size:
            raise self.damaged(f"it has {len(view)} bytes, fewer than its prefix")
        magic, size, summed = _PREFIX.unpack_from(view)
        if magic[:-1] != self.magic or magic[-1] not in self.versions:
            raise DelegateInvalidCompatibility(self._foreign(magic))
        text, start = view[_PREFIX.size : _PREFIX.size + size], self.aligned(_PREFIX.size + size)
        with self.reading():
            header = json.loads(bytes(text))
            sizes = [_read(Size, header[name]) for name in self.parts]
        parts = []
        for size in sizes:
            parts.append(view[start : start + size])
            start = self.aligned(start + size)
        if sizes != list(map(len, parts)):
            raise self.damaged("it is cut short, and its checksum is wrong")
        if _summed(text, parts) != summed:
            raise self.damaged("its checksum is wrong")
        return UnpackedBlob(magic[-1], header, tuple(parts), view[start:])

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within, what cannot be read of a header is damage."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise self.damaged(f"its header cannot be read, {type(error).__name__}: {error!s:.200}") from error

    def damaged(self, what: str) -> DelegateInvalidCompatibility:
        """The error for a blob that lowering did not write: `what` is to be said of it."""
        return DelegateInvalidCompatibility(
            f"a blob of {self.backend_id} is damaged: {what}; copy or lower the program again"
        )

    def aligned(self, size: int) -> int:
        """The next multiple of the alignment."""
        return -(-size // self.alignment) * self.alignment

    def places(self, sizes: Iterable[int]) -> Iterator[int]:
        """The offsets in the data of chunks of these sizes."""
        end = 0
        for size in sizes:
            yield end
            end = self.aligned(end + size)

    def _padded(self, chunk: Buffer) -> Iterator[Buffer]:
        size = memoryview(chunk).nbytes
        yield chunk
        yield bytes(self.aligned(size) - size)

    def _foreign(self, magic: bytes) -> str:
        if magic[:-1] == self.magic:
            return (
                f"a blob of {self.backend_id} has format {magic[-1]}, this {self.distribution} reads"
                f" {' and '.join(map(str, self.versions))}; lower the program again, or install the {self.distribution}"
                " that wrote it"
            )
        return f"these bytes are no blob of {self.backend_id}: they begin with {magic!r}; lower the program again"


def _summed(header: Buffer, parts: Iterable[Buffer]) -> int:
    crc = zlib.crc32(header)
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


# ---- records --------------------------------------------------------------------------------------------------------


def read_record(cls: type[_T], entry: Any, **given: Any) -> _T:
    """The dataclass `cls` that a JSON object is; fields that are `given` are not in it, and those with a default may be
    missing.

    A field is a string, a bool, an integer, a `Size`, a record, a tuple of any number of these, or one of several.
    Raises `TypeError` or `KeyError` for anything else.
    """
    entry = _read(dict, entry)
    kinds, optional = _fields(cls)  # type: ignore[arg-type]  # a class is hashable
    left = given.keys() | optional - entry.keys()
    return cls(**given, **{name: _read(kind, entry[name]) for name, kind in kinds.items() if name not in left})


@cache
def _fields(cls: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The types of a record's fields; the names of those that have a default."""
    assert is_dataclass(cls)
    return get_type_hints(cls, include_extras=True), frozenset(f.name for f in fields(cls) if f.default is not MISSING)


_NAMES: Final = {str: "a string", bool: "true or false", int: "an integer", list: "a list", dict: "an object"}


def _read(kind: Any, value: Any) -> Any:
    if kind == Size:
        if type(value) is not int or not 0 <= value < 2**63:
            raise TypeError(f"expected a size, not {value!r:.40}")
    elif get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], each) for each in _read(list, value))
    elif kind in _NAMES:
        if type(value) is not kind or (kind is int and abs(value) >= 2**63):
            raise TypeError(f"expected {_NAMES[kind]}, not {value!r:.40}")
    elif is_dataclass(kind):
        return read_record(kind, value)  # type: ignore[arg-type]
    else:
        first, second = get_args(kind)
        return value if type(value) is second or (value is None and second is NoneType) else _read(first, value)
    return value
