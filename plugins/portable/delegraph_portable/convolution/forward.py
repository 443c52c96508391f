"""Convolution in one to three spatial dims, as matrix products.

The patches under the kernel are gathered into a matrix (im2col), a block of about two megabytes at a time, and
multiplied with the weight; a kernel of one point needs no gathering. Groups are a batch of products; where they have
few outputs, as in depthwise convolutions, gathering takes the time, and is done otherwise: `shifted_convolution`. The
transposed convolution multiplies first and adds up the columns in place (col2im).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import nothing, staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context, when_constant
from delegraph.runtime.numpy_kernels.promotion import check_same_dtype, check_same_kind, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, check_shape, trailing

from ..library import kernel
from .geometry import ConvolutionGeometry, geometry
from .shifted import is_bound_by_gathering, shifted_call


@kernel("aten::convolution.out")
def convolution(
    context: Context,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    out: Array,
) -> BoundCall:
    """input (N, C, *), weight (O, C/groups, *kernel), or (C, O/groups, *kernel) if transposed -> (N, O, *)."""
    check_same_dtype(weight, "weight", input, "input")
    check_same_dtype(out, "out", input, "input")
    g = geometry(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    if bias is not None:
        check_same_kind(bias, "bias", input, "input")
        check_shape(bias, (g.out_channels,), "bias")
    out = context.resize(out, (g.batch, g.out_channels, *g.output))
    if out.size == 0:
        return nothing
    compute = compute_type(input.dtype)
    x, y = staging_buffer(context, input, compute), staging_buffer(context, out, compute)
    products = products_call(context, g, transposed, x.buffer, weight, y.buffer)
    return staged_call(_with_bias(context, products, bias, y.buffer), [x], [y])


@kernel("aten::_convolution.out")
def convolution_with_flags(context: Context, *arguments: Any) -> BoundCall:
    """`convolution`; the four flags before `out` choose among a GPU's algorithms."""
    *settings, _, _, _, _, out = arguments
    return convolution(context, *settings, out)


def products_call(
    context: Context, g: ConvolutionGeometry, transposed: bool, x: Array, weight: Array, y: Array
) -> BoundCall:
    """The convolution of `x` into `y`, in their common dtype."""
    if transposed:
        return _transposed_call(context, g, x, weight, y)
    return (shifted_call if is_bound_by_gathering(g) else _patches_call)(context, g, x, weight, y)


def _with_bias(context: Context, call: BoundCall, bias: Array | None, y: Array) -> BoundCall:
    if bias is None:
        return call
    shape = (len(bias), *(1,) * (y.ndim - 2))
    column = when_constant(context, lambda b: b.astype(y.dtype, copy=False).reshape(shape), bias)

    def biased() -> None:
        call()
        np.add(y, column(), y)

    return biased


def _merge_spatial(array: Array, shape: Shape) -> Array | None:
    """`array` in `shape`, which merges its spatial dims; None if that needs a copy."""
    view = array.reshape(shape)
    return view if np.may_share_memory(view, array) else None


# ---- patches ----------------------------------------------------------------------------------------


def pad_call(context: Context, g: ConvolutionGeometry, x: Array) -> tuple[Array, BoundCall]:
    """The zero-padded input, and the call that fills it."""
    if not any(g.padding):
        return x, nothing
    padded = context.workspace((*x.shape[:2], *g.padded), x.dtype)
    inner = padded[trailing(slice(p, p + n) for p, n in zip(g.padding, g.input, strict=True))]
    # Only the borders are zeroed in each run: `inner` is overwritten as a whole.
    borders = []
    for axis, p in enumerate(g.padding, 2):
        if p:
            before = (slice(None),) * axis
            borders += [padded[(*before, slice(None, p))], padded[(*before, slice(-p, None))]]

    def pad() -> None:
        for border in borders:
            border.fill(0)
        np.copyto(inner, x)

    return padded, pad


def windows(padded: Array, g: ConvolutionGeometry) -> Array:
    """(N, C, *padded) -> a view (N, C, *kernel, *output)."""
    # A window steps by the dilation within, and by the stride from one output to the next: no element is copied.
    steps = padded.strides[2:]
    return np.lib.stride_tricks.as_strided(
        padded,
        (*padded.shape[:2], *g.kernel, *g.output),
        (
            *padded.strides[:2],
            *(s * d for s, d in zip(steps, g.dilation, strict=True)),
            *(s * t for s, t in zip(steps, g.stride, strict=True)),
        ),
    )


