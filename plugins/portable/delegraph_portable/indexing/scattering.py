"""Writing by an index tensor along a dim: values put in place, or reduced with the elements there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, contiguous_staging_buffer, staged_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    BOOL,
    DType,
    check_index,
    check_one_of,
    check_same_dtype,
    compute_type,
    is_complex,
    is_integral,
)
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape, wrap_dim

from ..library import kernel
from .indices import (
    check_elementwise_index,
    places_along,
)

Write = Callable[[Array, Array, Array], None]
"""write(flat, places, values): into a flat tensor, at flat places, values of their shape."""


# ---- functions at a place ---------------------------------------------------------------------------


def _put(flat: Array, places: Array, values: Array) -> None:
    flat[places] = values


def reduce_at(ufunc: np.ufunc, flat: Array, places: Array, values: Array) -> None:
    """ufunc.at, which is fast only if all three are 1-d and of one dtype."""
    if flat.dtype == BOOL:  # as numbers a sum of bools is their maximum, and a product their minimum
        extreme = np.maximum if ufunc in (np.add, np.maximum) else np.minimum
        reduce_at(extreme, flat.view(np.uint8), places, values.astype(BOOL).view(np.uint8))
    else:
        ufunc.at(flat, places.reshape(-1), values.astype(flat.dtype, copy=False).reshape(-1))


def _lowest(dtype: DType) -> Any:
    return -np.inf if not is_integral(dtype) else False if dtype == BOOL else np.iinfo(dtype).min


def _highest(dtype: DType) -> Any:
    return np.inf if not is_integral(dtype) else True if dtype == BOOL else np.iinfo(dtype).max


_REDUCTIONS: Final[dict[str, tuple[np.ufunc, Callable[[DType], Any]]]] = {
    "sum": (np.add, lambda dtype: 0),
    "prod": (np.multiply, lambda dtype: 1),
    "mean": (np.add, lambda dtype: 0),
    "amax": (np.maximum, _lowest),
    "amin": (np.minimum, _highest),
}
"""Name -> the function of two elements, and its neutral element."""


def _reduction(reduce: str, include_self: bool, dtype: DType) -> Write:
    if is_complex(dtype) and reduce in ("amax", "amin"):
        raise InvalidType(f"argument 'self' is {dtype}: complex numbers have no order")
    if dtype == BOOL and reduce == "mean":
        raise InvalidType("argument 'self' is bool, of which there is no mean")
    ufunc, neutral = _REDUCTIONS[reduce]

    def write(flat: Array, places: Array, values: Array) -> None:
        # Only the places that the index names lose their elements, to a number that changes no result.
        if not include_self:
            flat[places] = neutral(flat.dtype)
        reduce_at(ufunc, flat, places, values)
        if reduce == "mean":  # of the values that met in a place, and of the element there if it counts
            _divide(flat, np.bincount(places.reshape(-1), minlength=flat.size) + include_self)

    return write


def _divide(flat: Array, counts: Array) -> None:
    counts = np.maximum(counts, 1)  # places that the index does not name keep their element
    if is_integral(flat.dtype):
        np.floor_divide(flat, counts, out=flat, casting="unsafe")
    else:
        np.divide(flat, counts.astype(flat.dtype), out=flat)


# ---- one dim ----------------------------------------------------------------------------------------


def _scatter_call(
    context: Context, write: Write, self: Array, axis: int, index: Array, values: Array, out: Array, dtype: DType
) -> BoundCall:
    """`self` with `write` done along `axis`, computed in `dtype`; the index broadcasts to the values' shape."""
    out = np.atleast_1d(context.resize(out, self.shape))
    if values.size == 0:
        return partial(np.copyto, out, self)
    target = contiguous_staging_buffer(context, out, dtype)
    places = places_along(axis, values.shape, out.shape, "index")

    def function() -> None:
        np.copyto(target.buffer, self, casting="unsafe")
        write(target.buffer.reshape(-1), places(index), values)

    return staged_call(function, [], [target])


