"""Sizes, strides and paddings of a pooling over one to three spatial dims -> where its windows lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import nothing
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import DType
from delegraph.runtime.numpy_kernels.shapes import Shape, check_rank, per_dim, trailing


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the windows of one pooling lie; tuples have one entry per spatial dim."""

    input: Shape
    output: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @property
    def reach(self) -> Shape:
        """Size of a padded input that every window lies in."""
        return tuple(
            max((n - 1) * s + d * (k - 1) + 1, size + p)
            for n, s, d, k, size, p in zip(
                self.output, self.stride, self.dilation, self.kernel, self.input, self.padding, strict=True
            )
        )

    def taps(self) -> Iterator[Shape]:
        return product(*map(range, self.kernel))

    def positions(self, tap: int, axis: int) -> Array:
        """Input coordinate, along `axis`, of kernel point `tap` in each window; negative in the padding."""
        start = tap * self.dilation[axis] - self.padding[axis]
        return start + self.stride[axis] * np.arange(self.output[axis])

    def under(self, padded: Array, tap: Shape) -> Array:
        """The view of `padded` (*, *reach) that kernel point `tap` sees: (*, *output)."""
        slices = (
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, self.dilation, self.output, self.stride, strict=True)
        )
        return padded[trailing(slices)]

    def inside(self, padded: Array) -> Array:
        """The view of `padded` (*, *reach) where the input lies: (*, *input)."""
        return padded[trailing(slice(p, p + n) for p, n in zip(self.padding, self.input, strict=True))]

    def counts(self, include_pad: bool) -> Array:
        """(*output): points of each window that lie in the input, or in the input and its padding."""
        per_axis = []
        for axis, (size, kernel, padding) in enumerate(zip(self.input, self.kernel, self.padding, strict=True)):
            margin = padding if include_pad else 0
            first = self.positions(0, axis)
            per_axis.append(np.minimum(first + kernel, size + margin) - np.maximum(first, -margin))
        return reduce(np.multiply.outer, per_axis)


def _output_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    # The last window must start inside the input or its leading padding.
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def windows(
    rank: int,
    self: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Windows:
    """The windows over the last `rank` dims of `self`, which has a dim for channels and maybe one for the batch."""
    check_rank(self, (rank + 1, rank + 2), "self")
    size = per_dim(kernel, rank, "kernel_size")
    steps = per_dim(stride, rank, "stride") if stride else size
    pads = per_dim(padding, rank, "padding")
    spread = per_dim(dilation, rank, "dilation")
    if min(*size, *steps, *spread) < 1:
        raise InvalidArgument("arguments 'kernel_size', 'stride' and 'dilation' must be positive")
    if any(not 0 <= p <= k // 2 for p, k in zip(pads, size, strict=True)):
        raise InvalidArgument(f"argument 'padding' {pads} must be between 0 and half of the kernel {size}")
    output = tuple(
        _output_size(*sizes, ceil_mode) for sizes in zip(self.shape[-rank:], size, steps, pads, spread, strict=True)
    )
    if min(output) < 1 or 0 in self.shape[-rank - 1 :]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} is smaller than the window {size}")
    return Windows(self.shape[-rank:], output, size, steps, pads, spread)


def workspace_like(context: Context, like: Array, shape: Shape, dtype: DType) -> Array:
    """Scratch memory whose dims lie in the order of those of `like`, so that both are gone through together."""
    order = sorted(range(like.ndim), key=lambda axis: -like.strides[axis])
    memory = context.workspace(tuple(shape[axis] for axis in order), dtype)
    return memory.transpose([order.index(axis) for axis in range(like.ndim)])


def pad_call(context: Context, w: Windows, self: Array, dtype: DType, filler: float) -> tuple[Array, BoundCall]:
    """`self` in `dtype` with `filler` around it (*, *reach), and the call that fills it; or `self` if it is that."""
    if w.reach == w.input and self.dtype == dtype:
        return self, nothing
    padded = workspace_like(context, self, (*self.shape[: -len(w.input)], *w.reach), dtype)
    inner = w.inside(padded)

    def pad() -> None:
        padded.fill(filler)
        np.copyto(inner, self, casting="unsafe")

    return padded, pad
