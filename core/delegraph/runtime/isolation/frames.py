"""Values and arrays <-> bytes in a pipe, read so that the other end cannot do anything but give other values.

    "dgf1" | bytes of the JSON, a uint32 | the JSON | the arrays' bytes, one behind the other

The JSON is an object; `arrays` in it has [dtype, sizes] of each array. A value is a number, a string, a bool or null;
{"array": 0}, the first of the arrays; or a list of values.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import InvalidType
from delegraph.program.dtypes import numpy_dtype, scalar_type

__all__ = ["Arrays", "BadFrame", "read", "value_of", "values_from", "write"]

Arrays = list[NDArray[Any]]

_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"dgf1"
_MOST_JSON: Final = 2**26
_MOST_DIMS: Final = 64


class BadFrame(Exception):
    """The other end sent what is no frame."""


def write(stream: BinaryIO, message: Mapping[str, object], arrays: Sequence[NDArray[Any]] = ()) -> None:
    """Write one frame. Raises `InvalidType` for an array of a dtype that programs have not, and `OSError`."""
    told = [[_dtype_name(array), list(array.shape)] for array in arrays]
    text = json.dumps({**message, "arrays": told}).encode()
    stream.write(_HEADER.pack(_MAGIC, len(text)) + text)
    for array in arrays:
        stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    stream.flush()


def read(stream: BinaryIO, most_nbytes: int | None = None) -> tuple[dict[str, Any], Arrays]:
    """Read one frame, with arrays of at most so many bytes together.

    Raises `EOFError` where the other end has gone, and `BadFrame`.
    """
    magic, size = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if magic != _MAGIC or size > _MOST_JSON:
        raise BadFrame("it does not begin as a frame does")
    try:
        message = json.loads(_exactly(stream, size))
        layouts = [(numpy_dtype(scalar_type(str(name))), tuple(sizes)) for name, sizes in message.pop("arrays")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidType) as error:
        raise BadFrame(f"its JSON is not a frame's: {error}") from None
    if any(len(sizes) > _MOST_DIMS or any(type(n) is not int or n < 0 for n in sizes) for _, sizes in layouts):
        raise BadFrame("an array has sizes that are none")
    nbytes = [dtype.itemsize * prod(sizes) for dtype, sizes in layouts]
    if most_nbytes is not None and sum(nbytes) > most_nbytes:
        raise BadFrame(f"its arrays have {sum(nbytes):,} bytes, and may have {most_nbytes:,}")
    return message, [
        _exactly_array(stream, count).view(dtype).reshape(sizes)
        for (dtype, sizes), count in zip(layouts, nbytes, strict=True)
    ]


def value_of(value: object, arrays: Arrays) -> object:
    """`value` as JSON, its arrays added to `arrays`. Raises `InvalidType` for anything else than a value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, list | tuple):
        return [value_of(item, arrays) for item in value]
    raise InvalidType(f"a {type(value).__name__} cannot be sent to the process of an isolated program")


def values_from(value: object, arrays: Arrays) -> Any:
    """The inverse of `value_of`. Raises `BadFrame`."""
    if isinstance(value, list):
        return [values_from(item, arrays) for item in value]
    if isinstance(value, dict):
        index = value.get("array")
        if type(index) is not int or not 0 <= index < len(arrays):
            raise BadFrame("a value is an array that was not sent")
        return arrays[index]
    return value


def _dtype_name(array: NDArray[Any]) -> str:
    return np.dtype(numpy_dtype(scalar_type(array.dtype))).name


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _exactly_array(stream: BinaryIO, count: int) -> NDArray[np.uint8]:
    """Memory is touched as bytes come: who only announces them takes none."""
    array = np.empty(count, np.uint8)
    view, start = array.data, 0
    while start < count:
        step = stream.readinto(view[start:])  # type: ignore[attr-defined]
        if not step:
            raise EOFError
        start += step
    return array
