"""Values of a program -> torch's: arrays become tensors over the same memory, codes become dtypes and formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from delegraph.errors import InvalidArgument, InvalidType, NotSupported
from delegraph.program import ScalarType, numpy_dtype

Array: TypeAlias = NDArray[Any]
Convert: TypeAlias = Callable[[Any], Any]

_SAME_WIDTH: Final[dict[int, np.dtype[Any]]] = {1: np.dtype(np.uint8), 2: np.dtype(np.int16)}
"""Integer dtypes to carry those of ml_dtypes (float8, bfloat16) across."""


class _Writable:
    """Read-only memory that NumPy takes for writable: torch warns of any other. Only arrays that an operator reads are
    shown to torch like this; those that it writes are a `written_tensor`."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: Array) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self.array = array


def tensor(array: Array) -> torch.Tensor:
    """A tensor over `array`'s memory, with its strides. Raises `InvalidArgument` for strides that torch lacks."""
    if not isinstance(array, np.ndarray):
        raise InvalidType(f"the program has {array!r} where the operator takes a tensor")
    extended = array.dtype.isbuiltin == 2  # registered by ml_dtypes
    carrier = array.view(_SAME_WIDTH[array.dtype.itemsize]) if extended else array
    if not carrier.flags.writeable:
        carrier = np.asarray(_Writable(carrier))
    try:
        shared = torch.from_numpy(carrier)
    except ValueError as error:
        raise InvalidArgument(f"torch takes no array with the strides {list(array.strides)}: {error}") from error
    return shared.view(torch_dtype(array)) if extended else shared


def written_tensor(array: Array) -> torch.Tensor:
    """`tensor(array)`, to be written. Raises `InvalidArgument` for a constant, or an input that is the caller's own."""
    if isinstance(array, np.ndarray) and array.size and not array.flags.writeable:
        raise InvalidArgument("it writes into a tensor that is read-only: a constant, or the caller's own input")
    return tensor(array)


def torch_dtype(array: Array) -> torch.dtype:
    """The dtype of `array` in torch."""
    dtype: torch.dtype = getattr(torch, array.dtype.name)
    return dtype


def converter(argument: torch.Argument) -> Convert | None:
    """The conversion of a program's value to `argument`'s type; None if it needs none."""
    kind = str(argument.real_type)  # tells a ScalarType from an int
    convert = _CONVERTERS.get(kind.replace("Optional[", "").replace("List[", "").rstrip("]"))
    if convert is tensor and argument.alias_info is not None and argument.alias_info.is_write:
        convert = written_tensor
    if convert is None:
        return None
    return _each(convert) if "List[" in kind else convert if not kind.startswith("Optional[") else _optional(convert)


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _each(convert: Convert) -> Convert:
    convert_item = _optional(convert)
    return _optional(lambda values: [convert_item(value) for value in values])


def _code(what: str, table: Mapping[int, object]) -> Convert:
    def convert(code: int) -> object:
        if code not in table:
            raise InvalidArgument(f"{code!r} is no code of a {what}; known are {', '.join(map(str, table))}")
        return table[code]

    return convert


def _dtypes() -> dict[int, torch.dtype]:
    table: dict[int, torch.dtype] = {}
    for code in ScalarType:
        try:
            table[int(code)] = torch_dtype(np.empty(0, numpy_dtype(code)))
        except NotSupported:  # a program may name it, but cannot hold tensors of it
            continue
    return table


_LAYOUTS: Final = {0: torch.strided, 1: torch.sparse_coo}

_MEMORY_FORMATS: Final = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}

_CONVERTERS: Final[dict[str, Convert]] = {
    "Tensor": tensor,
    "ScalarType": _code("dtype", _dtypes()),
    "Layout": _code("layout", _LAYOUTS),  # codes: `c10/core/Layout.h`
    "MemoryFormat": _code("memory format", _MEMORY_FORMATS),  # `c10/core/MemoryFormat.h`
}
