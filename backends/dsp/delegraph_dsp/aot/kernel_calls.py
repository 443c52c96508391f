"""The layer between the graph and the tiles: values, strided views of them, and calls of kernels over an index space.

    softmax(x.transpose(1, 2), -1)         x is [4, 8, 16] in memory
    KernelCall("softmax", space=(4, 16, 8), splits=(0, 1), uses=(x by strides (128, 1, 16), out by (128, 8, 1)))

A view costs nothing: DMA fetches its rows. Each dim of an operand goes along one axis of the space, or along none: then
every tile has it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from delegraph.aot.authoring import Quantization
from delegraph.program import dense_strides

__all__ = ["KernelCall", "Use", "Value", "View"]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A dense tensor in a memory. `content` returns a constant's elements; `source` is the number of an input."""

    dtype: str
    shape: tuple[int, ...]
    content: Callable[[], NDArray[Any]] | None = None
    source: int | None = None

    @property
    def is_made(self) -> bool:
        """Whether a kernel writes it."""
        return self.content is None and self.source is None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Elements of a value: the first at `offset`, others `strides` apart, in elements; codes of `grid` if there is one.

    A stride of 0 repeats an element.
    """

    value: Value
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    grid: Quantization | None = None

    @classmethod
    def of(cls, value: Value, grid: Quantization | None = None) -> View:
        """All of `value`."""
        return cls(value, 0, value.shape, dense_strides(value.shape), grid)

    @property
    def dtype(self) -> str:
        """The dtype of its elements."""
        return self.value.dtype

    @property
    def is_whole(self) -> bool:
        """Whether its elements are those of its value, in the order in which they lie in memory."""
        dense = dense_strides(self.shape)
        strides = zip(self.shape, self.strides, dense, strict=True)
        return (
            self.offset == 0
            and prod(self.shape) == prod(self.value.shape)
            and all(size == 1 or stride == expected for size, stride, expected in strides)
        )

    def is_at(self, other: View) -> bool:
        """Whether the other one has the same elements, in the same shape."""
        of_value = self.value is other.value and self.offset == other.offset
        return of_value and (self.shape, self.strides) == (other.shape, other.strides)

    def array(self) -> NDArray[Any] | None:
        """Its elements, if it is a view of a constant."""
        if self.value.content is None:
            return None
        elements = np.ascontiguousarray(self.value.content(), self.dtype).reshape(-1)[self.offset :]
        return as_strided(
            elements, self.shape, [stride * elements.itemsize for stride in self.strides], writeable=False
        )

    def permute(self, dims: Sequence[int]) -> View:
        """The view with its dims in another order."""
        rank = len(self.shape)
        order = [dim % rank for dim in dims]
        return replace(self, shape=tuple(self.shape[d] for d in order), strides=tuple(self.strides[d] for d in order))

    def move_last(self, dim: int) -> View:
        """The view with `dim` behind all others."""
        rank = len(self.shape)
        return self.permute([d for d in range(rank) if d != dim % rank] + [dim % rank])

    def slice(self, dim: int, start: int, stop: int, step: int = 1) -> View:
        """Every `step`-th index of `dim` from `start` up to, not including, `stop`; both are within it."""
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = max(0, -(-(stop - start) // step)), self.strides[dim] * step
        return replace(self, offset=self.offset + start * self.strides[dim], shape=tuple(shape), strides=tuple(strides))

    def expand(self, shape: Sequence[int]) -> View:
        """Repeated along dims of size 1, and along new dims before the others."""
        new = len(shape) - len(self.shape)
        strides = [0] * new + [
            stride if size == new_size else 0
            for size, stride, new_size in zip(self.shape, self.strides, shape[new:], strict=True)
        ]
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; None if that is no view."""
        strides = _reshaped(self.shape, self.strides, tuple(shape))
        return None if strides is None else replace(self, shape=tuple(shape), strides=strides)

    def on(self, grid: Quantization | None) -> View:
        """The view as codes of `grid`."""
        return replace(self, grid=grid)


def _reshaped(shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of `new`, or None: runs of dims that lie densely are cut into the new dims."""
    runs: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        # the dim before steps over exactly this one: both are one run
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    new_strides: list[int] = []
    left, run = 1, iter(runs)
    stride = 1
    for size in new:
        if size == 1:
            new_strides.append(1)
            continue
        # the run is used up; a new dim may not reach from one run into the next
        if left == 1:
            left, stride = next(run, (1, 1))
        if left % size:
            return None
        left //= size
        new_strides.append(left * stride)
    return tuple(new_strides)


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """An operand of a call: each dim of the view goes along the axis of the space in `axes`, or along none."""

    view: View
    axes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """A kernel over an index space; the axes in `splits` may be cut into tiles; the last use is written."""

    kernel: str
    space: tuple[int, ...]
    splits: tuple[int, ...]
    uses: tuple[Use, ...]
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    operator: int = 0

    @property
    def output(self) -> Use:
        """The use that the call writes."""
        return self.uses[-1]
