"""Copies into the dtype and dim order of `out`. The options said so when `out` was planned, and are unused."""

from __future__ import annotations

from collections.abc import Sequence

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import copy_call, nothing
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.shapes import check_broadcasts

from ..library import kernel


@kernel("aten::clone.out")
def clone(context: Context, self: Array, memory_format: int | None, out: Array) -> BoundCall:
    return copy_call(context.resize(out, self.shape), self)


@kernel("aten::_to_copy.out")
def to_copy(context: Context, self: Array, non_blocking: bool, memory_format: int | None, out: Array) -> BoundCall:
    return copy_call(context.resize(out, self.shape), self)


@kernel("dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_clone_dim_order.out")
def to_dim_order(
    context: Context, self: Array, non_blocking: bool, dim_order: Sequence[int] | None, out: Array
) -> BoundCall:
    _check_dim_order(dim_order, self.ndim)
    return copy_call(context.resize(out, self.shape), self)


@kernel("dim_order_ops::_empty_dim_order.out")
def empty_dim_order(context: Context, size: Sequence[int], dim_order: Sequence[int] | None, out: Array) -> BoundCall:
    _check_dim_order(dim_order, len(size))
    context.resize(out, tuple(size))
    return nothing  # the memory of a new tensor stays as it is


def _check_dim_order(dim_order: Sequence[int] | None, rank: int) -> None:
    if dim_order is not None and sorted(dim_order) != list(range(rank)):
        raise InvalidArgument(f"argument 'dim_order' {list(dim_order)} is no order of {rank} dimensions")


@kernel("aten::copy_")
def copy_in_place(context: Context, self: Array, src: Array, non_blocking: bool) -> BoundCall:
    check_broadcasts(src, self.shape, "src")
    return copy_call(self, src)


@kernel("aten::copy.out")
def copy(context: Context, self: Array, src: Array, non_blocking: bool, out: Array) -> BoundCall:
    check_broadcasts(src, self.shape, "src")
    return copy_call(context.resize(out, self.shape), src)
