"""Tensors joined and taken apart: cat, stack, split, unbind, and tensors repeated, rolled and flipped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import copy_call, nothing
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_result, result_type
from delegraph.runtime.numpy_kernels.shapes import Shape, along, wrap_dim, wrap_dims

from ..library import in_turn, kernel, prepare_out
from .views import slice_along


@kernel("aten::cat.out")
def cat(context: Context, tensors: Sequence[Array], dim: int, out: Array) -> BoundCall:
    """Along `dim`. Tensors of shape (0,) are ignored, as torch does for history's sake."""
    if not tensors:
        raise InvalidArgument("argument 'tensors' is empty")
    parts = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    dim = wrap_dim(dim, parts[0].ndim)
    rests = {(*t.shape[:dim], *t.shape[dim + 1 :]) for t in parts}
    if parts[0].ndim == 0 or len(rests) != 1 or any(t.ndim != parts[0].ndim for t in parts):
        raise InvalidArgument(
            f"argument 'tensors' has shapes {[t.shape for t in tensors]}, which do not join in dim {dim}"
        )
    ends = list(accumulate(t.shape[dim] for t in parts))
    out = prepare_out(
        context, out, result_type(*tensors), (*parts[0].shape[:dim], ends[-1], *parts[0].shape[dim + 1 :])
    )
    if all(t.dtype == out.dtype for t in parts):
        return partial(np.concatenate, parts, dim, out)
    starts = [0, *ends]
    return in_turn(*(copy_call(out[along(dim, slice(starts[i], ends[i]))], t) for i, t in enumerate(parts)))


@kernel("aten::stack.out")
def stack(context: Context, tensors: Sequence[Array], dim: int, out: Array) -> BoundCall:
    if not tensors or any(t.shape != tensors[0].shape for t in tensors):
        raise InvalidArgument(
            f"argument 'tensors' must hold tensors of one shape, but has {[t.shape for t in tensors]}"
        )
    dim = wrap_dim(dim, tensors[0].ndim + 1)
    shape = tensors[0].shape
    out = prepare_out(context, out, result_type(*tensors), (*shape[:dim], len(tensors), *shape[dim:]))
    return in_turn(*(copy_call(out[along(dim, i)], t) for i, t in enumerate(tensors)))


# ---- taken apart ------------------------------------------------------------------------------------


def _copy_parts(context: Context, parts: Sequence[Array], out: Sequence[Array]) -> BoundCall:
    if len(parts) != len(out):
        raise InvalidArgument(f"argument 'out' has {len(out)} tensors, but there are {len(parts)} parts")
    for part, result in zip(parts, out, strict=True):
        check_result(part.dtype, result)
    return in_turn(*(copy_call(context.resize(o, part.shape), part) for part, o in zip(parts, out, strict=True)))


@kernel("aten::split_copy.Tensor_out")
def split(context: Context, self: Array, split_size: int, dim: int, out: Sequence[Array]) -> BoundCall:
    dim = wrap_dim(dim, self.ndim)
    size = self.shape[dim] if self.ndim else 0
    if self.ndim == 0 or split_size < 0 or (split_size == 0 and size):
        raise InvalidArgument(f"argument 'split_size' {split_size} does not split a tensor of shape {self.shape}")
    count = max(-(-size // split_size), 1) if split_size else 1
    parts = [slice_along(self, dim, i * split_size, (i + 1) * split_size, 1) for i in range(count)]
    return _copy_parts(context, parts, out)


@kernel("aten::split_with_sizes_copy.out")
def split_with_sizes(
    context: Context, self: Array, split_sizes: Sequence[int], dim: int, out: Sequence[Array]
) -> BoundCall:
    dim = wrap_dim(dim, self.ndim)
    if self.ndim == 0 or any(s < 0 for s in split_sizes) or sum(split_sizes) != self.shape[dim]:
        raise InvalidArgument(f"argument 'split_sizes' {list(split_sizes)} does not fill dim {dim} of {self.shape}")
    ends = list(accumulate(split_sizes))
    parts = [slice_along(self, dim, end - size, end, 1) for size, end in zip(split_sizes, ends, strict=True)]
    return _copy_parts(context, parts, out)


@kernel("aten::unbind_copy.int_out")
def unbind(context: Context, self: Array, dim: int, out: Sequence[Array]) -> BoundCall:
    dim = wrap_dim(dim, self.ndim)
    if self.ndim == 0:
        raise InvalidArgument("argument 'self' is a 0-d tensor, which has no dimension to take apart")
    return _copy_parts(context, [self[along(dim, i)] for i in range(self.shape[dim])], out)


# ---- rearranged -------------------------------------------------------------------------------------


@kernel("aten::repeat.out")
def repeat(context: Context, self: Array, repeats: Sequence[int], out: Array) -> BoundCall:
    """Like np.tile: the shape, padded with leading ones, times `repeats`."""
    leading = len(repeats) - self.ndim
    if leading < 0 or any(r < 0 for r in repeats):
        raise InvalidArgument(f"argument 'repeats' is {list(repeats)}, for a tensor of shape {self.shape}")
    shape: Shape = (1,) * leading + self.shape
    out = prepare_out(context, out, self.dtype, tuple(n * r for n, r in zip(shape, repeats, strict=True)))
    if out.size == 0:
        return nothing
    # (r0, n0, r1, n1, …): the source broadcasts over the r's.
    tiled = tuple(size for pair in zip(repeats, shape, strict=True) for size in pair)
    source = self.reshape([size for n in shape for size in (1, n)])
    if out.flags.c_contiguous and (np.may_share_memory(source, self)):
        return copy_call(out.reshape(tiled), source)
    return lambda: np.copyto(out, np.tile(self, tuple(repeats)), casting="unsafe")


@kernel("aten::roll.out")
def roll(context: Context, self: Array, shifts: Sequence[int], dims: Sequence[int], out: Array) -> BoundCall:
    """Without `dims`, the flattened tensor is rolled."""
    axes = wrap_dims(dims, self.ndim, "dims") if dims else None
    if len(shifts) != (len(axes) if axes else 1):
        raise InvalidArgument(f"arguments 'shifts' {list(shifts)} and 'dims' {list(dims)} must have one length")
    out = prepare_out(context, out, self.dtype, self.shape)
    moves = (tuple(shifts), axes) if axes and self.ndim else (shifts[0], None)
    return lambda: np.copyto(out, np.roll(self, *moves), casting="unsafe")


@kernel("aten::flip.out")
def flip(context: Context, self: Array, dims: Sequence[int], out: Array) -> BoundCall:
    axes = wrap_dims(dims, self.ndim, "dims")
    return copy_call(prepare_out(context, out, self.dtype, self.shape), np.flip(self, axes) if self.ndim else self)
