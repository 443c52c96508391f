"""Reading and writing by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.kernels import BoundCall, KernelContext

from .evaluate import as_array
from .library import Array, Context, Scalar, data_dependent, kernel
from .promotion import BOOL, check_index, check_result, check_same_dtype
from .shapes import Index, Shape, along, broadcast, check_broadcasts, check_rank, wrap_dim

Indices = Sequence[Array | None]


def _check_range(index: Array, size: int, low: int, name: str) -> None:
    """Raise `InvalidArgument` unless low <= index < size everywhere."""
    if index.size and (int(index.min()) < low or int(index.max()) >= size):
        wrong = index[(index < low) | (index >= size)].flat[0]
        raise InvalidArgument(f"argument {name!r} holds {wrong}, but the dimension has size {size}")


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
    _check_range(index, source.shape[axis], 0, name)
    np.take(source, index, axis, out=out, mode="clip")  # with "raise", NumPy fills a copy of out first


def _grid(dim: int, index: Array, shape: Shape) -> Index:
    """What selects, for each place of `index`, the element of a tensor in that place but for `dim`."""
    grids: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)]) if index.ndim else []
    grids[dim] = index
    return tuple(grids)


def _check_elementwise_index(self: Array, dim: int, index: Array, bound: Array | None) -> int:
    check_index(index, "index")
    axis = wrap_dim(dim, self.ndim)
    if index.size == 0:
        return axis
    if max(self.ndim, 1) != max(index.ndim, 1):
        raise InvalidArgument(f"argument 'index' has shape {index.shape}, but 'self' has shape {self.shape}")
    for d, size in enumerate(index.shape):
        outside = bound is not None and bound.ndim and size > bound.shape[d]
        if outside or (self.ndim and d != axis and size > self.shape[d]):
            raise InvalidArgument(f"argument 'index' of shape {index.shape} is larger than the tensor in dimension {d}")
    return axis


@kernel("aten::gather.out")
def gather(context: Context, self: Array, dim: int, index: Array, sparse_grad: bool, out: Array) -> BoundCall:
    """out[i][j][k] = self[index[i][j][k]][j][k] for dim 0."""
    check_result(self.dtype, out)
    axis = _check_elementwise_index(self, dim, index, None)
    out = context.resize(out, index.shape)

    def call() -> None:
        source, places = np.atleast_1d(self), np.atleast_1d(index)
        if places.size:
            _check_range(places, source.shape[axis], 0, "index")
            np.copyto(np.atleast_1d(out), source[_grid(axis, places, source.shape)], casting="unsafe")

    return call


def _scatter(context: Context, add: bool, self: Array, dim: int, index: Array, src: Array, out: Array) -> BoundCall:
    check_same_dtype(self, "self", out, "out")
    check_same_dtype(src, "src", self, "self")
    axis = _check_elementwise_index(self, dim, index, src)
    out = context.resize(out, self.shape)

    def call() -> None:
        np.copyto(out, self)
        if index.size == 0:
            return
        target, places = np.atleast_1d(out), np.atleast_1d(index)
        _check_range(places, target.shape[axis], 0, "index")
        values = src[tuple(slice(n) for n in index.shape)] if src.ndim else src
        if add:
            _accumulate(target, _grid(axis, places, target.shape), np.broadcast_to(values, index.shape))
        else:
            target[_grid(axis, places, target.shape)] = values

    return call


def _accumulate(target: Array, where: Index, values: Array) -> None:
    if target.dtype == BOOL:
        np.logical_or.at(target, where, values)
    else:
        np.add.at(target, where, values)


@kernel("aten::scatter.src_out")
def scatter(context: Context, self: Array, dim: int, index: Array, src: Array, out: Array) -> BoundCall:
    return _scatter(context, False, self, dim, index, src, out)


@kernel("aten::scatter.value_out")
def scatter_value(context: Context, self: Array, dim: int, index: Array, value: Scalar, out: Array) -> BoundCall:
    return _scatter(context, False, self, dim, index, as_array(value, self.dtype), out)


@kernel("aten::scatter_add.out")
def scatter_add(context: Context, self: Array, dim: int, index: Array, src: Array, out: Array) -> BoundCall:
    return _scatter(context, True, self, dim, index, src, out)


@kernel("aten::select_scatter.out")
def select_scatter(context: Context, self: Array, src: Array, dim: int, index: int, out: Array) -> BoundCall:
    axis = wrap_dim(dim, self.ndim)
    if self.ndim == 0 or not -self.shape[axis] <= index < self.shape[axis]:
        raise InvalidArgument(f"argument 'index' is {index}, but 'self' has shape {self.shape}")
    return _overwrite(context, self, src, along(axis, index), out)


@kernel("aten::slice_scatter.out")
def slice_scatter(
    context: Context, self: Array, src: Array, dim: int, start: int | None, end: int | None, step: int, out: Array
) -> BoundCall:
    axis = wrap_dim(dim, self.ndim)
    if self.ndim == 0 or step < 1:
        raise InvalidArgument(f"argument 'step' is {step} and 'self' has shape {self.shape}: nothing to slice")
    return _overwrite(context, self, src, along(axis, slice(start, end, step)), out)


def _overwrite(context: Context, self: Array, src: Array, where: Index, out: Array) -> BoundCall:
    """`self` with `src` in the place `where`."""
    check_result(self.dtype, out)
    expected = self[where].shape
    if src.shape != expected:
        raise InvalidArgument(f"argument 'src' must have shape {expected}, but has shape {src.shape}")
    out = context.resize(out, self.shape)

    def call() -> None:
        np.copyto(out, self, casting="unsafe")
        np.copyto(out[where], src, casting="unsafe")

    return call


# ---- several index tensors --------------------------------------------------------------------------


def _is_mask(index: Array | None) -> bool:
    return index is not None and index.dtype in (BOOL, np.uint8)


def _expand_masks(self: Array, indices: Indices) -> list[Array | None]:
    """`indices` with each mask replaced by the index tensors of its true places."""
    expanded: list[Array | None] = []
    for index in indices:
        if index is None or not _is_mask(index):
            expanded.append(index)
            continue
        own = self.shape[len(expanded) : len(expanded) + index.ndim]
        if index.shape != own:
            raise InvalidArgument(f"a mask in argument 'indices' has shape {index.shape}, but the dims it masks {own}")
        expanded.extend(np.nonzero(index) if index.ndim else (np.zeros(int(index != 0), np.int64),))
    return expanded


def _index_shape(self: Array, indices: Sequence[Array | None]) -> Shape:
    """The shape of self[indices]: index tensors broadcast; they stand in front unless they are adjacent."""
    if len(indices) > self.ndim:
        raise InvalidArgument(f"argument 'indices' has {len(indices)} tensors, but 'self' has shape {self.shape}")
    used = [d for d, index in enumerate(indices) if index is not None]
    if not used:
        raise InvalidArgument("argument 'indices' holds no index tensor")
    for d in used:
        check_index(indices[d], "indices")  # type: ignore[arg-type]
    common = broadcast(*(indices[d].shape for d in used))  # type: ignore[union-attr]
    rest = [size for d, size in enumerate(self.shape) if d not in used]
    position = used[0] if used[-1] - used[0] + 1 == len(used) else 0
    return (*rest[:position], *common, *rest[position:])


def _places(self: Array, indices: Sequence[Array | None]) -> Index:
    """`indices` as NumPy takes them, checked against the sizes."""
    for d, index in enumerate(indices):
        if index is not None:
            _check_range(index, self.shape[d], -self.shape[d], "indices")
    return tuple(slice(None) if index is None else index for index in indices)


@data_dependent("aten::index.Tensor_out")
def index_tensor(context: KernelContext, self: Array, indices: Indices, out: Array) -> None:
    """self[indices], where None takes a whole dim; bool and uint8 tensors are masks."""
    check_result(self.dtype, out)
    expanded = _expand_masks(self, indices)
    out = context.resize(out, _index_shape(self, expanded))
    np.copyto(out, self[_places(self, expanded)], casting="unsafe")


def _put(self: Array, indices: Indices, values: Array, accumulate: bool) -> None:
    expanded = _expand_masks(self, indices)
    shape = _index_shape(self, expanded)
    check_broadcasts(values, shape, "values")
    places = _places(self, expanded)
    if accumulate:
        _accumulate(self, places, np.broadcast_to(values, shape))
    else:
        self[places] = values


@kernel("aten::index_put_")
def index_put_in_place(context: Context, self: Array, indices: Indices, values: Array, accumulate: bool) -> BoundCall:
    """self[indices] = values, or += where an index may repeat."""
    check_same_dtype(values, "values", self, "self")
    return partial(_put, self, indices, values, accumulate)


@kernel("aten::index_put.out")
def index_put(
    context: Context, self: Array, indices: Indices, values: Array, accumulate: bool, out: Array
) -> BoundCall:
    check_same_dtype(values, "values", self, "self")
    check_same_dtype(out, "out", self, "self")
    out = context.resize(out, self.shape)

    def call() -> None:
        np.copyto(out, self)
        _put(out, indices, values, accumulate)

    return call


# ---- masks and counts: shapes that depend on content ------------------------------------------------


@data_dependent("aten::masked_select.out")
def masked_select(context: KernelContext, self: Array, mask: Array, out: Array) -> None:
    if mask.dtype != BOOL:
        raise InvalidType(f"argument 'mask' must be bool, but is {mask.dtype}")
    check_result(self.dtype, out)
    shape = broadcast(self.shape, mask.shape)
    chosen = np.broadcast_to(self, shape)[np.broadcast_to(mask, shape)]
    np.copyto(context.resize(out, chosen.shape), chosen, casting="unsafe")


@kernel("aten::masked_scatter.out")
def masked_scatter(context: Context, self: Array, mask: Array, source: Array, out: Array) -> BoundCall:
    """`self` with its masked places filled by `source`'s elements in order."""
    if mask.dtype != BOOL:
        raise InvalidType(f"argument 'mask' must be bool, but is {mask.dtype}")
    check_same_dtype(source, "source", self, "self")
    check_result(self.dtype, out)
    out = context.resize(out, broadcast(self.shape, mask.shape))

    def call() -> None:
        places = np.broadcast_to(mask, out.shape)
        count = int(np.count_nonzero(places))
        if count > source.size:
            raise InvalidArgument(f"argument 'source' has {source.size} elements, but the mask chooses {count}")
        np.copyto(out, self, casting="unsafe")
        out[places] = source.reshape(-1)[:count]

    return call


@data_dependent("aten::nonzero.out")
def nonzero(context: KernelContext, self: Array, out: Array) -> None:
    """(count, rank): the index of each nonzero element, in order."""
    places = np.argwhere(self) if self.ndim else np.zeros((int(self != 0), 0), np.int64)
    np.copyto(context.resize(out, places.shape), places, casting="unsafe")


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