def _elementwise(
    context: Context, write: Write, self: Array, dim: int, index: Array, src: Array, out: Array, dtype: DType
) -> BoundCall:
    check_same_dtype(self, "self", out, "out")
    check_same_dtype(src, "src", self, "self")
    src = np.atleast_1d(src)
    axis = check_elementwise_index(self, dim, index, src)
    index = np.atleast_1d(index)
    # As in torch, the source may be larger than the index, which says how much of it is used.
    values = src[tuple(slice(n) for n in index.shape)] if index.size else np.empty(index.shape, src.dtype)
    return _scatter_call(context, write, self, axis, index, values, out, dtype)


def _filled(value: Scalar, self: Array, index: Array) -> Array:
    """The source in which `value` stands everywhere."""
    return np.broadcast_to(as_array(value, self.dtype), index.shape)


@kernel("aten::scatter.src_out")
def scatter(context: Context, self: Array, dim: int, index: Array, src: Array, out: Array) -> BoundCall:
    """self[index[i][j][k]][j][k] = src[i][j][k] for dim 0."""
    return _elementwise(context, _put, self, dim, index, src, out, self.dtype)


@kernel("aten::scatter.value_out")
def scatter_value(context: Context, self: Array, dim: int, index: Array, value: Scalar, out: Array) -> BoundCall:
    return scatter(context, self, dim, index, _filled(value, self, index), out)


@kernel("aten::scatter_add.out")
def scatter_add(context: Context, self: Array, dim: int, index: Array, src: Array, out: Array) -> BoundCall:
    return scatter_reduce(context, self, dim, index, src, "sum", True, out)


@kernel("aten::scatter_reduce.two_out")
def scatter_reduce(
    context: Context, self: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool, out: Array
) -> BoundCall:
    """Sum, product, mean or extreme of the values that meet in a place, and of the element there."""
    check_one_of(reduce, "reduce", tuple(_REDUCTIONS))
    write = _reduction(reduce, include_self, self.dtype)
    return _elementwise(context, write, self, dim, index, src, out, compute_type(self.dtype))


_OLD_NAMES: Final = {"add": "sum", "multiply": "prod"}


@kernel("aten::scatter.reduce_out")
def scatter_with(
    context: Context, self: Array, dim: int, index: Array, src: Array, reduce: str, out: Array
) -> BoundCall:
    check_one_of(reduce, "reduce", tuple(_OLD_NAMES))
    return scatter_reduce(context, self, dim, index, src, _OLD_NAMES[reduce], True, out)


@kernel("aten::scatter.value_reduce_out")
def scatter_value_with(
    context: Context, self: Array, dim: int, index: Array, value: Scalar, reduce: str, out: Array
) -> BoundCall:
    return scatter_with(context, self, dim, index, _filled(value, self, index), reduce, out)


@kernel("aten::index_reduce.out")
def index_reduce(
    context: Context, self: Array, dim: int, index: Array, source: Array, reduce: str, include_self: bool, out: Array
) -> BoundCall:
    """Slices of source, as many along `dim` as index (n,) has elements, reduced with those of `self` that it names."""
    check_one_of(reduce, "reduce", ("prod", "mean", "amax", "amin"))
    check_index(index, "index")
    check_rank(index, (0, 1), "index")
    check_same_dtype(self, "self", out, "out")
    check_same_dtype(source, "source", self, "self")
    axis = wrap_dim(dim, self.ndim)
    values = np.atleast_1d(source)
    check_shape(source, (*self.shape[:axis], index.size, *self.shape[axis + 1 :]) if self.ndim else (), "source")
    if self.ndim == 0 and index.size != 1:
        raise InvalidArgument(f"argument 'index' of shape {index.shape} does not fit a 0-d tensor")
    write = _reduction(reduce, include_self, self.dtype)
    index = index.reshape(-1, *(1,) * (values.ndim - 1 - axis))
    return _scatter_call(context, write, self, axis, index, values, out, compute_type(self.dtype))
