"""Convolution of stride 1 with few outputs in each group, where gathering patches costs more than the products.

The elements of a zero-padded plane under a kernel point are, read on through the padding, a contiguous run that starts
at the point's place. So the patch matrix is copied run by run, without regard to rows, which are short in small images;
the outputs that lie between two rows are computed too, and left out. On depthwise 3x3 convolutions of 7 to 28 pixels
that takes half the time. (A stride would need planes split into phases, which costs what it saves.)

A block of groups is done at a time, so that padded planes, runs and products stay in the cache.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Final

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context, when_constant
from delegraph.runtime.numpy_kernels.shapes import Shape, trailing

from .geometry import ConvolutionGeometry

_FEW: Final = 16
"""Outputs of a group up to which this is faster: with more, the products between the rows cost too much."""

_BLOCK_BYTES: Final = 1 << 19
"""Runs gathered at a time."""


def is_bound_by_gathering(g: ConvolutionGeometry) -> bool:
    return g.groups > 1 and g.taps > 1 and g.out_channels // g.groups <= _FEW and set(g.stride) == {1}


def shifted_call(context: Context, g: ConvolutionGeometry, x: Array, weight: Array, y: Array) -> BoundCall:
    """weight (groups, O/groups, C/groups * taps) @ runs (groups, C/groups * taps, length), for each image."""
    channels, outs = g.in_channels // g.groups, g.out_channels // g.groups
    depth = channels * g.taps
    packed = when_constant(context, lambda w: np.ascontiguousarray(w, x.dtype).reshape(g.groups, outs, depth), weight)
    steps = tuple(math.prod(g.padded[axis + 1 :]) for axis in range(len(g.padded)))
    length = 1 + sum((n - 1) * step for n, step in zip(g.output, steps, strict=True))
    count = min(max(_BLOCK_BYTES // (depth * length * x.itemsize), 1), g.groups)
    padded = context.workspace((count * channels, *g.padded), x.dtype)
    runs = context.workspace((count * channels, *g.kernel, length), x.dtype)
    products = context.workspace((count * outs, length), x.dtype)
    inner = padded[trailing(slice(p, p + n) for p, n in zip(g.padding, g.input, strict=True))]
    shifts = (*(d * step for d, step in zip(g.dilation, steps, strict=True)), 1)
    sources = _strided(padded, runs.shape[1:], shifts)
    results = _strided(products, g.output, steps)
    blocks = []
    for n, start in product(range(g.batch), range(0, g.groups, count)):
        stop = min(start + count, g.groups)
        size = stop - start
        planes, maps = size * channels, size * outs
        blocks.append(
            (
                partial(np.copyto, inner[:planes], x[n, start * channels : stop * channels]),
                partial(np.copyto, runs[:planes], sources[:planes]),
                slice(start, stop),
                runs[:planes].reshape(size, depth, length),
                products[:maps].reshape(size, outs, length),
                partial(np.copyto, y[n, start * outs : stop * outs], results[:maps]),
            )
        )

    def call() -> None:
        padded.fill(0)
        matrices = packed()
        for pad, gather, groups, patches, result, store in blocks:
            pad()
            gather()
            np.matmul(matrices[groups], patches, result)
            store()

    return call


def _strided(array: Array, shape: Shape, steps: Shape) -> Array:
    """A view (len(array), *shape) of contiguous memory, of which each row is stepped through by elements."""
    strides = (array.strides[0], *(step * array.itemsize for step in steps))
    return np.lib.stride_tricks.as_strided(array, (len(array), *shape), strides)