def _patches_call(context: Context, g: ConvolutionGeometry, x: Array, weight: Array, y: Array) -> BoundCall:
    """weight (groups, O/groups, depth) @ patches (N, groups, depth, outputs), where depth is C/groups * taps."""
    depth = g.in_channels // g.groups * g.taps
    shape = (g.groups, g.out_channels // g.groups, depth)
    packed = when_constant(context, lambda w: np.ascontiguousarray(w, x.dtype).reshape(shape), weight)
    padded, pad = pad_call(context, g, x)
    views = windows(padded, g)
    products = (g.batch, g.groups, g.out_channels // g.groups, math.prod(g.output))
    target = _merge_spatial(y, products)
    result = context.workspace(products, x.dtype) if target is None else target
    # A kernel of one point sees the input as it is.
    whole = _merge_spatial(views, (g.batch, g.groups, depth, products[3])) if g.taps == 1 else None
    blocks = _blocks(context, g, views, result) if whole is None else [OutputBlock(slice(None), nothing, whole, result)]

    def call() -> None:
        pad()
        matrices = packed()
        for block in blocks:
            block.gather()
            np.matmul(matrices[block.groups], block.patches, block.products)
        if target is None:
            np.copyto(y, result.reshape(y.shape))

    return call


_BLOCK_BYTES: Final = 2 << 20
"""Patches gathered at a time: on ResNet-18 and MobileNetV2 as fast as all at once, in a tenth of the memory."""


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """A part of the product: its groups, the call that gathers its patches, and where it goes."""

    groups: slice
    gather: BoundCall
    patches: Array
    products: Array


def _blocks(context: Context, g: ConvolutionGeometry, views: Array, result: Array) -> list[OutputBlock]:
    """`views` (N, C, *kernel, *output) cut along batch, groups and output rows, into parts that fit one buffer."""
    channels, rows = g.in_channels // g.groups, g.output[0]
    inner = math.prod(g.output[1:])
    # Along the outer dims as many at a time as fit the buffer: rows first, then whole groups, then whole images.
    row_size = channels * g.taps * inner
    row_count = _fitting(row_size * views.itemsize, rows)
    group_count = _fitting(row_size * rows * views.itemsize, g.groups)
    batch_count = _fitting(row_size * rows * g.groups * views.itemsize, g.batch)
    memory = context.workspace((batch_count * group_count * row_count * row_size,), views.dtype)
    blocks = []
    for n, group, row in product(
        range(0, g.batch, batch_count), range(0, g.groups, group_count), range(0, rows, row_count)
    ):
        groups = slice(group, min(group + group_count, g.groups))
        end = min(row + row_count, rows)
        view = views[n : n + batch_count, groups.start * channels : groups.stop * channels]
        view = view[(slice(None),) * (2 + len(g.kernel)) + (slice(row, end),)]
        buffer = memory[: view.size].reshape(view.shape)  # all blocks share it: each is multiplied before the next
        patches = buffer.reshape(len(view), groups.stop - group, channels * g.taps, (end - row) * inner)
        products = result[n : n + batch_count, groups, :, row * inner : end * inner]
        blocks.append(OutputBlock(groups, partial(np.copyto, buffer, view), patches, products))
    return blocks


def _fitting(size: int, count: int) -> int:
    """How many of `count` pieces of `size` bytes to take at a time."""
    return min(max(_BLOCK_BYTES // max(size, 1), 1), count)


# ---- transposed -------------------------------------------------------------------------------------


def _transposed_call(context: Context, g: ConvolutionGeometry, x: Array, weight: Array, y: Array) -> BoundCall:
    """weightᵀ (groups, O/groups * taps, C/groups) @ input (N, groups, C/groups, inputs), added up where taps meet."""
    outs = g.out_channels // g.groups
    packed = when_constant(
        context,
        lambda w: np.ascontiguousarray(w.reshape(g.groups, -1, outs * g.taps).swapaxes(1, 2), x.dtype),
        weight,
    )
    # Each input element times the kernel is added to the outputs from input * stride on, padding included:
    #     input a b, stride 2, kernel (k0 k1 k2) -> total  a·k0  a·k1  a·k2 + b·k0  b·k1  b·k2
    # Per tap that is one strided addition; `crop` leaves the padding out. Output padding may reach beyond the taps.
    reach = tuple(
        max((n - 1) * s + d * (k - 1) + 1, o + 2 * p)
        for n, s, d, k, o, p in zip(g.input, g.stride, g.dilation, g.kernel, g.output, g.padding, strict=True)
    )
    total = context.workspace((g.batch, g.groups, outs, *reach), x.dtype)
    terms = context.workspace((g.batch, g.groups, outs * g.taps, math.prod(g.input)), x.dtype)
    by_tap = terms.reshape(g.batch, g.groups, outs, g.taps, *g.input)
    places = [
        (total[trailing(g.tap_slices(tap, g.input))], by_tap[:, :, :, i])
        for i, tap in enumerate(product(*map(range, g.kernel)))
    ]
    crop = total[trailing(slice(p, p + o) for p, o in zip(g.padding, g.output, strict=True))]
    rows = (g.batch, g.groups, g.in_channels // g.groups, math.prod(g.input))
    target = y.reshape(crop.shape)

    def call() -> None:
        np.matmul(packed(), x.reshape(rows), terms)
        total.fill(0)
        for place, term in places:
            np.add(place, term, place)
        np.copyto(target, crop)

    return call
