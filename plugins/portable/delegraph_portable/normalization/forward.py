"""Batch, layer and group normalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import contiguous_staging_buffer, function_call, staged_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, when_constant
from delegraph.runtime.numpy_kernels.promotion import DType, check_floating, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, check_shape

from ..library import kernel, prepare_out

# ---- parameters -------------------------------------------------------------------------------------


def _check_parameters(input: Array, shape: Shape, **parameters: Array | None) -> None:
    """Raise unless `input` is floating-point, and each parameter has `shape` and the dtype of `input`, or float32 where
    `input` is narrower."""
    check_floating(input, "input")
    for name, array in parameters.items():
        if array is None:
            continue
        check_shape(array, shape, name)
        if array.dtype not in (input.dtype, compute_type(input.dtype)):
            raise InvalidType(f"argument {name!r} is {array.dtype}, which does not go with an input of {input.dtype}")


# ---- batch normalization ----------------------------------------------------------------------------


@kernel("aten::_native_batch_norm_legit_no_training.out")
def batch_norm_inference(
    context: Context,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
    out0: Array,
    out1: Array,
    out2: Array,
) -> BoundCall:
    """(input - mean) / √(var + eps) * weight + bias per channel; `out1` and `out2` are empty."""
    out0 = _prepare_batch_norm(context, input, (weight, bias, running_mean, running_var), out0)
    context.resize(out1, (0,))
    context.resize(out2, (0,))
    return _scale_and_shift_call(context, input, (weight, bias, running_mean, running_var), eps, out0)


@kernel("aten::_batch_norm_no_update.out")
def batch_norm_no_update(context: Context, *arguments: Any) -> BoundCall:
    """As for inference; the last output, which backward passes keep things in, is empty too."""
    *of_inference, out3 = arguments
    if any(statistic is None for statistic in arguments[3:5]):
        raise InvalidArgument("arguments 'running_mean' and 'running_var' must be given: the batch's own are not taken")
    context.resize(out3, (0,))
    return batch_norm_inference(context, *of_inference)


def _prepare_batch_norm(context: Context, input: Array, statistics: Sequence[Array | None], out: Array) -> Array:
    if input.ndim < 2:
        raise InvalidArgument(f"argument 'input' must have at least 2 dimensions, but has shape {input.shape}")
    names = ("weight", "bias", "running_mean", "running_var")
    _check_parameters(input, (input.shape[1],), **dict(zip(names, statistics, strict=False)))
    return prepare_out(context, out, input.dtype, input.shape)


def _scale_and_shift_call(
    context: Context, input: Array, statistics: Sequence[Array | None], eps: float, out: Array
) -> BoundCall:
    compute = compute_type(input.dtype)
    fold = partial(_fold, compute, eps, (input.shape[1], *(1,) * (input.ndim - 2)))
    scale_and_shift = when_constant(context, fold, *statistics)

    def function(x: Array, result: Array) -> None:
        scale, shift = scale_and_shift()
        np.multiply(x, scale, result)
        np.add(result, shift, result)

    return function_call(context, function, (input,), out, compute)


def _fold(
    compute: DType,
    eps: float,
    shape: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    var: Array,
) -> tuple[Array, Array]:
    """scale and shift with input * scale + shift = the normalization, folded in float64."""
    scale = 1 / np.sqrt(var.astype(np.float64) + eps)
    if weight is not None:
        scale *= weight.astype(np.float64)
    shift = -mean.astype(np.float64) * scale
    if bias is not None:
        shift += bias.astype(np.float64)
    return scale.astype(compute).reshape(shape), shift.astype(compute).reshape(shape)


@kernel("aten::_native_batch_norm_legit.out")
def batch_norm(
    context: Context,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: float,
    eps: float,
    *outs: Array,
) -> BoundCall:
    """Normalizes by the batch's own statistics if `training`, which then also move the running ones."""
    if not training:
        return batch_norm_inference(context, input, weight, bias, running_mean, running_var, momentum, eps, *outs)
    return _train_call(context, input, (weight, bias, running_mean, running_var), momentum, eps, *outs)


@kernel("aten::_native_batch_norm_legit.no_stats_out")
def batch_norm_no_stats(
    context: Context,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    training: bool,
    *momentum_eps_and_outs: Any,
) -> BoundCall:
    return _train_call(context, input, (weight, bias), *momentum_eps_and_outs)


def _train_call(
    context: Context,
    input: Array,
    statistics: Sequence[Array | None],
    momentum: float,
    eps: float,
    out: Array,
    save_mean: Array,
    save_invstd: Array,
) -> BoundCall:
    out = _prepare_batch_norm(context, input, statistics, out)
    saved = (context.resize(array, (input.shape[1],)) for array in (save_mean, save_invstd))
    weight, bias = statistics[:2]
    running = [average for average in statistics[2:] if average is not None]
    return partial(_train, input, weight, bias, running, momentum, eps, out, *saved)


def _train(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running: Sequence[Array],
    momentum: float,
    eps: float,
    out: Array,
    save_mean: Array,
    save_invstd: Array,
) -> None:
    x = input.astype(compute_type(input.dtype), copy=False)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean = x.mean(axes, dtype=np.float64)
    var = x.var(axes, dtype=np.float64)
    scale, shift = _fold(x.dtype, eps, (x.shape[1], *(1,) * (x.ndim - 2)), weight, bias, mean, var)
    np.copyto(out, x * scale + shift, casting="unsafe")
    np.copyto(save_mean, mean, casting="unsafe")
    np.copyto(save_invstd, 1 / np.sqrt(var + eps), casting="unsafe")
    if running:
        count = x.size // x.shape[1]
        unbiased = var * (count / (count - 1)) if count > 1 else np.full_like(var, np.nan)
        for average, batch in zip(running, (mean, unbiased), strict=True):
            np.copyto(average, momentum * batch + (1 - momentum) * average.astype(np.float64), casting="unsafe")


