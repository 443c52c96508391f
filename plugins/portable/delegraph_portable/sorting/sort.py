"""Order along a dim: sort, the largest or smallest elements, medians and modes. NaN counts as the largest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import compute_type, is_complex
from delegraph.runtime.numpy_kernels.shapes import Shape, wrap_dim

from ..library import kernel, prepare_out
from .ordering import first_places, kth_place, sorted_places

Places = Callable[[Array], Array]
"""(…, n) -> int64 indices (…, m) into the last axis."""


def _chosen_call(
    context: Context, places: Places, self: Array, dim: int, count: int | None, values: Array, indices: Array
) -> BoundCall:
    """`self` at `places(self)`, with `dim` as the last axis: `count` of them, or one, kept as no dim for None."""
    axis = wrap_dim(dim, self.ndim)
    shape = _chosen_shape(self, axis, count)
    outs = [prepare_out(context, values, self.dtype, shape), context.resize(indices, shape)]
    if count is None or self.ndim == 0:
        outs = [np.expand_dims(out, axis) for out in outs]
    source = np.moveaxis(np.atleast_1d(self), axis, -1)
    return partial(_choose, places, source, *(np.moveaxis(out, axis, -1) for out in outs))


def _chosen_shape(self: Array, axis: int, count: int | None) -> Shape:
    if self.ndim == 0:
        return ()
    return (*self.shape[:axis], *(() if count is None else (count,)), *self.shape[axis + 1 :])


def _choose(places: Places, source: Array, values: Array, indices: Array) -> None:
    if values.size == 0:
        return
    x = source.astype(compute_type(source.dtype), copy=False)
    chosen = places(x)
    np.copyto(indices, chosen, casting="unsafe")
    np.copyto(values, np.take_along_axis(x, chosen, -1), casting="unsafe")


def _check_ordered(self: Array) -> None:
    if is_complex(self.dtype):
        raise InvalidType(f"argument 'self' is {self.dtype}: complex numbers have no order")


# ---- sort, topk -------------------------------------------------------------------------------------


@kernel("aten::sort.values")
def sort(context: Context, self: Array, dim: int, descending: bool, values: Array, indices: Array) -> BoundCall:
    """Stable, though nobody asks for it."""
    _check_ordered(self)
    axis = wrap_dim(dim, self.ndim)
    places = partial(sorted_places, descending=descending)
    return _chosen_call(context, places, self, dim, self.shape[axis] if self.ndim else 1, values, indices)


@kernel("aten::sort.values_stable")
def sort_stable(
    context: Context, self: Array, stable: bool | None, dim: int, descending: bool, values: Array, indices: Array
) -> BoundCall:
    return sort(context, self, dim, descending, values, indices)


@kernel("aten::topk.values")
def topk(
    context: Context, self: Array, k: int, dim: int, largest: bool, sorted: bool, values: Array, indices: Array
) -> BoundCall:
    """The `k` first along `dim` in order (also where `sorted` is false); NaN counts as the largest."""
    _check_ordered(self)
    _check_count(self, k, dim, 0)
    return _chosen_call(context, partial(first_places, k=k, descending=largest), self, dim, k, values, indices)


def _check_count(self: Array, k: int, dim: int, least: int) -> None:
    size = self.shape[wrap_dim(dim, self.ndim)] if self.ndim else 1
    if not least <= k <= size:
        raise InvalidArgument(f"argument 'k' is {k}, but dimension {dim} has size {size}")


# ---- one element: k-th value, median, mode ----------------------------------------------------------


def _one_call(
    context: Context, places: Places, self: Array, dim: int, keepdim: bool, values: Array, indices: Array
) -> BoundCall:
    _check_ordered(self)
    axis = wrap_dim(dim, self.ndim)
    if self.ndim and self.shape[axis] == 0:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has no element to choose in dimension {dim}")
    return _chosen_call(context, places, self, dim, 1 if keepdim else None, values, indices)


@kernel("aten::kthvalue.values")
def kthvalue(
    context: Context, self: Array, k: int, dim: int, keepdim: bool, values: Array, indices: Array
) -> BoundCall:
    """The `k`-th smallest, counted from 1."""
    call = _one_call(context, lambda x: kth_place(x, k - 1)[..., None], self, dim, keepdim, values, indices)
    _check_count(self, k, dim, 1)
    return call


def _median(x: Array) -> Array:
    """The lower of two in the middle; the first NaN where there is one."""
    missing = x != x
    middle = kth_place(x, (x.shape[-1] - 1) // 2)
    return np.where(missing.any(-1), missing.argmax(-1), middle)[..., None]


def _nanmedian(x: Array) -> Array:
    """The lower of two in the middle of the numbers; NaN where there is none."""
    missing = x != x
    if not missing.any():
        return kth_place(x, (x.shape[-1] - 1) // 2)[..., None]
    numbers = np.count_nonzero(~missing, -1, keepdims=True)
    return np.take_along_axis(sorted_places(x), np.maximum(numbers - 1, 0) // 2, -1)


def _mode(x: Array) -> Array:
    """The last place of the value that occurs most often; of several such values the smallest."""
    order = sorted_places(x)
    ordered = np.take_along_axis(x, order, -1)
    numbers = np.arange(x.shape[-1])
    starts = np.zeros(x.shape, np.int64)
    starts[..., 1:] = np.where(ordered[..., 1:] != ordered[..., :-1], numbers[1:], 0)
    lengths = numbers - np.maximum.accumulate(starts, -1)  # the first longest is where the first longest run ends
    return np.take_along_axis(order, lengths.argmax(-1)[..., None], -1)


def _along_dim(
    places: Places, context: Context, self: Array, dim: int, keepdim: bool, values: Array, indices: Array
) -> BoundCall:
    return _one_call(context, places, self, dim, keepdim, values, indices)


def _of_all(places: Places, context: Context, self: Array, out: Array) -> BoundCall:
    """Of an empty tensor NaN, or NaN cast to the integer type."""
    _check_ordered(self)
    out = prepare_out(context, out, self.dtype, ())

    def call() -> None:
        x = self.reshape(-1).astype(compute_type(self.dtype), copy=False)
        out[...] = x[places(x)[0]] if x.size else np.array(np.nan).astype(out.dtype)

    return call


for _name, _places in {"median": _median, "nanmedian": _nanmedian}.items():
    kernel(f"aten::{_name}.out")(partial(_of_all, _places))
    kernel(f"aten::{_name}.dim_values")(partial(_along_dim, _places))
kernel("aten::mode.values")(partial(_along_dim, _mode))
