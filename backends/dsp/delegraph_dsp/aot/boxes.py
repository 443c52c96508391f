"""A tile of an index space -> the box of each operand, its layout in the TCM, and the DMA rows that fetch it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from delegraph_dsp.aot.kernel_calls import KernelCall, Use, View
from delegraph_dsp.program import ITEM_NBYTES

__all__ = ["Box", "Range", "Rows", "box_nbytes", "box_of", "packed_strides", "rows_of", "tiles_of"]

Range: TypeAlias = tuple[int, int]
"""From an index up to, not including, another one."""

Box: TypeAlias = tuple[Range, ...]
"""The range of each dim."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The source of a DMA transfer: `rows` of `row_nbytes`, every `stride` bytes from `begin` on."""

    begin: int
    row_nbytes: int
    rows: int
    stride: int


def tiles_of(call: KernelCall, block: Sequence[int]) -> Iterator[Box]:
    """The tiles of the call's space for a block of this size, the last axis fastest."""
    cuts = [
        [(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(call.space, block, strict=True)
    ]
    yield from product(*cuts)


def box_of(use: Use, tile: Box) -> Box:
    """The part of an operand that a tile needs."""
    return tuple((0, size) if axis is None else tile[axis] for size, axis in zip(use.view.shape, use.axes, strict=True))


def packed_strides(view: View, box: Box) -> tuple[int, ...]:
    """Strides, in elements, of a box in the TCM: dense, in the order of the view's elements; 0 for repeats."""
    sizes = [stop - start for start, stop in box]
    strides = [0] * len(sizes)
    reach = 1
    for dim in _by_stride(view):
        strides[dim] = reach
        reach *= sizes[dim]
    return tuple(strides)


def box_nbytes(view: View, box: Box) -> int:
    """The bytes of a box in the TCM."""
    return _count(view, box) * ITEM_NBYTES[view.dtype]


def _count(view: View, box: Box) -> int:
    return prod(stop - start for (start, stop), stride in zip(box, view.strides, strict=True) if stride)


def _by_stride(view: View) -> list[int]:
    """Dims that are not repeated, in the order of their strides."""
    dims = [dim for dim, stride in enumerate(view.strides) if stride]
    return sorted(dims, key=lambda dim: (view.strides[dim], view.shape[dim] != 1, -dim))


def rows_of(view: View, box: Box) -> list[Rows]:
    """The rows of a box in outer memory, counted from the start of the view's value, in the order of the box in the
    TCM."""
    size = ITEM_NBYTES[view.dtype]
    begin = view.offset + sum(start * stride for (start, _), stride in zip(box, view.strides, strict=True))
    levels = [(box[dim][1] - box[dim][0], view.strides[dim]) for dim in _by_stride(view)]
    levels = [(count, stride) for count, stride in levels if count != 1]
    run = 1
    # dims that continue each other in memory are one row
    while levels and levels[0][1] == run:
        run *= levels.pop(0)[0]
    rows, stride = levels.pop(0) if levels else (1, run)
    outer = [range(0, count * by, by) for count, by in reversed(levels)]
    return [Rows((begin + sum(at)) * size, run * size, rows, stride * size) for at in product(*outer)]
