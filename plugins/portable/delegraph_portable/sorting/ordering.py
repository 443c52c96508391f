"""Values -> their places in ascending or descending order along the last axis, for the sorting kernels.

Equal values stay in the order of their places, -0 equals 0, and NaN counts as the largest. Values of at most 32 bits,
and integers of a range of 32 bits, become the upper half of a 64-bit key of which the place is the lower half: such
keys are all different, so NumPy's fastest sort and partition serve.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.promotion import compute_type, is_floating

_PLACE: Final = np.uint64(0xFFFF_FFFF)
_SIGN: Final = np.uint32(0x8000_0000)
_FEW: Final = 500  # values: making keys of fewer costs more than NumPy's stable sort


def sorted_places(x: Array, descending: bool = False) -> Array:
    """int64 indices that sort `x` along its last axis; stable."""
    keys = _keys(x, descending) if x.size > _FEW else None
    if keys is None:
        return _stable_argsort(x, descending)
    keys.sort(-1)
    return _places(keys)


def first_places(x: Array, k: int, descending: bool = False) -> Array:
    """The `k` first of `sorted_places(x, descending)`. Which of equal 64-bit values comes in at the border is open."""
    if x.size <= _FEW or not 0 < k < x.shape[-1] // 8:  # choosing before sorting pays for few of many
        return sorted_places(x, descending)[..., :k]
    keys = _keys(x, descending)
    if keys is not None:
        keys.partition(k - 1, -1)
        keys = keys[..., :k]
        keys.sort(-1)
        return _places(keys)
    size = x.shape[-1]
    partition = np.argpartition(x, size - k if descending else k - 1, -1)
    chosen = np.sort(partition[..., size - k :] if descending else partition[..., :k], -1)
    return np.take_along_axis(chosen, _stable_argsort(np.take_along_axis(x, chosen, -1), descending), -1)


def kth_place(x: Array, k: int) -> Array:
    """The index of the `k`-th smallest along the last axis, counted from 0."""
    if x.size <= _FEW:
        place: Array = sorted_places(x)[..., k]
        return place
    keys = _keys(x, False)
    if keys is None:
        places: Array = np.argpartition(x, k, -1)[..., k]
        return places
    keys.partition(k, -1)
    return _places(keys[..., k])


def _stable_argsort(x: Array, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, -1, kind="stable")
    # Stable in the reversed order, so that of equal ones the first comes first once all is turned around.
    places: Array = x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), -1, kind="stable"), -1)
    return places


def _keys(x: Array, descending: bool) -> Array | None:
    """The order of each value in the upper 32 bits, its place in the lower ones; None where 32 bits do not hold it."""
    ordered = _ordered_bits(x)
    if ordered is None:
        return None
    if descending:
        np.invert(ordered, ordered)
    keys = np.left_shift(ordered, np.uint64(32), dtype=np.uint64, order="C")
    return np.bitwise_or(keys, np.arange(x.shape[-1], dtype=np.uint64), keys)


def _places(keys: Array) -> Array:
    places: Array = (keys & _PLACE).view(np.int64)
    return places


def _ordered_bits(x: Array) -> Array | None:
    """uint32 that compare as the values do; a new array."""
    if is_floating(x.dtype):
        return _ordered_floats(x) if compute_type(x.dtype).itemsize == 4 else None
    if x.dtype.itemsize < 8:
        return x.astype(np.uint32) if x.dtype.kind in "bu" else x.astype(np.int32).view(np.uint32) ^ _SIGN
    if x.size == 0:
        return None
    low = x.min()
    return (x - low).astype(np.uint32) if int(x.max()) - int(low) < 2**32 else None


def _ordered_floats(x: Array) -> Array:
    """A float's bits compare as integers do, once those of a negative one are inverted and the sign bit is turned."""
    numbers = x.astype(np.float32)
    numbers += 0  # -0 becomes 0
    bits = numbers.view(np.uint32)
    flips = (numbers.view(np.int32) >> 31).view(np.uint32)
    np.bitwise_xor(bits, flips | _SIGN, out=flips)
    flips[np.isnan(numbers)] = 0xFFFF_FFFF
    return flips