# ---- layer and group normalization ------------------------------------------------------------------


def check_layer_norm(input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None) -> Shape:
    """`normalized_shape`, which must be the last dims of `input` and the shape of weight and bias."""
    inner = tuple(normalized_shape)
    leading = input.ndim - len(inner)
    if not inner or leading < 0 or input.shape[leading:] != inner:
        raise InvalidArgument(f"argument 'input' has shape {input.shape}, whose last dims are not {list(inner)}")
    _check_parameters(input, inner, weight=weight, bias=bias)
    return inner


@kernel("aten::native_layer_norm.out")
def layer_norm(
    context: Context,
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    bias: Array | None,
    eps: float,
    out0: Array,
    out1: Array,
    out2: Array,
) -> BoundCall:
    """Over the trailing dims `normalized_shape`; `out1` and `out2` are the mean and 1/√(var + eps) of each row."""
    inner = check_layer_norm(input, normalized_shape, weight, bias)
    leading = input.ndim - len(inner)
    rows = (math.prod(input.shape[:leading]), math.prod(inner))
    statistics = (*input.shape[:leading], *(1,) * len(inner))
    affine = _affine(context, (weight, bias), rows[1:], compute_type(input.dtype))
    return _normalize_rows(context, input, rows, rows, eps, affine, (out0, out1, out2), statistics)


def check_group_norm(
    input: Array, weight: Array | None, bias: Array | None, N: int, C: int, HxW: int, group: int
) -> None:
    """Raise `InvalidArgument` unless `input` is (N, C, *) with HxW elements in *, in `group` groups of channels."""
    if group < 1 or C % group or input.shape[:2] != (N, C) or input.size != N * C * HxW:
        raise InvalidArgument(
            f"argument 'input' of shape {input.shape} has no N={N}, C={C}, HxW={HxW} or no {group} groups"
        )
    _check_parameters(input, (C,), weight=weight, bias=bias)


@kernel("aten::native_group_norm.out")
def group_norm(
    context: Context,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
    out0: Array,
    out1: Array,
    out2: Array,
) -> BoundCall:
    """input (N, C, *) over the channels of each group; `out1` and `out2` are (N, group)."""
    check_group_norm(input, weight, bias, N, C, HxW, group)
    affine = _affine(context, (weight, bias), (C, 1), compute_type(input.dtype))
    rows = (N, group, C // group * HxW)
    return _normalize_rows(context, input, rows, (N, C, HxW), eps, affine, (out0, out1, out2), (N, group))


Affine = Callable[[], tuple[Array | None, Array | None]]
"""Gives weight and bias, reshaped to broadcast and in the compute dtype."""


def _affine(
    context: Context, parameters: tuple[Array | None, Array | None], shape: tuple[int, ...], compute: DType
) -> Affine:
    def shaped(array: Array | None) -> Array | None:
        return None if array is None else array.astype(compute, copy=False).reshape(shape)

    return when_constant(context, lambda weight, bias: (shaped(weight), shaped(bias)), *parameters)


def _normalize_rows(
    context: Context,
    input: Array,
    rows: tuple[int, ...],
    channels: tuple[int, ...],
    eps: float,
    affine: Affine,
    outs: tuple[Array, Array, Array],
    statistics: tuple[int, ...],
) -> BoundCall:
    """`input`, seen as `rows`, to mean 0 and variance 1 along the last dim; then, as `channels`, scaled and shifted.

    Means and 1/√(var + eps) go to the second and third of `outs`, of shape `statistics`.
    """
    compute = compute_type(input.dtype)
    shapes = (input.shape, statistics, statistics)
    x = contiguous_staging_buffer(context, input, compute)
    results = [
        contiguous_staging_buffer(context, context.resize(out, shape), compute)
        for out, shape in zip(outs, shapes, strict=True)
    ]
    averages = (*rows[:-1], 1)
    y, mean, rstd = (s.buffer.reshape(shape) for s, shape in zip(results, (rows, averages, averages), strict=True))
    average = np.full((rows[-1], 1), 1 / max(rows[-1], 1), compute)
    scratch = context.workspace(rows, compute)

    def function() -> None:
        _normalize(x.buffer.reshape(rows), average, eps, scratch, y, mean, rstd)
        _scale_and_shift(y.reshape(channels), *affine())

    return staged_call(function, [x], results)


def _normalize(x: Array, average: Array, eps: float, scratch: Array, y: Array, mean: Array, rstd: Array) -> None:
    """`average` (n, 1) holds 1/n: sums of rows as matrix products are faster than NumPy's reductions."""
    np.matmul(x, average, mean)
    np.subtract(x, mean, y)
    # Rounding leaves a rest of the mean, as large as the deviations where those are small beside the mean.
    np.matmul(y, average, rstd)
    np.subtract(y, rstd, y)
    np.add(mean, rstd, mean)
    np.square(y, scratch)
    np.matmul(scratch, average, rstd)
    np.add(rstd, eps, rstd)
    np.sqrt(rstd, rstd)
    np.reciprocal(rstd, rstd)
    np.multiply(y, rstd, y)


def _scale_and_shift(y: Array, weight: Array | None, bias: Array | None) -> None:
    if weight is not None:
        np.multiply(y, weight, y)
    if bias is not None:
        np.add(y, bias, y)
