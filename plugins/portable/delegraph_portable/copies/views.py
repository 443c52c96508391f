"""Views, copied: torch's strided views are NumPy views here, copied into `out`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.program import ScalarType, numpy_dtype
from delegraph.runtime.numpy_kernels.evaluate import copy_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import is_complex, is_float8, real_type
from delegraph.runtime.numpy_kernels.shapes import along, broadcasts, full_shape, wrap_dim, wrap_dims

from ..library import kernel, prepare_out

View = Callable[..., Array]


def alias(self: Array) -> Array:
    return self


def as_strided(self: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> Array:
    """Elements of the tensor's memory in the order in which it is laid out."""
    order = np.argsort([-s for s in self.strides], kind="stable")
    storage = self.transpose(order).reshape(-1)
    offset = storage_offset or 0
    if len(size) != len(stride) or any(s < 0 for s in (*size, *stride, offset)):
        raise InvalidArgument(f"arguments 'size' {list(size)}, 'stride' {list(stride)} describe no view")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= storage.size:
        raise InvalidArgument(f"the view reaches element {last}, but argument 'self' has {storage.size}")
    if 0 in size:
        return np.empty(tuple(size), self.dtype)
    return _strided(storage[offset:], tuple(size), tuple(step * self.itemsize for step in stride))


def _strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """NumPy's `as_strided`, which does not know the names of float8: a view of their bits is made."""
    bits = array.view(np.uint8) if is_float8(array.dtype) else array
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(array.dtype)


def diagonal(self: Array, offset: int, dim1: int, dim2: int) -> Array:
    dim1, dim2 = wrap_dim(dim1, self.ndim, "dim1"), wrap_dim(dim2, self.ndim, "dim2")
    return np.diagonal(self, offset, dim1, dim2)


def expand(self: Array, size: Sequence[int], implicit: bool = False) -> Array:
    """-1 keeps a dim's size."""
    leading = len(size) - self.ndim
    if leading < 0:
        raise InvalidArgument(f"argument 'size' {list(size)} has fewer dims than the tensor's shape {self.shape}")
    own = (None,) * leading + self.shape
    shape = tuple(have if want == -1 and have is not None else want for want, have in zip(size, own, strict=True))
    if any(s < 0 for s in shape) or not broadcasts(self.shape, shape):
        raise InvalidArgument(f"a tensor of shape {self.shape} cannot be expanded to argument 'size' {list(size)}")
    return np.broadcast_to(self, shape)


def narrow(self: Array, dim: int, start: int, length: int) -> Array:
    dim = wrap_dim(dim, self.ndim)
    size = self.shape[dim]
    start = start + size if start < 0 else start
    if not 0 <= start <= start + length <= size:
        raise InvalidArgument(
            f"arguments 'start' {start} and 'length' {length} do not lie in dimension {dim} of {size}"
        )
    part: Array = self[along(dim, slice(start, start + length))]
    return part


def permute(self: Array, dims: Sequence[int]) -> Array:
    if len(dims) != self.ndim:
        raise InvalidArgument(f"argument 'dims' is {list(dims)}, but the tensor has {self.ndim} dimensions")
    return self.transpose(wrap_dims(dims, self.ndim, "dims"))


def select(self: Array, dim: int, index: int) -> Array:
    dim = _existing_dim(self, dim)
    size = self.shape[dim]
    if not -size <= index < size:
        raise InvalidArgument(f"argument 'index' is {index}, but dimension {dim} has size {size}")
    part: Array = self[along(dim, index)]
    return part


def slice_along(self: Array, dim: int, start: int | None, end: int | None, step: int) -> Array:
    dim = _existing_dim(self, dim)
    if step < 1:
        raise InvalidArgument(f"argument 'step' must be positive, but is {step}")
    part: Array = self[along(dim, slice(start, end, step))]
    return part


def squeeze(self: Array, dim: int | Sequence[int]) -> Array:
    """Without those of the dims `dim` that have size 1."""
    dims = wrap_dims([dim] if isinstance(dim, int) else dim, self.ndim)
    return self.reshape([size for axis, size in enumerate(self.shape) if axis not in dims or size != 1])


def transpose(self: Array, dim0: int, dim1: int) -> Array:
    if self.ndim == 0:
        return self
    return self.swapaxes(wrap_dim(dim0, self.ndim, "dim0"), wrap_dim(dim1, self.ndim, "dim1"))


def matrix_transpose(self: Array) -> Array:
    if self.ndim > 2:
        raise InvalidArgument(f"argument 'self' must have at most 2 dimensions, but has shape {self.shape}")
    return self.T


