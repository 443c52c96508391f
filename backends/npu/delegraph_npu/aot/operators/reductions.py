"""Operators that reduce -> pools, sums and maxima; and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph.aot.authoring import nearest_pixels, overhang, per_dim, reduced_dims, resize_scales
from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import QuantizedCall, operator_name, shape_of
from delegraph_npu.aot.folding import Folding
from delegraph_npu.aot.ir import Laid, Window
from delegraph_npu.aot.layout import IMAGES, MATRICES
from delegraph_npu.aot.operators.layers import MOST_PRODUCTS, check_window
from delegraph_npu.aot.operators.moves import on_grid
from delegraph_npu.aot.operators.table import Annotate, operator

__all__: list[str] = []


# ---- windows --------------------------------------------------------------------------------------------------------


def _pool_window(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Window:
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        per_dim(values, 2) for values in (kernel, stride or kernel, padding, dilation)
    )
    return Window((kh, kw), (sh, sw), (ph, pw, ph, pw), (dh, dw))


def _check_pool(node: Node, input: Node, window: Window) -> str | None:
    if len(shape_of(input)) != 4:
        return "a pool over something other than a batch of images"
    if window.dilation != (1, 1):
        return "a dilated pool: the NPU's windows of pools have no gaps"
    window_of = window.kernel, window.stride, window.padding[:2], window.dilation
    if any(overhang(shape_of(input)[2:], shape_of(node)[2:], *window_of)):
        return "a last window that is not full (ceil_mode)"
    return check_window(window)


def _check_max_pool(
    node: Node, input: Node, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), *_: Any
) -> str | None:
    return _check_pool(node, input, _pool_window(kernel, stride, padding, dilation))


def _check_average_pool(
    node: Node, input: Node, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> str | None:  # fmt: skip
    if divisor_override is not None:
        return "divisor_override: the NPU divides by the size of the window"
    return _check_pool(node, input, _pool_window(kernel, stride, padding, (1,)))


def _pooled(f: Folding, call: QuantizedCall, input: Node, kind: str, window: Window) -> Laid:
    """A pool on the grid of the operand, as in TOSA; an average on another grid is a depthwise convolution with
    ones."""
    order = IMAGES[4]
    image = f.image(input, order)
    result = f.result(call, order)
    low, high = call.limits
    if image.same_grid(result.tensor):
        f.add(ir.Pool(call.head.name, (image,), result.tensor, low, high, kind, window))
        return result
    if kind != "max" and (kind == "average_padded" or not any(window.padding)):  # rounded once, as a convolution
        channels, count = image.shape[3], window.kernel[0] * window.kernel[1]
        ones, nothing = np.ones((*window.kernel, channels), np.int8), np.zeros(channels, np.int64)
        steps = np.full(channels, 1 / count)
        f.add(ir.Convolution(call.head.name, (image,), result.tensor, low, high, window, ones, nothing, steps, True))
        return result
    pooled = f.part("pooled", result.tensor.shape, image)
    f.add(ir.Pool(call.head.name, (image,), pooled, *pooled.bounds, kind, window))
    return on_grid(f, call, Laid(pooled, result.shape, order))


@operator("max_pool2d", Annotate.MOVES, _check_max_pool, "max_pool2d")
def max_pool(
    f: Folding, call: QuantizedCall, input: Node, kernel: Any, stride: Any = (), padding: Any = (0,),
    dilation: Any = (1,), *_: Any,
) -> Laid:  # fmt: skip
    """The maximum of each window."""
    return _pooled(f, call, input, "max", _pool_window(kernel, stride, padding, dilation))


@operator("avg_pool2d", Annotate.MOVES, _check_average_pool)
def average_pool(
    f: Folding, call: QuantizedCall, input: Node, kernel: Any, stride: Any = (), padding: Any = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, *_: Any,
) -> Laid:  # fmt: skip
    """The average of each window, with the padding where torch counts it."""
    window = _pool_window(kernel, stride, padding, (1,))
    padded = count_include_pad and any(window.padding)
    return _pooled(f, call, input, "average_padded" if padded else "average", window)


def _check_adaptive(node: Node, input: Node, sizes: Sequence[int]) -> str | None:
    if len(shape_of(input)) != 4:
        return "a pool over something other than a batch of images"
    uneven = [size for size, after in zip(shape_of(input)[2:], shape_of(node)[2:], strict=True) if size % after]
    return f"windows of different sizes: {uneven[0]} is not a multiple of what it becomes" if uneven else None


@operator("adaptive_avg_pool2d", Annotate.VALUES, _check_adaptive, "adaptive_avg_pool2d")
def adaptive_average_pool(f: Folding, call: QuantizedCall, input: Node, sizes: Sequence[int]) -> Laid:
    """A sum for a single place, rounded once; otherwise the average of windows that do not overlap."""
    (height, width), (rows, columns) = shape_of(input)[2:], shape_of(call.head)[2:]
    if (rows, columns) == (1, 1):
        return _reduced(f, call, input, (2, 3), "sum", 1 / (height * width), True)
    kernel = (height // rows, width // columns)
    return _pooled(f, call, input, "average", Window(kernel, kernel))


# ---- whole dims -----------------------------------------------------------------------------------------------------


def _check_reduce(node: Node, input: Node, dims: Any = None, keepdim: bool = False, *options: Any) -> str | None:
    if not shape_of(input):
        return "a tensor without dims: there is nothing to reduce"
    along = math.prod(shape_of(input)[dim] for dim in reduced_dims(len(shape_of(input)), dims))
    return f"sums of {along} elements: an accumulator holds {MOST_PRODUCTS}" if along > MOST_PRODUCTS else None


@operator("mean sum", Annotate.VALUES, _check_reduce)
def total(f: Folding, call: QuantizedCall, input: Node, dims: Any = None, keepdim: bool = False, *_: Any) -> Laid:
    """A sum of integers, rounded once to the grid of the result."""
    over = reduced_dims(len(shape_of(input)), dims)
    along = math.prod(shape_of(input)[dim] for dim in over)
    return _reduced(f, call, input, over, "sum", 1 / along if operator_name(call.head) == "mean" else 1.0, keepdim)


@operator("amax", Annotate.MOVES, _check_reduce)
def largest(f: Folding, call: QuantizedCall, input: Node, dims: Any = None, keepdim: bool = False) -> Laid:
    """The largest integer."""
    return _reduced(f, call, input, reduced_dims(len(shape_of(input)), dims), "max", 1.0, keepdim)


def _reduced(
    f: Folding, call: QuantizedCall, input: Node, dims: tuple[int, ...], kind: str, factor: float, keepdim: bool
) -> Laid:
    laid = f.settled(input)
    source = laid.tensor
    axes = tuple(laid.order.index(dim) for dim in dims)
    n, h, w, c = (1 if axis in axes else size for axis, size in enumerate(source.shape))
    out = call.out
    if kind == "sum":
        tensor = f.between("sum", (n, h, w, c), np.dtype(str(out.dtype)[6:]).type, out.scale, out.zero_point)
        f.add(ir.Reduce(call.head.name, (source,), tensor, *call.limits, kind, axes, factor))
    else:
        tensor = f.part("max", (n, h, w, c), source)
        f.add(ir.Reduce(call.head.name, (source,), tensor, *tensor.bounds, kind, axes))
    shape = shape_of(call.head)
    if keepdim or len(shape) == len(laid.shape):
        return on_grid(f, call, Laid(tensor, shape, laid.order))
    left = [dim for dim in range(len(laid.shape)) if dim not in dims]
    n_, h_, w_, c_ = (left.index(dim) if dim in left else None for dim in laid.order)
    return on_grid(f, call, Laid(tensor, shape, (n_, h_, w_, c_)))


# ---- products of matrices -------------------------------------------------------------------------------------------


def _check_matmul(node: Node, a: Node, b: Node) -> str | None:
    left, right = shape_of(a), shape_of(b)
    if len(left) != len(right) or left[:-2] != right[:-2]:
        return f"matrices of {left} and {right}: the NPU's batches are equal"
    if len(left) not in MATRICES:
        return f"a product of {len(left)} dims"
    return (
        f"sums of {left[-1]} products: an accumulator holds {MOST_PRODUCTS // 2}"
        if left[-1] > MOST_PRODUCTS // 2
        else None
    )


@operator("matmul mm bmm", Annotate.VALUES, _check_matmul, "matmul")
def matmul(f: Folding, call: QuantizedCall, a: Node, b: Node) -> Laid:
    """Rows times columns, for each matrix of the batch."""
    order = MATRICES[len(shape_of(a))]
    tensors = f.image(a, order), f.image(b, order)
    result = f.result(call, order)
    f.add(ir.Matmul(call.head.name, tensors, result.tensor, *call.limits))
    return result


# ---- another size ---------------------------------------------------------------------------------------------------

MOST_SCALE: Final = 1 << 11
"""TOSA 1.0, RESIZE: the largest numerator."""


def _check_resize(node: Node, input: Node, *arguments: Any) -> str | None:
    if len(shape_of(input)) != 4:
        return "a resized tensor that is not a batch of images"
    for axis, scale in enumerate(resize_scales(node)):
        before, after = shape_of(input)[2 + axis], shape_of(node)[2 + axis]
        if scale is not None and before * scale != after:
            return f"a factor of {scale} that does not give whole rows and columns"
        if operator_name(node) == "upsample_nearest2d":
            read = nearest_pixels("upsample_nearest", 2, before, after, scale)
            if read != [place * before // after for place in range(after)]:
                return f"from {before} to {after}: torch rounds which rows it reads, and the NPU's steps are exact"
        numerator, denominator, _ = _steps(node, before, after)
        if numerator > MOST_SCALE or denominator >= 16 * numerator:
            return f"from {before} to {after}: the NPU's steps are fractions of at most {MOST_SCALE}"
    return None


def _steps(node: Node, before: int, after: int) -> tuple[int, int, int]:
    """Numerator, denominator and offset: row y of the result is row (y * denominator + offset) / numerator.

    torch's rows: floor(y * before / after) of the nearest, which TOSA rounds; (y + 1/2) * before / after - 1/2 of the
    bilinear, or y * (before - 1) / (after - 1) with corners aligned.
    """
    if operator_name(node) == "upsample_nearest2d":
        numerator, denominator, offset = 2 * after, 2 * before, -after
    elif _aligned(node) and after > 1:
        numerator, denominator, offset = after - 1, max(before - 1, 1), 0
    else:
        numerator, denominator, offset = 2 * after, 2 * before, before - after
    common = math.gcd(numerator, denominator, offset)
    if operator_name(node) == "upsample_nearest2d" and (numerator // common) % 2:
        common = max(common // 2, 1)
    return numerator // common, denominator // common, offset // common


def _aligned(node: Node) -> bool:
    return operator_name(node) == "upsample_bilinear2d" and bool(schema_arguments(node)[2])


@operator(
    "upsample_nearest2d upsample_bilinear2d", Annotate.MOVES, _check_resize,
    "upsample_nearest2d upsample_nearest2d.vec upsample_bilinear2d upsample_bilinear2d.vec",
)  # fmt: skip
def resize(f: Folding, call: QuantizedCall, input: Node, *arguments: Any) -> Laid:
    """Rows and columns of the operand, or mixtures of two of them."""
    order = IMAGES[4]
    image = f.image(input, order)
    result = f.result(call, order)
    kind = operator_name(call.head).removeprefix("upsample_").removesuffix("2d")
    (ny, dy, oy), (nx, dx, ox) = (
        _steps(call.head, old, new) for old, new in zip(image.shape[1:3], result.tensor.shape[1:3], strict=True)
    )
    f.add(ir.Resize(call.head.name, (image,), result.tensor, *call.limits, kind, (ny, dy, nx, dx), (oy, ox)))
    return result
