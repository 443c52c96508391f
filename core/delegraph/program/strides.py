"""The sizes of a dense tensor, perhaps the order of its dims -> the strides with which it lies in memory."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["dense_strides"]


def dense_strides(sizes: Sequence[int], itemsize: int = 1, dim_order: Sequence[int] | None = None) -> tuple[int, ...]:
    """The strides of a tensor without gaps: in elements, or with their `itemsize` in bytes.

    Its dims lie in memory as `dim_order` says, outer to inner; None: in their own order, C-contiguous. A dim of size 0
    counts as 1 (ExecuTorch `runtime/core/exec_aten/util/dim_order_util.h`).
    """
    strides = [itemsize] * len(sizes)
    step = itemsize
    for dim in reversed(range(len(sizes)) if dim_order is None else dim_order):
        strides[dim] = step
        step *= sizes[dim] or 1
    return tuple(strides)
