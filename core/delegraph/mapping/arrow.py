"""Columns of Arrow <-> arrays.

A column of nested lists becomes an array with as many dims more as long as all its rows have the same sizes, and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    Table = pa.Table

__all__ = ["ArrowColumns", "arrow_column"]


class ArrowColumns(Mapping[str, Any]):
    """The columns of a table as arrays whose dim 0 is the row; each is made when it is first read.

    Where there are nulls, or rows of different sizes, the array has an object for each row, None for a null.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._made:
            if name not in self._table.column_names:
                raise KeyError(name)
            self._made[name] = array_of(_one_chunk(self._table.column(name)))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __len__(self) -> int:
        return len(self._table.column_names)

    def __contains__(self, name: object) -> bool:
        return name in self._table.column_names


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def array_of(column: pa.Array) -> NDArray[Any]:
    """The rows of `column`, as `ArrowColumns` says."""
    if isinstance(column, pa.ExtensionArray):
        if isinstance(column, pa.FixedShapeTensorArray) and not column.null_count:
            tensors: NDArray[Any] = column.to_numpy_ndarray()
            return tensors
        column = column.storage
    if not _is_list(column.type):
        if column.null_count:
            return _objects(column.to_pylist())
        plain: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return plain
    if column.null_count:
        return _objects([_row(row) if row.is_valid else None for row in column])
    lengths = np.asarray(column.value_lengths())
    if len(lengths) and (lengths == lengths[0]).all():
        inner = array_of(column.flatten())
        if inner.dtype != object:
            return inner.reshape(len(column), int(lengths[0]), *inner.shape[1:])
    return _objects([_row(row) for row in column])


def _row(row: pa.ListScalar) -> NDArray[Any]:
    return array_of(row.values)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _objects(items: Sequence[Any]) -> NDArray[Any]:
    cells = np.full(len(items), None, object)
    for place, item in enumerate(items):
        cells[place] = item
    return cells


def arrow_column(values: NDArray[Any], failed: Sequence[int] = ()) -> pa.Array:
    """The column of `values`, which has nested lists for dims; null in the rows that `failed`."""
    mask = np.zeros(len(values), bool)
    mask[list(failed)] = True
    if values.dtype != object:
        return _lists(values, mask)
    items = [None if lost else value for value, lost in zip(values, mask, strict=True)]
    arrays = [item for item in items if item is not None]
    alike = {(item.ndim, item.dtype) if isinstance(item, np.ndarray) else None for item in arrays}
    if len(alike) == 1 and None not in alike and arrays[0].ndim:
        return _ragged(items)
    return pa.array([item.tolist() if isinstance(item, np.ndarray | np.generic) else item for item in items])


def _lists(values: NDArray[Any], mask: NDArray[np.bool_]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values, mask=mask)
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size, count in zip(values.shape[:0:-1], np.cumprod(values.shape)[-2::-1], strict=True):
        column = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * np.int32(size), column)
    return column if not mask.any() else pa.ListArray.from_arrays(column.offsets, column.values, mask=pa.array(mask))


def _ragged(items: Sequence[NDArray[Any] | None]) -> pa.Array:
    arrays = [item for item in items if item is not None]
    offsets = np.cumsum([0, *(0 if item is None else len(item) for item in items)], dtype=np.int32)
    if arrays[0].ndim == 1:
        values = pa.array(np.concatenate(arrays))
    else:
        values = _ragged([row for item in arrays for row in item])
    missing = pa.array([item is None for item in items])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=missing)
