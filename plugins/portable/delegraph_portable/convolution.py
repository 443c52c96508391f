"""Convolution in one to three spatial dims, as matrix products.

Four forms, chosen by shape: a plain product where the kernel is one point; the patches under the kernel gathered into a matrix
(im2col) and multiplied otherwise; one multiply-and-add per kernel tap where each channel has a kernel of its own
(depthwise); and for the transposed convolution a product whose columns are added up in place (col2im).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .evaluate import stage, staged_call
from .library import Array, Context, kernel, when_constant
from .promotion import check_same_dtype, compute_type
from .shapes import Shape, check_shape, per_dim


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of one convolution; tuples have one entry per spatial dim."""

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    input: Shape
    output: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def padded(self) -> Shape:
        return tuple(n + 2 * p for n, p in zip(self.input, self.padding, strict=True))

    def tap_slices(self, tap: Sequence[int], count: Shape) -> tuple[slice, ...]:
        """Where, in the padded input, kernel point `tap` lies for `count` outputs in each dim."""
        starts = (t * d for t, d in zip(tap, self.dilation, strict=True))
        return tuple(
            slice(start, start + (n - 1) * step + 1, step)
            for start, n, step in zip(starts, count, self.stride, strict=True)
        )


def _output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _transposed_size(size: int, kernel: int, stride: int, padding: int, dilation: int, extra: int) -> int:
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1


