"""Index tensors and masks -> checked places in a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program import dense_strides
from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.promotion import BOOL, check_index
from delegraph.runtime.numpy_kernels.shapes import Index, Shape, broadcast, wrap_dim

Indices = Sequence[Array | None]


def check_range(index: Array, size: int, low: int, name: str) -> None:
    """Raise `InvalidArgument` unless low <= index < size everywhere."""
    if index.size and (int(index.min()) < low or int(index.max()) >= size):
        wrong = index[(index < low) | (index >= size)].flat[0]
        raise InvalidArgument(f"argument {name!r} holds {wrong}, but the dimension has size {size}")


def check_mask(mask: Array) -> None:
    """Raise `InvalidType` unless the argument 'mask' is a bool tensor."""
    if mask.dtype != BOOL:
        raise InvalidType(f"argument 'mask' must be bool, but is {mask.dtype}")


# ---- one dim ----------------------------------------------------------------------------------------


def check_elementwise_index(self: Array, dim: int, index: Array, bound: Array | None) -> int:
    """`dim` counted from the front, for an index of self's rank that is no larger than `self` but in `dim`, and no
    larger than `bound`, of that rank too."""
    check_index(index, "index")
    axis = wrap_dim(dim, self.ndim)
    if index.size == 0:
        return axis
    if max(self.ndim, 1) != max(index.ndim, 1):
        raise InvalidArgument(f"argument 'index' has shape {index.shape}, but 'self' has shape {self.shape}")
    if bound is not None and bound.ndim != max(index.ndim, 1):
        raise InvalidArgument(f"argument 'index' has shape {index.shape}, but 'src' has shape {bound.shape}")
    for d, size in enumerate(index.shape):
        outside = bound is not None and size > bound.shape[d]
        if outside or (self.ndim and d != axis and size > self.shape[d]):
            raise InvalidArgument(f"argument 'index' of shape {index.shape} is larger than the tensor in dimension {d}")
    return axis


def places_along(axis: int, shape: Shape, target: Shape, name: str) -> Callable[[Array], Array]:
    """index (broadcasts to `shape`) -> for each element of `shape` its flat place in a C-contiguous tensor of shape
    `target`: that of the index along `axis`, and its own in the other dims.

    The returned function raises `InvalidArgument` for an index outside of the dimension.
    """
    strides = dense_strides(target)
    offsets = np.zeros((1,) * len(shape), np.int64)
    for d, numbers in enumerate(np.ogrid[tuple(slice(n) for n in shape)]):
        if d != axis:
            offsets = offsets + numbers * strides[d]

    def places(index: Array) -> Array:
        check_range(index, target[axis], 0, name)
        flat: Array = (index if strides[axis] == 1 else index * np.int64(strides[axis])) + offsets
        return flat

    return places


# ---- several index tensors --------------------------------------------------------------------------


def _is_mask(index: Array | None) -> bool:
    return index is not None and index.dtype in (BOOL, np.uint8)


def expand_masks(self: Array, indices: Indices) -> list[Array | None]:
    """`indices` with each mask (bool or uint8) replaced by the index tensors of its true places."""
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


def _used(self: Array, indices: Indices) -> dict[int, Array]:
    """The dims that have an index tensor."""
    if len(indices) > self.ndim:
        raise InvalidArgument(f"argument 'indices' has {len(indices)} tensors, but 'self' has shape {self.shape}")
    used = {d: index for d, index in enumerate(indices) if index is not None}
    if not used:
        raise InvalidArgument("argument 'indices' holds no index tensor")
    for index in used.values():
        check_index(index, "indices")
    return used


def _front(used: dict[int, Array]) -> int:
    """Where in the result the dims of the index tensors stand: in front, unless they are adjacent."""
    first, last = min(used), max(used)
    return first if last - first + 1 == len(used) else 0


def index_shape(self: Array, indices: Indices) -> Shape:
    """The shape of self[indices], in which index tensors broadcast."""
    used = _used(self, indices)
    common = broadcast(*(index.shape for index in used.values()))
    rest = tuple(size for d, size in enumerate(self.shape) if d not in used)
    return (*rest[: _front(used)], *common, *rest[_front(used) :])


def numpy_index(self: Array, indices: Indices) -> Index:
    """`indices` as NumPy takes them, checked against the sizes."""
    for d, index in enumerate(indices):
        if index is not None:
            check_range(index, self.shape[d], -self.shape[d], "indices")
    return tuple(slice(None) if index is None else index for index in indices)


def flat_places(self: Array, indices: Indices) -> Array:
    """The place of each element of self[indices] in `self`, as if it were C-contiguous and flat."""
    numpy_index(self, indices)
    used, strides = _used(self, indices), dense_strides(self.shape)
    rest = [d for d in range(self.ndim) if d not in used]
    common: Array = np.zeros((), np.int64)
    for d, index in used.items():
        common = common + np.where(index < 0, index + self.shape[d], index) * np.int64(strides[d])
    front = _front(used)
    places = common.reshape((1,) * front + common.shape + (1,) * (len(rest) - front))
    for position, d in enumerate(rest):
        axis = position if position < front else position + common.ndim
        numbers = np.arange(self.shape[d]) * strides[d]
        places = places + numbers.reshape(-1, *(1,) * (places.ndim - 1 - axis))
    return places