def unfold(self: Array, dimension: int, size: int, step: int) -> Array:
    """Windows of `size`, `step` apart, as a new last dim."""
    if self.ndim == 0:
        if not 0 <= size <= 1 or dimension not in (-1, 0):
            raise InvalidArgument(f"arguments 'dimension' {dimension} and 'size' {size} do not fit a 0-d tensor")
        return self.reshape(1)[:size]
    dimension = wrap_dim(dimension, self.ndim, "dimension")
    if not 0 <= size <= self.shape[dimension] or step < 1:
        raise InvalidArgument(f"arguments 'size' {size} and 'step' {step} do not fit a dim of {self.shape[dimension]}")
    shape, strides = list(self.shape), list(self.strides)
    shape[dimension] = (self.shape[dimension] - size) // step + 1
    strides[dimension] *= step
    return _strided(self, (*shape, size), (*strides, self.strides[dimension]))


def unsqueeze(self: Array, dim: int) -> Array:
    return np.expand_dims(self, wrap_dim(dim, self.ndim + 1))


def view(self: Array, size: Sequence[int]) -> Array:
    return self.reshape(full_shape(size, self.size))


def view_dtype(self: Array, dtype: int) -> Array:
    """The same bits as elements of another type, of which a row of the last dim holds more or fewer."""
    new_type = numpy_dtype(ScalarType(dtype))
    if new_type.itemsize != self.itemsize and (self.ndim == 0 or self.shape[-1] * self.itemsize % new_type.itemsize):
        raise InvalidArgument(f"argument 'dtype' is {new_type}, which does not divide rows of 'self' {self.shape}")
    if new_type.itemsize == self.itemsize:
        return self.view(new_type)
    return np.ascontiguousarray(self).view(new_type)


def view_as_real(self: Array) -> Array:
    """(*) complex -> (*, 2) real."""
    if not is_complex(self.dtype):
        raise InvalidArgument(f"argument 'self' must be complex, but is {self.dtype}")
    return np.stack((self.real, self.imag), -1, dtype=real_type(self.dtype))


def view_as_complex(self: Array) -> Array:
    """(*, 2) real -> (*) complex."""
    complex_dtype = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}.get(self.dtype)
    if complex_dtype is None or not self.ndim or self.shape[-1] != 2:
        raise InvalidArgument(f"argument 'self' must be pairs of float32 or float64, but is {self.dtype} {self.shape}")
    return np.ascontiguousarray(self).view(complex_dtype)[..., 0]


def _existing_dim(self: Array, dim: int) -> int:
    if self.ndim == 0:
        raise InvalidArgument("argument 'self' is a 0-d tensor, which has no dimension to take from")
    return wrap_dim(dim, self.ndim)


_VIEWS: Final[dict[str, View]] = {
    "aten::alias_copy.out": alias,
    "aten::as_strided_copy.out": as_strided,
    "aten::detach_copy.out": alias,
    "aten::diagonal_copy.out": diagonal,
    "aten::expand_copy.out": expand,
    "aten::lift.out": alias,
    "aten::lift_fresh_copy.out": alias,
    "aten::narrow_copy.out": narrow,
    "aten::permute_copy.out": permute,
    "aten::select_copy.int_out": select,
    "aten::slice_copy.Tensor_out": slice_along,
    "aten::squeeze_copy.dim_out": squeeze,
    "aten::squeeze_copy.dims_out": squeeze,
    "aten::t_copy.out": matrix_transpose,
    "aten::transpose_copy.int_out": transpose,
    "aten::unfold_copy.out": unfold,
    "aten::unsqueeze_copy.out": unsqueeze,
    "aten::view_as_complex_copy.out": view_as_complex,
    "aten::view_as_real_copy.out": view_as_real,
    "aten::view_copy.dtype_out": view_dtype,
    "aten::view_copy.out": view,
}


def _copy_view(view: View, context: Context, self: Array, *args: Any) -> BoundCall:
    *arguments, out = args
    source = view(self, *arguments)
    out = prepare_out(context, out, source.dtype, source.shape)
    if source.size and not np.may_share_memory(source, self):
        # Strides that no NumPy view can express: `source` is a copy of the current content, so take it at each call.
        return lambda: np.copyto(out, view(self, *arguments), casting="unsafe")
    return copy_call(out, source)


for _op, _view in _VIEWS.items():
    kernel(_op)(partial(_copy_view, _view))
