"""Reading by index tensors and masks."""

from __future__ import annotations

from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall, KernelContext
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_index, check_same_dtype
from delegraph.runtime.numpy_kernels.shapes import broadcast, check_rank, wrap_dim

from ..library import data_dependent, kernel, prepare_out
from .indices import (
    Indices,
    check_elementwise_index,
    check_mask,
    check_range,
    expand_masks,
    index_shape,
    numpy_index,
    places_along,
)

# ---- one dim ----------------------------------------------------------------------------------------


@kernel("aten::embedding.out")
def embedding(
    context: Context,
    weight: Array,
    indices: Array,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
    out: Array,
) -> BoundCall:
    """Rows of weight (n, d) by indices (*) -> (*, d)."""
    check_rank(weight, (2,), "weight")
    check_index(indices, "indices")
    check_same_dtype(out, "out", weight, "weight")
    out = context.resize(out, (*indices.shape, weight.shape[1]))
    return partial(_take, weight, indices, 0, "indices", out)


@kernel("aten::index_select.out")
def index_select(context: Context, self: Array, dim: int, index: Array, out: Array) -> BoundCall:
    check_index(index, "index")
    check_rank(index, (0, 1), "index")
    check_same_dtype(out, "out", self, "self")
    axis = wrap_dim(dim, self.ndim)
    if self.ndim == 0:
        if index.size != 1:
            raise InvalidArgument(f"argument 'index' must have one element for a 0-d tensor, but has {index.size}")
        return partial(_take, self.reshape(1), index.reshape(1), 0, "index", context.resize(out, ()).reshape(1))
    out = context.resize(out, (*self.shape[:axis], index.size, *self.shape[axis + 1 :]))
    return partial(_take, self, index.reshape(-1), axis, "index", out)


def _take(source: Array, index: Array, axis: int, name: str, out: Array) -> None:
    check_range(index, source.shape[axis], 0, name)
    np.take(source, index, axis, out=out, mode="clip")  # with "raise", NumPy fills a copy of out first


@kernel("aten::gather.out")
def gather(context: Context, self: Array, dim: int, index: Array, sparse_grad: bool, out: Array) -> BoundCall:
    """out[i][j][k] = self[index[i][j][k]][j][k] for dim 0."""
    axis = check_elementwise_index(self, dim, index, None)
    out = prepare_out(context, out, self.dtype, index.shape)
    source, chosen, result = np.atleast_1d(self), np.atleast_1d(index), np.atleast_1d(out)
    if chosen.size == 0:
        return lambda: None
    places = places_along(axis, chosen.shape, source.shape, "index")

    def call() -> None:
        flat = source.reshape(-1)
        if result.dtype == flat.dtype:
            np.take(flat, places(chosen), out=result, mode="clip")
        else:
            np.copyto(result, np.take(flat, places(chosen), mode="clip"), casting="unsafe")

    return call


# ---- several index tensors --------------------------------------------------------------------------


@data_dependent("aten::index.Tensor_out")
def index_tensor(context: KernelContext, self: Array, indices: Indices, out: Array) -> None:
    """self[indices], where None takes a whole dim; bool and uint8 tensors are masks."""
    expanded = expand_masks(self, indices)
    out = prepare_out(context, out, self.dtype, index_shape(self, expanded))
    np.copyto(out, self[numpy_index(self, expanded)], casting="unsafe")


# ---- masks and counts: shapes that depend on content ------------------------------------------------


@data_dependent("aten::masked_select.out")
def masked_select(context: KernelContext, self: Array, mask: Array, out: Array) -> None:
    check_mask(mask)
    shape = broadcast(self.shape, mask.shape)
    chosen = np.broadcast_to(self, shape)[np.broadcast_to(mask, shape)]
    np.copyto(prepare_out(context, out, self.dtype, chosen.shape), chosen, casting="unsafe")


def _nonzero(self: Array) -> Array:
    """(count, rank): the index of each nonzero element, in order. Ten times as fast as np.argwhere."""
    places = np.flatnonzero(self)
    result = np.empty((places.size, self.ndim), np.int64)
    for axis in range(self.ndim - 1, 0, -1):
        places, result[:, axis] = np.divmod(places, max(self.shape[axis], 1))
    result[:, :1] = places[:, None]  # nothing in a 0-d tensor
    return result


@data_dependent("aten::nonzero.out")
def nonzero(context: KernelContext, self: Array, out: Array) -> None:
    places = _nonzero(self)
    np.copyto(context.resize(out, places.shape), places, casting="unsafe")


@kernel("aten::nonzero_static.out")
def nonzero_static(context: Context, self: Array, size: int, fill_value: int, out: Array) -> BoundCall:
    """(size, rank): the indices of the first nonzero elements, then rows of `fill_value`."""
    if size < 0:
        raise InvalidArgument(f"argument 'size' must not be negative, but is {size}")
    out = context.resize(out, (size, self.ndim))

    def call() -> None:
        places = _nonzero(self)[:size]
        out[: len(places)] = places
        out[len(places) :] = fill_value

    return call


@data_dependent("aten::repeat_interleave.Tensor_out")
def repeat_interleave(context: KernelContext, repeats: Array, output_size: int | None, out: Array) -> None:
    """Each index i, repeats[i] times."""
    check_rank(repeats, (1,), "repeats")
    check_index(repeats, "repeats")
    if np.any(repeats < 0):
        raise InvalidArgument("argument 'repeats' holds a negative number")
    places = np.repeat(np.arange(repeats.size), repeats)
    if output_size is not None and output_size != places.size:
        raise InvalidArgument(f"argument 'output_size' is {output_size}, but the repeats sum to {places.size}")
    np.copyto(context.resize(out, places.shape), places, casting="unsafe")
