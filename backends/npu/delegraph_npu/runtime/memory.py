"""A feature map -> a way to read it and a way to write it, in the memories of one delegate."""

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
"""(elements of some rows (n, h', w, c), which h they are) -> nothing."""


def reader(one: FeatureMap, memories: Memories) -> Read:
    """How `one` is read."""
    if one.layout is Layout.NHWC:
        view = _channels(one, memories)
        return lambda: view
    n, h, w, c = one.shape
    bricks = _bricks(one, memories)
    return lambda: bricks.reshape(n, h, w, -1)[..., :c]


def writer(one: FeatureMap, memories: Memories) -> Write:
    """How `one` is written."""
    if one.layout is Layout.NHWC:
        view = _channels(one, memories)

        def write(elements: NDArray[Any], rows: slice) -> None:
            view[:, rows] = elements

        return write
    n, _, w, c = one.shape
    bricks = _bricks(one, memories)
    full, rest = divmod(c, BRICK)

    def write_bricks(elements: NDArray[Any], rows: slice) -> None:
        bricks[:, rows, :, :full] = elements[..., : full * BRICK].reshape(n, -1, w, full, BRICK)
        if rest:
            bricks[:, rows, :, full, :rest] = elements[..., full * BRICK :]

    return write_bricks


def _channels(one: FeatureMap, memories: Memories) -> NDArray[Any]:
    dtype = NUMPY_DTYPES[one.dtype]
    return np.ndarray(one.shape, dtype, memories[one.region].data, one.offset, one.strides)


def _bricks(one: FeatureMap, memories: Memories) -> NDArray[Any]:
    """(n, h, w, bricks, 16)."""
    dtype, (n, h, w, c) = NUMPY_DTYPES[one.dtype], one.shape
    shape, strides = (n, h, w, -(-c // BRICK), BRICK), (*one.strides, dtype.itemsize)
    return np.ndarray(shape, dtype, memories[one.region].data, one.offset, strides)
