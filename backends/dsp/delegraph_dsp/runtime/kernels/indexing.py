"""Kernels that read by index: rows of a table, and the resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import InvalidArgument
from delegraph_dsp.runtime.kernels.table import CODE, CODES, MULTIPLIER, SHIFT, Arrays, kernel, write_codes

__all__: list[str] = []

STORED = ("int8", "int16", "float16")
INDEX = ("int32",)


def gather_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """A table [V, D], indices [I], the output [I, D]."""
    table, index, out = shapes
    return len(table) == 2 and len(index) == 1 and out == (*index, table[1])


@kernel("gather", STORED, ("int32", "int64"), STORED, shapes=gather_shapes)
def gather(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """The table's rows by their numbers. Raises `InvalidArgument` for a number outside the table."""
    table, index, out = arrays
    wrong = index[(index < 0) | (index >= len(table))]
    if wrong.size:
        raise InvalidArgument(f"index {wrong[0]} is not of a row of a table with {len(table)}")
    np.copyto(out, table[index], casting="unsafe")


def nearest_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Images [C, H, W], rows [OH] and columns [OW], the output [C, OH, OW]."""
    source, rows, columns, out = shapes
    images = len(source) == 3 and min(source[1:]) > 0 and len(rows) == len(columns) == 1
    return images and out == (source[0], *rows, *columns)


@kernel("resize_nearest", STORED, INDEX, INDEX, STORED, shapes=nearest_shapes)
def resize_nearest(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Each pixel is that of the listed row and column."""
    source, rows, columns, out = arrays
    np.copyto(out, at(at(source, rows, 1), columns, 2), casting="unsafe")


def linear_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Images, then for rows and for columns: the first, the second, the weight of the second; the output."""
    source, *lists, out = shapes
    rows, columns = lists[:3], lists[3:]
    if any(part != group[0] for group in (rows, columns) for part in group):
        return False
    return nearest_shapes([source, rows[0], columns[0], out])


@kernel(
    "resize_linear", ("float16",), INDEX, INDEX, ("float32",), INDEX, INDEX, ("float32",), ("float16",),
    shapes=linear_shapes,
)  # fmt: skip
def resize_linear(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Between two rows, then between two columns, `a + (b - a) * weight` in float32, rounded once."""
    source, top, bottom, down, left, right, along, out = arrays
    x = source.astype(np.float32)
    upper, lower = at(x, top, 1), at(x, bottom, 1)
    rows = upper + (lower - upper) * down[:, None]
    first, second = at(rows, left, 2), at(rows, right, 2)
    np.copyto(out, first + (second - first) * along, casting="unsafe")


@kernel(
    "resize_linear_int", CODES, INDEX, INDEX, INDEX, INDEX, INDEX, INDEX, CODES, shapes=linear_shapes,
    integers=((1, 2**15), (1, 2**15), CODE, MULTIPLIER, SHIFT, CODE, CODE, CODE),
)  # fmt: skip
def resize_linear_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """As `resize_linear`, of codes (TOSA 1.0, RESIZE): weights are fractions of the first two integers, and the exact
    sum is rescaled."""
    source, top, bottom, down, left, right, along, out = arrays
    rows_unit, columns_unit, zero, *grid = integers
    x = source.astype(np.int64) - zero
    down, along = down.astype(np.int64)[:, None], along.astype(np.int64)
    rows = at(x, top, 1) * (rows_unit - down) + at(x, bottom, 1) * down
    total = at(rows, left, 2) * (columns_unit - along) + at(rows, right, 2) * along
    write_codes(out, total, grid)


def at(array: NDArray[Any], index: NDArray[Any], axis: int) -> NDArray[Any]:
    """`array` at `index`, clipped to the ends, beyond which a stranger's binary may not read."""
    return np.take(array, index, axis=axis, mode="clip")
