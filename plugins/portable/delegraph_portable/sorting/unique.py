"""Distinct elements, or slices along a dim: all or of neighbours; with each one's place among them, and counts.

NaN differs from itself, so each one stays. How many there are depends on content: `out` is resized within its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import KernelContext
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.promotion import check_result, compute_type, is_complex
from delegraph.runtime.numpy_kernels.shapes import wrap_dim

from ..library import data_dependent
from .ordering import sorted_places


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows in the order in which equal ones stand side by side."""

    order: Array
    """(n,) int64: the row at each place."""
    first: Array
    """(n,) bool: whether a place begins a group."""

    def representatives(self) -> Array:
        """(groups,): one row of each."""
        places: Array = self.order[self.first]
        return places

    def inverse(self) -> Array:
        """(n,): the group of each row."""
        groups = np.empty(self.order.size, np.int64)
        # Along the order the group's number rises by 1 at each first place; the order leads back to the rows.
        groups[self.order] = np.cumsum(self.first) - 1
        return groups

    def counts(self) -> Array:
        """(groups,): the rows of each."""
        return np.diff(np.append(np.flatnonzero(self.first), self.first.size))


def _neighbours(rows: Array, order: Array) -> _Groups:
    """Rows (n, …) taken in `order`; a group ends where the next row differs."""
    first = np.ones(len(rows), np.bool_)
    ordered = rows[order]
    # NaN differs from itself, so each is a group of its own, as in torch.
    np.any(ordered[1:] != ordered[:-1], tuple(range(1, rows.ndim)), out=first[1:])
    return _Groups(order, first)


def _write(context: KernelContext, out: Array, result: Array) -> None:
    np.copyto(context.resize(out, result.shape), result, casting="unsafe")


def _check(self: Array, out: Array) -> None:
    if is_complex(self.dtype):
        raise InvalidType(f"argument 'self' is {self.dtype}: complex numbers have no order")
    check_result(self.dtype, out)


# ---- elements ---------------------------------------------------------------------------------------


def _elements(
    context: KernelContext,
    self: Array,
    ordered: bool,
    out: Array,
    inverse: tuple[bool, Array],
    counts: tuple[bool, Array] | None = None,
) -> None:
    """The distinct elements into `out`; places and counts where they are asked for, else those outputs become empty."""
    _check(self, out)
    flat = self.reshape(-1)
    x = flat.astype(compute_type(self.dtype), copy=False)
    groups = _neighbours(x, sorted_places(x) if ordered else np.arange(x.size))
    _write(context, out, flat[groups.representatives()])  # of the elements themselves, not widened ones
    _write_if_asked(context, inverse, lambda: groups.inverse().reshape(self.shape))
    if counts is not None:
        _write_if_asked(context, counts, groups.counts)


def _write_if_asked(context: KernelContext, request: tuple[bool, Array], result: Callable[[], Array]) -> None:
    _write(context, request[1], result() if request[0] else np.empty(0, np.int64))


@data_dependent("aten::_unique2.out")
def unique2(
    context: KernelContext,
    self: Array,
    sorted: bool,
    return_inverse: bool,
    return_counts: bool,
    out0: Array,
    out1: Array,
    out2: Array,
) -> None:
    """In ascending order, also where `sorted` is false. Outputs that are not asked for become empty."""
    _elements(context, self, True, out0, (return_inverse, out1), (return_counts, out2))


@data_dependent("aten::_unique.out")
def unique(context: KernelContext, self: Array, sorted: bool, return_inverse: bool, out0: Array, out1: Array) -> None:
    _elements(context, self, True, out0, (return_inverse, out1))


@data_dependent("aten::unique_consecutive.out")
def unique_consecutive(
    context: KernelContext,
    self: Array,
    return_inverse: bool,
    return_counts: bool,
    dim: int | None,
    out0: Array,
    out1: Array,
    out2: Array,
) -> None:
    """Of equal neighbours one. Along a `dim`, inverse and counts are always given, as torch plans them on a CPU.

    (What is not asked for is empty in eager torch if the tensor is 1-d and `dim` is 0.)
    """
    if dim is not None:
        _slices(context, self, dim, False, (out0, out1, out2))
    else:
        _elements(context, self, False, out0, (return_inverse, out1), (return_counts, out2))


# ---- slices -----------------------------------------------------------------------------------------


def _slices(context: KernelContext, self: Array, dim: int, ordered: bool, outs: tuple[Array, Array, Array]) -> None:
    _check(self, outs[0])
    axis = wrap_dim(dim, self.ndim)
    if self.ndim == 0:
        raise InvalidArgument("argument 'self' is a 0-d tensor, which has no slices")
    if self.size == 0 and (self.shape[axis] or self.shape.count(0) > 1):
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has empty slices, which cannot be compared")
    slices = np.moveaxis(self, axis, 0)
    rows = slices.reshape(len(slices), math.prod(slices.shape[1:])).astype(compute_type(self.dtype), copy=False)
    # The last key of a lexsort is the first to decide.
    groups = _neighbours(rows, np.lexsort(rows.T[::-1]) if ordered and rows.size else np.arange(len(rows)))
    values, inverse, counts = outs
    _write(context, values, np.take(self, groups.representatives(), axis))
    _write(context, inverse, groups.inverse())
    _write(context, counts, groups.counts())


@data_dependent("aten::unique_dim.out")
def unique_dim(context: KernelContext, self: Array, dim: int, *sorted_and_requests: Any) -> None:
    """The distinct slices along `dim` in lexicographic order. Inverse and counts are always given."""
    *_, values, inverse, counts = sorted_and_requests
    _slices(context, self, dim, True, (values, inverse, counts))


@data_dependent("aten::unique_dim_consecutive.out")
def unique_dim_consecutive(context: KernelContext, self: Array, dim: int, *requests: Any) -> None:
    *_, values, inverse, counts = requests
    _slices(context, self, dim, False, (values, inverse, counts))
