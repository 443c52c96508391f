"""Gradients of poolings: of maxima through their indices, of means spread over their windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    check_floating,
    check_index,
    check_same_dtype,
    compute_type,
)
from delegraph.runtime.numpy_kernels.shapes import along, check_rank, check_shape

from ..library import kernel, prepare_out
from .adaptive import bins
from .forward import divisors
from .windows import Windows, windows

Sizes = Sequence[int]


# ---- maximum ----------------------------------------------------------------------------------------


def _scatter(rank: int, context: Context, grad_output: Array, self: Array, indices: Array, out: Array) -> BoundCall:
    """Each gradient is added to the input that was the maximum."""
    check_rank(self, (rank + 1, rank + 2), "self")
    check_floating(self, "self")
    check_same_dtype(grad_output, "grad_output", self, "self")
    check_index(indices, "indices")
    check_shape(indices, grad_output.shape, "indices")
    out = prepare_out(context, out, self.dtype, self.shape)
    size, planes = math.prod(self.shape[-rank:]), math.prod(self.shape[:-rank])
    starts = np.arange(planes)[:, None] * size

    def call() -> None:
        places = indices.reshape(planes, -1)
        if places.size and (places.min() < 0 or places.max() >= size):
            raise InvalidArgument(f"argument 'indices' points outside of planes of {size} elements")
        total = np.zeros(planes * size, compute_type(self.dtype))
        np.add.at(total, (places + starts).reshape(-1), grad_output.reshape(-1).astype(total.dtype))
        np.copyto(out, total.reshape(self.shape), casting="unsafe")

    return call


def _max_pool_backward(rank: int, context: Context, grad_output: Array, self: Array, *arguments: Any) -> BoundCall:
    *window, indices, grad_input = arguments
    w = windows(rank, self, *window)
    check_shape(grad_output, (*self.shape[:-rank], *w.output), "grad_output")
    return _scatter(rank, context, grad_output, self, indices, grad_input)


def _fractional_max_pool_backward(
    rank: int, context: Context, grad_output: Array, self: Array, *arguments: Any
) -> BoundCall:
    """The indices say all; the sizes of windows and output stand before them."""
    _, _, indices, grad_input = arguments
    return _scatter(rank, context, grad_output, self, indices, grad_input)


for _rank in (2, 3):
    kernel(f"aten::max_pool{_rank}d_with_indices_backward.grad_input")(partial(_max_pool_backward, _rank))
    kernel(f"aten::fractional_max_pool{_rank}d_backward.grad_input")(partial(_fractional_max_pool_backward, _rank))
    kernel(f"aten::adaptive_max_pool{_rank}d_backward.grad_input")(partial(_scatter, _rank))


# ---- mean -------------------------------------------------------------------------------------------


def _avg_pool_backward(
    rank: int,
    context: Context,
    grad_output: Array,
    self: Array,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    grad_input: Array,
) -> BoundCall:
    """Each gradient, divided as its mean was, goes to all points of its window."""
    check_same_dtype(grad_output, "grad_output", self, "self")
    w = windows(rank, self, kernel_size, stride, padding, (1,), ceil_mode)
    check_shape(grad_output, (*self.shape[:-rank], *w.output), "grad_output")
    grad_input = prepare_out(context, grad_input, self.dtype, self.shape)
    compute = compute_type(self.dtype)
    function = partial(_spread, w, divisors(w, count_include_pad, divisor_override).astype(compute))
    return function_call(context, function, (grad_output,), grad_input, compute)


def _spread(w: Windows, divisor: Array, grad: Array, out: Array) -> None:
    share = (grad / divisor).astype(grad.dtype, copy=False)
    total = np.zeros((*grad.shape[: -len(w.output)], *w.reach), grad.dtype)
    for tap in w.taps():
        place = w.under(total, tap)
        np.add(place, share, place)
    np.copyto(out, w.inside(total))


kernel("aten::avg_pool2d_backward.grad_input")(partial(_avg_pool_backward, 2))
kernel("aten::avg_pool3d_backward.grad_input")(partial(_avg_pool_backward, 3))


def _adaptive_avg_pool_backward(rank: int, context: Context, grad_output: Array, self: Array, out: Array) -> BoundCall:
    """Each gradient, divided by the size of its bin, goes to all of the bin."""
    check_rank(self, (rank + 1, rank + 2), "self")
    check_floating(self, "self")
    check_same_dtype(grad_output, "grad_output", self, "self")
    check_shape(grad_output, (*self.shape[:-rank], *grad_output.shape[-rank:]), "grad_output")
    out = prepare_out(context, out, self.dtype, self.shape)
    return function_call(context, partial(_spread_bins, rank), (grad_output,), out, compute_type(self.dtype))


def _spread_bins(rank: int, grad: Array, out: Array) -> None:
    """One dim after the other."""
    for axis in range(grad.ndim - rank, grad.ndim):
        size = out.shape[axis]
        total = np.zeros((*grad.shape[:axis], size, *grad.shape[axis + 1 :]), grad.dtype)
        for i, part in enumerate(bins(size, grad.shape[axis])):
            place = total[along(axis, part)]
            np.add(place, grad[along(axis, slice(i, i + 1))] / grad.dtype.type(part.stop - part.start), place)
        grad = total
    np.copyto(out, grad)


kernel("aten::_adaptive_avg_pool2d_backward.out")(partial(_adaptive_avg_pool_backward, 2))
kernel("aten::_adaptive_avg_pool3d_backward.out")(partial(_adaptive_avg_pool_backward, 3))