def geometry(
    input: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Geometry:
    rank = weight.ndim - 2
    if rank not in (1, 2, 3) or input.ndim != weight.ndim:
        raise InvalidArgument(f"arguments 'input' {input.shape} and 'weight' {weight.shape} must both have 3 to 5 dims")
    steps, pads, spread, extra = (
        per_dim(values, rank, name)
        for values, name in (
            (stride, "stride"),
            (padding, "padding"),
            (dilation, "dilation"),
            (output_padding, "output_padding"),
        )
    )
    if min(*steps, *spread, groups) < 1 or min(*pads, *extra) < 0:
        raise InvalidArgument("arguments 'stride', 'dilation' and 'groups' must be positive, and paddings not negative")
    in_channels = weight.shape[0] if transposed else weight.shape[1] * groups
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if input.shape[1] != in_channels or in_channels % groups or out_channels % groups:
        raise InvalidArgument(
            f"argument 'input' {input.shape} does not fit argument 'weight' {weight.shape} with groups={groups}"
        )
    sizes = zip(input.shape[2:], weight.shape[2:], steps, pads, spread, strict=True)
    if transposed:
        output = tuple(_transposed_size(*s, e) for s, e in zip(sizes, extra, strict=True))
    else:
        output = tuple(_output_size(*s) for s in sizes)
    if min(output) < (0 if input.size == 0 else 1):
        raise InvalidArgument(f"argument 'input' {input.shape} is smaller than the kernel {weight.shape[2:]}")
    return Geometry(
        input.shape[0],
        in_channels,
        out_channels,
        groups,
        input.shape[2:],
        output,
        weight.shape[2:],
        steps,
        pads,
        spread,
    )


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
        check_shape(bias, (g.out_channels,), "bias")
    out = context.resize(out, (g.batch, g.out_channels, *g.output))
    if out.size == 0:
        return _nothing
    compute = compute_type(input.dtype)
    x, y = stage(context, input, compute), stage(context, out, compute)
    products = products_call(context, g, transposed, x.buffer, weight, y.buffer)
    return staged_call(_with_bias(context, products, bias, y.buffer), [x], [y])


def products_call(context: Context, g: Geometry, transposed: bool, x: Array, weight: Array, y: Array) -> BoundCall:
    """The convolution of `x` into `y` in their common dtype, in the form that suits its shape."""
    if transposed:
        return _transposed_call(context, g, x, weight, y)
    if g.in_channels == g.groups:
        return _depthwise_call(context, g, x, weight, y)
    return _patches_call(context, g, x, weight, y)


def _nothing() -> None:
    """The call for an empty output."""


def _with_bias(context: Context, call: BoundCall, bias: Array | None, y: Array) -> BoundCall:
    if bias is None:
        return call
    shape = (len(bias), *(1,) * (y.ndim - 2))
    column = when_constant(context, lambda b: b.astype(y.dtype, copy=False).reshape(shape), bias)

    def biased() -> None:
        call()
        np.add(y, column(), y)

    return biased


def _packed_weight(context: Context, weight: Array, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return when_constant(context, lambda w: np.ascontiguousarray(w, dtype).reshape(shape), weight)


def _merge_spatial(array: Array, shape: Shape) -> Array | None:
    """`array` in `shape`, which merges its spatial dims; None if that needs a copy."""
    view = array.view()
    try:
        view.shape = shape
    except AttributeError:  # NumPy's way to say that the strides do not allow it
        return None
    return view


# ---- patches ----------------------------------------------------------------------------------------


def pad_call(context: Context, g: Geometry, x: Array) -> tuple[Array, BoundCall]:
    """The zero-padded input, and the call that fills it."""
    if not any(g.padding):
        return x, _nothing
    padded = context.workspace((*x.shape[:2], *g.padded), x.dtype)
    inner = padded[(..., *(slice(p, p + n) for p, n in zip(g.padding, g.input, strict=True)))]
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


def windows(padded: Array, g: Geometry) -> Array:
    """(N, C, *padded) -> a view (N, C, *kernel, *output)."""
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


def _patches_call(context: Context, g: Geometry, x: Array, weight: Array, y: Array) -> BoundCall:
    """weight (groups, O/groups, C/groups * taps) @ patches (N, groups, C/groups * taps, outputs)."""
    depth = g.in_channels // g.groups * g.taps
    packed = _packed_weight(context, weight, (g.groups, g.out_channels // g.groups, depth), x.dtype)
    columns = math.prod(g.output)
    padded, pad = pad_call(context, g, x)
    views = windows(padded, g)
    matrix = (g.batch, g.groups, depth, columns)
    patches = _merge_spatial(views, matrix) if g.taps == 1 else None
    gather: BoundCall = _nothing
    if patches is None:
        patches = context.workspace(matrix, x.dtype)
        gather = partial(np.copyto, patches.reshape(views.shape), views)
    products = (g.batch, g.groups, g.out_channels // g.groups, columns)
    target = _merge_spatial(y, products)
    result = context.workspace(products, x.dtype) if target is None else target

    def call() -> None:
        pad()
        gather()
        np.matmul(packed(), patches, result)
        if target is None:
            np.copyto(y, result.reshape(y.shape))

    return call


# ---- depthwise --------------------------------------------------------------------------------------


def _depthwise_call(context: Context, g: Geometry, x: Array, weight: Array, y: Array) -> BoundCall:
    """One input channel per group: out_channels/groups kernels for each."""
    multiplier = g.out_channels // g.groups
    taps = list(product(*map(range, g.kernel)))
    shape = (g.taps, g.groups, multiplier, *(1,) * len(g.kernel))
    packed = when_constant(
        context,
        lambda w: np.ascontiguousarray(np.moveaxis(w.reshape(g.out_channels, -1), 1, 0), x.dtype).reshape(shape),
        weight,
    )
    padded, pad = pad_call(context, g, x)
    shifted = [padded[(slice(None), slice(None), None, *g.tap_slices(tap, g.output))] for tap in taps]
    result = context.workspace((g.batch, g.groups, multiplier, *g.output), x.dtype)
    term = context.workspace(result.shape, x.dtype)

    def call() -> None:
        pad()
        weights = packed()
        np.multiply(shifted[0], weights[0], result)
        for view, w in zip(shifted[1:], weights[1:], strict=True):
            np.multiply(view, w, term)
            np.add(result, term, result)
        np.copyto(y, result.reshape(y.shape))

    return call


# ---- transposed -------------------------------------------------------------------------------------


def _transposed_call(context: Context, g: Geometry, x: Array, weight: Array, y: Array) -> BoundCall:
    """weightᵀ (groups, O/groups * taps, C/groups) @ input (N, groups, C/groups, inputs), added up where taps meet."""
    outs = g.out_channels // g.groups
    packed = when_constant(
        context,
        lambda w: np.ascontiguousarray(w.reshape(g.groups, -1, outs * g.taps).swapaxes(1, 2), x.dtype),
        weight,
    )
    reach = tuple(
        max((n - 1) * s + d * (k - 1) + 1, o + 2 * p)
        for n, s, d, k, o, p in zip(g.input, g.stride, g.dilation, g.kernel, g.output, g.padding, strict=True)
    )
    total = context.workspace((g.batch, g.groups, outs, *reach), x.dtype)
    terms = context.workspace((g.batch, g.groups, outs * g.taps, math.prod(g.input)), x.dtype)
    by_tap = terms.reshape(g.batch, g.groups, outs, g.taps, *g.input)
    places = [
        (total[(..., *g.tap_slices(tap, g.input))], by_tap[:, :, :, i])
        for i, tap in enumerate(product(*map(range, g.kernel)))
    ]
    crop = total[(..., *(slice(p, p + o) for p, o in zip(g.padding, g.output, strict=True)))]
    rows = (g.batch, g.groups, g.in_channels // g.groups, math.prod(g.input))

    def call() -> None:
        np.matmul(packed(), x.reshape(rows), terms)
        total.fill(0)
        for place, term in places:
            np.add(place, term, place)
        np.copyto(
            y.reshape(crop.shape) if y.flags.c_contiguous else y,
            crop if y.flags.c_contiguous else crop.reshape(y.shape),
        )

    return call
