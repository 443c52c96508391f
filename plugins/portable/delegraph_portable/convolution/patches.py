"""Images cut into columns of patches, and added up again from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, check_rank, per_dim, trailing

from ..library import kernel, prepare_out

Pair = Sequence[int]


class Patches:
    """Where the patches lie in an image of `size`; pairs are (height, width)."""

    def __init__(self, size: Pair, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> None:
        self.size = per_dim(size, 2, "output_size")
        self.kernel = per_dim(kernel_size, 2, "kernel_size")
        self.dilation = per_dim(dilation, 2, "dilation")
        self.padding = per_dim(padding, 2, "padding")
        self.stride = per_dim(stride, 2, "stride")
        if min(*self.kernel, *self.dilation, *self.stride) < 1 or min(self.padding) < 0:
            raise InvalidArgument(
                "arguments 'kernel_size', 'dilation' and 'stride' must be positive, and 'padding' not negative"
            )
        self.padded = tuple(n + 2 * p for n, p in zip(self.size, self.padding, strict=True))
        self.counts = tuple(
            (n - d * (k - 1) - 1) // s + 1
            for n, d, k, s in zip(self.padded, self.dilation, self.kernel, self.stride, strict=True)
        )
        if min(self.counts) < 1:
            raise InvalidArgument(f"an image of {self.size} is smaller than the argument 'kernel_size' {self.kernel}")

    def views(self, padded: Array) -> list[Array]:
        """For each kernel point a view of the elements of `padded` (*, *padded size) under it: (*, *counts)."""
        return [
            padded[
                trailing(
                    slice(t * d, t * d + (n - 1) * s + 1, s)
                    for t, d, n, s in zip(tap, self.dilation, self.counts, self.stride, strict=True)
                )
            ]
            for tap in product(*map(range, self.kernel))
        ]

    def inside(self, padded: Array) -> Array:
        (top, left), (height, width) = self.padding, self.size
        return padded[..., top : top + height, left : left + width]


@kernel("aten::im2col.out")
def im2col(
    context: Context, self: Array, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair, out: Array
) -> BoundCall:
    """(*, C, H, W) -> (*, C * taps, patches): each column is a patch, zero outside of the image."""
    check_rank(self, (3, 4), "self")
    if 0 in self.shape[-3:]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has no pixels")
    patches = Patches(self.shape[-2:], kernel_size, dilation, padding, stride)
    *planes, channels = self.shape[:-2]
    taps, columns = math.prod(patches.kernel), math.prod(patches.counts)
    out = prepare_out(context, out, self.dtype, (*planes, channels * taps, columns))
    padded = context.workspace((*planes, channels, *patches.padded), self.dtype)
    targets = _by_tap(out, (*planes, channels, taps, *patches.counts))

    def call() -> None:
        padded.fill(0)
        np.copyto(patches.inside(padded), self)
        for i, view in enumerate(patches.views(padded)):
            np.copyto(targets[..., i, :, :], view, casting="unsafe")

    return call


@kernel("aten::col2im.out")
def col2im(
    context: Context,
    self: Array,
    output_size: Pair,
    kernel_size: Pair,
    dilation: Pair,
    padding: Pair,
    stride: Pair,
    out: Array,
) -> BoundCall:
    """(*, C * taps, patches) -> (*, C, H, W): where patches overlap, their sum."""
    check_rank(self, (2, 3), "self")
    patches = Patches(output_size, kernel_size, dilation, padding, stride)
    *planes, rows, columns = self.shape
    taps = math.prod(patches.kernel)
    if rows == 0 or rows % taps or columns != math.prod(patches.counts):
        raise InvalidArgument(
            f"argument 'self' of shape {self.shape} does not hold {patches.counts} patches of {taps} points each"
        )
    shape = (*planes, rows // taps)
    out = prepare_out(context, out, self.dtype, (*shape, *patches.size))
    total = context.workspace((*shape, *patches.padded), compute_type(self.dtype))
    terms = _by_tap(self, (*shape, taps, *patches.counts))

    def call() -> None:
        total.fill(0)
        # Within a tap no two patches touch the same pixel, so each addition is an ordinary one.
        for i, view in enumerate(patches.views(total)):
            np.add(view, terms[..., i, :, :], view)
        np.copyto(out, patches.inside(total), casting="unsafe")

    return call


def _by_tap(columns: Array, shape: Shape) -> Array:
    """(*, C * taps, patches) in `shape` (*, C, taps, *counts): a view, since dims are only split."""
    return columns.reshape(shape)
