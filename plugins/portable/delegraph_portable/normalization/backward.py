"""Gradients of layer and group normalization: of the input, the weight and the bias."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, check_shape

from ..library import kernel
from .forward import check_group_norm, check_layer_norm


@kernel("aten::native_layer_norm_backward.out")
def layer_norm_backward(
    context: Context,
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
    out0: Array,
    out1: Array,
    out2: Array,
) -> BoundCall:
    """`output_mask` says which of the gradients of input, weight and bias are computed."""
    inner = check_layer_norm(input, normalized_shape, weight, bias)
    rows = (math.prod(input.shape[: input.ndim - len(inner)]), math.prod(inner))
    gradients = _gradients(context, input, grad_out, inner, output_mask, (out0, out1, out2))
    return lambda: _backward(grad_out, input, (mean, rstd), weight, rows, (*rows, 1), gradients)


@kernel("aten::native_group_norm_backward.out")
def group_norm_backward(
    context: Context,
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
    out0: Array,
    out1: Array,
    out2: Array,
) -> BoundCall:
    """input (N, C, *), mean and rstd (N, group); `output_mask` as for layer normalization."""
    check_group_norm(input, weight, None, N, C, HxW, group)
    rows = (N * group, C // group * HxW)
    gradients = _gradients(context, input, grad_out, (C,), output_mask, (out0, out1, out2))
    return lambda: _backward(grad_out, input, (mean, rstd), weight, rows, (N, C, HxW), gradients)


def _gradients(
    context: Context,
    input: Array,
    grad_out: Array,
    parameters: Shape,
    output_mask: Sequence[bool],
    outs: tuple[Array, Array, Array],
) -> tuple[Array | None, ...]:
    """The outputs that the mask asks for, resized."""
    check_same_dtype(grad_out, "grad_out", input, "input")
    check_shape(grad_out, input.shape, "grad_out")
    if len(output_mask) != 3:
        raise InvalidArgument(f"argument 'output_mask' must have 3 values, but is {list(output_mask)}")
    shapes = (input.shape, parameters, parameters)
    return tuple(
        context.resize(out, shape) if asked else None
        for out, shape, asked in zip(outs, shapes, output_mask, strict=True)
    )


def _backward(
    grad_out: Array,
    input: Array,
    statistics: tuple[Array, Array],
    weight: Array | None,
    rows: Shape,
    channels: Shape,
    gradients: tuple[Array | None, ...],
) -> None:
    """With x̂ = (x - mean) rstd and g = grad_out weight: rstd (g - mean(g) - x̂ mean(g x̂)), Σ grad_out x̂, Σ grad_out.

    Means are of `rows`, sums over all but the second of `channels`, in which a parameter has one element each.
    """
    compute = compute_type(input.dtype)
    x, grad = (array.astype(compute, copy=False).reshape(rows) for array in (input, grad_out))
    mean, rstd = (array.astype(compute, copy=False).reshape(rows[0], 1) for array in statistics)
    normal = (x - mean) * rstd
    of_input, of_weight, of_bias = gradients
    if of_input is not None:
        inner = grad
        if weight is not None:
            scale = weight.astype(compute, copy=False).reshape(-1, 1)
            inner = (grad.reshape(channels) * scale).reshape(rows)
        average = inner.mean(1, keepdims=True)
        product = (inner * normal).mean(1, keepdims=True)
        np.copyto(of_input, (rstd * (inner - average - normal * product)).reshape(of_input.shape), casting="unsafe")
    for out, terms in ((of_weight, grad * normal), (of_bias, grad)):
        if out is not None:
            np.copyto(out, terms.reshape(channels).sum((0, 2)).reshape(out.shape), casting="unsafe")
