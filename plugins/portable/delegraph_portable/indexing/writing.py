"""Writing by several index tensors, masks and views: index_put, put, masked_scatter, slice_scatter and their kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import begin_call, copy_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_index, check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import check_broadcasts, check_shape

from ..copies.views import as_strided, diagonal, select, slice_along
from ..library import broadcast_out, in_turn, kernel, prepare_out
from .indices import Indices, check_mask, check_range, expand_masks, flat_places, index_shape, numpy_index
from .scattering import reduce_at

# ---- index tensors ----------------------------------------------------------------------------------


def _index_put(self: Array, indices: Indices, values: Array, accumulate: bool) -> None:
    expanded = expand_masks(self, indices)
    shape = index_shape(self, expanded)
    check_broadcasts(values, shape, "values")
    if accumulate:
        _add_at(self, flat_places(self, expanded), np.broadcast_to(values, shape))
    else:
        self[numpy_index(self, expanded)] = values


def _add_at(target: Array, places: Array, values: Array) -> None:
    flat = np.asarray(target, compute_type(target.dtype), order="C")
    reduce_at(np.add, flat.reshape(-1), places, values)
    if not np.may_share_memory(flat, target):
        copy_call(target, flat)()


@kernel("aten::index_put_")
def index_put_in_place(context: Context, self: Array, indices: Indices, values: Array, accumulate: bool) -> BoundCall:
    """self[indices] = values, or += where an index may repeat."""
    check_same_dtype(values, "values", self, "self")
    return partial(_index_put, self, indices, values, accumulate)


@kernel("aten::index_put.out")
def index_put(
    context: Context, self: Array, indices: Indices, values: Array, accumulate: bool, out: Array
) -> BoundCall:
    check_same_dtype(values, "values", self, "self")
    check_same_dtype(out, "out", self, "self")
    out = context.resize(out, self.shape)
    return in_turn(begin_call(out, self), partial(_index_put, out, indices, values, accumulate))


@kernel("aten::put.out")
def put(context: Context, self: Array, index: Array, source: Array, accumulate: bool, out: Array) -> BoundCall:
    """`self` with source's elements at places counted as if it were flat."""
    check_index(index, "index")
    check_same_dtype(source, "source", self, "self")
    check_same_dtype(out, "out", self, "self")
    if index.size != source.size:
        raise InvalidArgument(f"argument 'index' has {index.size} elements, but argument 'source' has {source.size}")
    out = context.resize(out, self.shape)

    def call() -> None:
        np.copyto(out, self)
        if index.size:
            check_range(index, self.size, -self.size, "index")
            places = np.where(index < 0, index + self.size, index).reshape(-1)
            if accumulate:
                _add_at(out, places, source.reshape(-1))
            else:
                out.flat[places] = source.reshape(-1)

    return call


@kernel("aten::masked_scatter.out")
def masked_scatter(context: Context, self: Array, mask: Array, source: Array, out: Array) -> BoundCall:
    """`self` with its masked places filled by `source`'s elements in order."""
    check_mask(mask)
    check_same_dtype(source, "source", self, "self")
    out = broadcast_out(context, out, self.dtype, self, mask)

    def call() -> None:
        places = np.broadcast_to(mask, out.shape)
        count = int(np.count_nonzero(places))
        if count > source.size:
            raise InvalidArgument(f"argument 'source' has {source.size} elements, but the mask chooses {count}")
        np.copyto(out, self, casting="unsafe")
        out[places] = source.reshape(-1)[:count]

    return call


# ---- views ------------------------------------------------------------------------------------------

View = Callable[..., Array]

_VIEWS: Final[dict[str, View]] = {
    "aten::diagonal_scatter.out": diagonal,
    "aten::select_scatter.out": select,
    "aten::slice_scatter.out": slice_along,
}


def _overwrite(view: View, context: Context, self: Array, src: Array, *args: Any) -> BoundCall:
    """`self` with `src` in the place of a view of it."""
    *arguments, out = args
    check_shape(src, view(self, *arguments).shape, "src")
    out = prepare_out(context, out, self.dtype, self.shape)
    part = view(out, *arguments)
    part.flags.writeable = True  # NumPy's diagonals are not
    return in_turn(begin_call(out, self), copy_call(part, src))


for _op, _view in _VIEWS.items():
    kernel(_op)(partial(_overwrite, _view))


@kernel("aten::as_strided_scatter.out")
def as_strided_scatter(
    context: Context,
    self: Array,
    src: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None,
    out: Array,
) -> BoundCall:
    """`self` with `src` in the place of a view of its memory, in the order in which it is laid out."""
    check_shape(src, tuple(size), "src")
    out = prepare_out(context, out, self.dtype, self.shape)
    order = np.argsort([-s for s in self.strides], kind="stable")
    laid_out = self.transpose(order)
    storage = context.workspace(laid_out.shape, self.dtype)
    part = as_strided(storage, size, stride, storage_offset)
    result = storage.transpose(np.argsort(order))
    overwrite = copy_call(part, src)

    def call() -> None:
        np.copyto(storage, laid_out)
        overwrite()
        np.copyto(out, result, casting="unsafe")

    return call
