"""Channels rearranged into a finer grid of pixels, and back."""

from __future__ import annotations

import math

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context

from ..library import kernel, prepare_out


@kernel("aten::pixel_shuffle.out")
def pixel_shuffle(context: Context, self: Array, upscale_factor: int, out: Array) -> BoundCall:
    """(*, C r², H, W) -> (*, C, H r, W r)."""
    r = upscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-3] % (r * r):
        raise InvalidArgument(f"argument 'self' of shape {self.shape} cannot be shuffled by {r}")
    *batch, c, h, w = self.shape
    out = prepare_out(context, out, self.dtype, (*batch, c // (r * r), h * r, w * r))
    n = math.prod(batch)
    order = (0, 1, 4, 2, 5, 3)
    return lambda: np.copyto(
        out,
        self.reshape(n, c // (r * r), r, r, h, w).transpose(order).reshape(out.shape),
        casting="unsafe",
    )


@kernel("aten::pixel_unshuffle.out")
def pixel_unshuffle(context: Context, self: Array, downscale_factor: int, out: Array) -> BoundCall:
    """(*, C, H r, W r) -> (*, C r², H, W)."""
    r = downscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-2] % r or self.shape[-1] % r:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} cannot be unshuffled by {r}")
    *batch, c, h, w = self.shape
    out = prepare_out(context, out, self.dtype, (*batch, c * r * r, h // r, w // r))
    n = math.prod(batch)
    order = (0, 1, 3, 5, 2, 4)
    return lambda: np.copyto(
        out, self.reshape(n, c, h // r, r, w // r, r).transpose(order).reshape(out.shape), casting="unsafe"
    )
