"""Images cut into columns of patches, and added up again from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, check_rank, per_dim

from ..library import kernel, prepare_out
from ..pooling.windows import Windows

Pair = Sequence[int]


def _patches(size: Pair, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Windows:
    """Where the patches lie in an image of `size`; pairs are (height, width)."""
    names = ("output_size", "kernel_size", "stride", "padding", "dilation")
    pairs = zip((size, kernel_size, stride, padding, dilation), names, strict=True)
    image, kernel, steps, pads, spread = (per_dim(pair, 2, name) for pair, name in pairs)
    if min(*kernel, *spread, *steps) < 1 or min(pads) < 0:
        raise InvalidArgument(
            "arguments 'kernel_size', 'dilation' and 'stride' must be positive, and 'padding' not negative"
        )
    axes = zip(image, kernel, steps, pads, spread, strict=True)
    counts = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
    if min(counts) < 1:
        raise InvalidArgument(f"an image of {image} is smaller than the argument 'kernel_size' {kernel}")
    return Windows(image, counts, kernel, steps, pads, spread)


@kernel("aten::im2col.out")
def im2col(
    context: Context, self: Array, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair, out: Array
) -> BoundCall:
    """(*, C, H, W) -> (*, C * taps, patches): each column is a patch, zero outside of the image."""
    check_rank(self, (3, 4), "self")
    if 0 in self.shape[-3:]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has no pixels")
    patches = _patches(self.shape[-2:], kernel_size, dilation, padding, stride)
    *planes, channels = self.shape[:-2]
    taps, columns = math.prod(patches.kernel), math.prod(patches.output)
    out = prepare_out(context, out, self.dtype, (*planes, channels * taps, columns))
    padded = context.workspace((*planes, channels, *patches.reach), self.dtype)
    targets = _by_tap(out, (*planes, channels, taps, *patches.output))

    def call() -> None:
        padded.fill(0)
        np.copyto(patches.inside(padded), self)
        for i, tap in enumerate(patches.taps()):
            np.copyto(targets[..., i, :, :], patches.under(padded, tap), casting="unsafe")

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
    patches = _patches(output_size, kernel_size, dilation, padding, stride)
    *planes, rows, columns = self.shape
    taps = math.prod(patches.kernel)
    if rows == 0 or rows % taps or columns != math.prod(patches.output):
        raise InvalidArgument(
            f"argument 'self' of shape {self.shape} does not hold {patches.output} patches of {taps} points each"
        )
    shape = (*planes, rows // taps)
    out = prepare_out(context, out, self.dtype, (*shape, *patches.input))
    total = context.workspace((*shape, *patches.reach), compute_type(self.dtype))
    terms = _by_tap(self, (*shape, taps, *patches.output))

    def call() -> None:
        total.fill(0)
        # Within a tap no two patches touch the same pixel, so each addition is an ordinary one.
        for i, tap in enumerate(patches.taps()):
            view = patches.under(total, tap)
            np.add(view, terms[..., i, :, :], view)
        np.copyto(out, patches.inside(total), casting="unsafe")

    return call


def _by_tap(columns: Array, shape: Shape) -> Array:
    """(*, C * taps, patches) in `shape` (*, C, taps, *counts): a view, since dims are only split."""
    return columns.reshape(shape)
