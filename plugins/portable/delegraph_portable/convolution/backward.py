"""Gradients of a convolution: of its input, weight and bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import replace
from delegraph.runtime.numpy_kernels.evaluate import contiguous_staging_buffer, nothing, staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import check_shape

from ..library import in_turn, kernel
from .forward import pad_call, products_call, windows
from .geometry import ConvolutionGeometry, geometry


@kernel("aten::convolution_backward.out")
def convolution_backward(
    context: Context,
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    out0: Array,
    out1: Array,
    out2: Array,
) -> BoundCall:
    """`output_mask` says which of the gradients of input, weight and bias are wanted."""
    check_same_dtype(grad_output, "grad_output", input, "input")
    check_same_dtype(weight, "weight", input, "input")
    g = geometry(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    check_shape(grad_output, (g.batch, g.out_channels, *g.output), "grad_output")
    calls = []
    if output_mask[0]:
        calls.append(_input_gradient(context, g, transposed, grad_output, weight, context.resize(out0, input.shape)))
    if output_mask[1]:
        small, large = (input, grad_output) if transposed else (grad_output, input)
        calls.append(_weight_gradient(context, g, small, large, context.resize(out1, weight.shape)))
    if output_mask[2]:
        calls.append(_bias_gradient(context, grad_output, context.resize(out2, (g.out_channels,))))

    return in_turn(*calls)


def _input_gradient(
    context: Context, g: ConvolutionGeometry, transposed: bool, grad_output: Array, weight: Array, out: Array
) -> BoundCall:
    """The other kind of convolution with the same weight, from outputs back to inputs."""
    if out.size == 0:
        return nothing
    back = replace(g, in_channels=g.out_channels, out_channels=g.in_channels, input=g.output, output=g.input)
    compute = compute_type(grad_output.dtype)
    x, y = staging_buffer(context, grad_output, compute), staging_buffer(context, out, compute)
    return staged_call(products_call(context, back, not transposed, x.buffer, weight, y.buffer), [x], [y])


def _weight_gradient(context: Context, g: ConvolutionGeometry, small: Array, large: Array, out: Array) -> BoundCall:
    """Each kernel tap sees one `large` element for each `small` one: sum their products over batch and places."""
    small_size, large_size = small.shape[2:], large.shape[2:]
    forward = replace(g, in_channels=large.shape[1], out_channels=small.shape[1], input=large_size, output=small_size)
    compute = compute_type(small.dtype)
    sources, gradients = staging_buffer(context, large, compute), contiguous_staging_buffer(context, small, compute)
    padded, pad = pad_call(context, forward, sources.buffer)
    patches = windows(padded, forward)
    columns = (g.batch, g.groups, -1, math.prod(small_size))

    def call() -> None:
        pad()
        products = gradients.buffer.reshape(columns) @ patches.reshape(columns).swapaxes(2, 3)
        np.copyto(out, products.sum(0).reshape(out.shape), casting="unsafe")

    return staged_call(call, [sources, gradients], []) if patches.size else partial(out.fill, 0)


def _bias_gradient(context: Context, grad_output: Array, out: Array) -> BoundCall:
    axes = (0, *range(2, grad_output.ndim))
    compute = compute_type(grad_output.dtype)
    return lambda: np.copyto(out, grad_output.sum(axes, dtype=compute), casting="unsafe")
