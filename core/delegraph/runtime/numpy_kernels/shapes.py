"""Shapes and dims of arguments -> shapes of results, with torch's wrapping of negative dims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from delegraph.errors import InvalidArgument
from delegraph.runtime.numpy_kernels.prepared import Array

__all__ = [
    "Index",
    "Shape",
    "along",
    "broadcast",
    "broadcasts",
    "check_broadcasts",
    "check_rank",
    "check_shape",
    "full_shape",
    "per_dim",
    "reduced",
    "reduction_axes",
    "trailing",
    "wrap_dim",
    "wrap_dims",
]

Shape: TypeAlias = tuple[int, ...]
"""The sizes of a tensor's dims."""

Index: TypeAlias = tuple[Any, ...]
"""The index in the brackets of `array[index]`."""


def broadcast(*shapes: Shape) -> Shape:
    """The shape that all `shapes` broadcast to."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and result[axis] not in (1, size):
                raise InvalidArgument(f"shapes {' and '.join(map(str, shapes))} do not broadcast together")
            if size != 1:
                result[axis] = size
    return tuple(result)


def wrap_dim(dim: int, rank: int, name: str = "dim") -> int:
    """`dim` counted from the front. A 0-d tensor has the dims 0 and -1."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise InvalidArgument(f"argument {name!r} is {dim}, but the tensor has {rank} dimensions")
    return dim % size


def wrap_dims(dims: Sequence[int], rank: int, name: str = "dim") -> Shape:
    """Distinct `dims` counted from the front."""
    wrapped = tuple(wrap_dim(d, rank, name) for d in dims)
    if len(set(wrapped)) != len(wrapped):
        raise InvalidArgument(f"argument {name!r} names a dimension twice: {list(dims)}")
    return wrapped


def reduction_axes(dims: Sequence[int] | None, rank: int) -> Shape:
    """The axes that a reduction over `dims` reduces: all of them for None or an empty list."""
    return wrap_dims(dims, rank)[:rank] if dims else tuple(range(rank))


def reduced(shape: Shape, axes: Shape, keepdim: bool) -> Shape:
    """The shape that is left when `axes` of `shape` are reduced."""
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def full_shape(size: Sequence[int], numel: int, name: str = "size") -> Shape:
    """`size` with a -1 replaced by the size that makes `numel` elements."""
    if size.count(-1) > 1 or any(s < -1 for s in size):
        raise InvalidArgument(f"argument {name!r} is no shape: {list(size)}")
    known = math.prod(s for s in size if s != -1)
    if -1 not in size:
        shape = tuple(size)
    elif known == 0 or numel % known:
        raise InvalidArgument(f"argument {name!r} is {list(size)}, which {numel} elements do not fill")
    else:
        shape = tuple(numel // known if s == -1 else s for s in size)
    if math.prod(shape) != numel:
        raise InvalidArgument(f"argument {name!r} is {list(size)}, which {numel} elements do not fill")
    return shape


def along(dim: int, index: Any) -> Index:
    """The index that applies `index` to dimension `dim` and takes all of the others: a view, also where it is 0-d."""
    return (*(slice(None),) * dim, index, ...)


def trailing(indices: Iterable[Any]) -> Index:
    """The index that applies `indices` to the last dims and takes all of the others."""
    return (..., *indices)


def per_dim(values: Sequence[int], rank: int, name: str) -> Shape:
    """`values` for each of `rank` dims; a single value stands for all."""
    if len(values) == 1:
        return (values[0],) * rank
    if len(values) != rank:
        raise InvalidArgument(f"argument {name!r} must have 1 or {rank} values, but is {list(values)}")
    return tuple(values)


def broadcasts(shape: Shape, target: Shape) -> bool:
    """Whether a tensor of `shape` can be expanded to `target`."""
    leading = len(target) - len(shape)
    return leading >= 0 and all(n in (1, t) for n, t in zip(shape, target[leading:], strict=True))


def check_broadcasts(array: Array, target: Shape, name: str) -> None:
    """Raise `InvalidArgument` unless the tensor can be expanded to `target`."""
    if not broadcasts(array.shape, target):
        raise InvalidArgument(f"argument {name!r} of shape {array.shape} does not broadcast to {target}")


def check_rank(array: Array, ranks: Sequence[int], name: str) -> None:
    """Raise `InvalidArgument` unless the tensor's rank is one of `ranks`."""
    if array.ndim not in ranks:
        expected = " or ".join(map(str, ranks))
        raise InvalidArgument(f"argument {name!r} must have {expected} dimensions, but has shape {array.shape}")


def check_shape(array: Array, shape: Shape, name: str) -> None:
    """Raise `InvalidArgument` unless the tensor has exactly `shape`."""
    if array.shape != shape:
        raise InvalidArgument(f"argument {name!r} must have shape {shape}, but has shape {array.shape}")
