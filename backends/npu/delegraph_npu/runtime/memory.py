"""A feature map -> functions that read it and write it, in the memories of one delegate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph_npu.commands import BRICK, FeatureMap, Layout, Region
from delegraph_npu.runtime.output_stage import NUMPY_DTYPES

__all__ = ["Memories", "Read", "Write", "reader", "writer"]

Memories: TypeAlias = Mapping[Region, NDArray[np.uint8]]
Read: TypeAlias = Callable[[], NDArray[Any]]
"""() -> elements (n, h, w, c), which may be a view of the memory."""
Write: TypeAlias = Callable[[NDArray[Any], slice], None]
"""(elements of some rows (n, h', w, c), their range of h) -> nothing."""


def reader(fm: FeatureMap, memories: Memories) -> Read:
    """A function that reads `fm`."""
    if fm.layout is Layout.NHWC:
        view = _channels(fm, memories)
        return lambda: view
    n, h, w, c = fm.shape
    bricks = _bricks(fm, memories)
    return lambda: bricks.reshape(n, h, w, -1)[..., :c]


def writer(fm: FeatureMap, memories: Memories) -> Write:
    """A function that writes `fm`."""
    if fm.layout is Layout.NHWC:
        view = _channels(fm, memories)

        def write(elements: NDArray[Any], rows: slice) -> None:
            view[:, rows] = elements

        return write
    n, _, w, c = fm.shape
    bricks = _bricks(fm, memories)
    full, rest = divmod(c, BRICK)

    def write_bricks(elements: NDArray[Any], rows: slice) -> None:
        bricks[:, rows, :, :full] = elements[..., : full * BRICK].reshape(n, -1, w, full, BRICK)
        if rest:
            bricks[:, rows, :, full, :rest] = elements[..., full * BRICK :]

    return write_bricks


def _channels(fm: FeatureMap, memories: Memories) -> NDArray[Any]:
    dtype = NUMPY_DTYPES[fm.dtype]
    return np.ndarray(fm.shape, dtype, memories[fm.region].data, fm.offset, fm.strides)


def _bricks(fm: FeatureMap, memories: Memories) -> NDArray[Any]:
    """A view (n, h, w, bricks, 16)."""
    dtype, (n, h, w, c) = NUMPY_DTYPES[fm.dtype], fm.shape
    shape, strides = (n, h, w, -(-c // BRICK), BRICK), (*fm.strides, dtype.itemsize)
    return np.ndarray(shape, dtype, memories[fm.region].data, fm.offset, strides)
