"""Running sums, products, extremes and log-sums along a dim.

Sums, products and log-sums are accumulated as wide as torch does on a CPU (`acc_type`, ATen/AccumulateType.h):
float32 in float64, complex64 in complex128, halves in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import copy_call, staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    FLOAT32,
    FLOAT64,
    INT64,
    DType,
    check_result,
    compute_type,
    is_complex,
    is_integral,
    requested_type,
    sum_type,
)
from delegraph.runtime.numpy_kernels.shapes import wrap_dim

from ..library import kernel, prepare_out
from ..pointwise.unary import complex_log1p

_ROW: Final = 32  # elements side by side from which on a step for a whole row beats NumPy's own accumulation
_WIDER: Final = {FLOAT32: FLOAT64, np.dtype(np.complex64): np.dtype(np.complex128)}


def _accumulation_type(dtype: DType) -> DType:
    compute = compute_type(dtype)
    return _WIDER.get(compute, compute) if compute == dtype else compute


def _accumulate(step: np.ufunc, axis: int, x: Array, out: Array) -> None:
    """out[i] = step(out[i - 1], x[i]) along `axis`, in the dtype of `out`."""
    if axis == x.ndim - 1 or x.size < _ROW * x.shape[axis]:
        if x.dtype != out.dtype:  # cast as a whole: NumPy's own casting by blocks takes half as long again
            np.copyto(out, x, casting="unsafe")
            x = out
        step.accumulate(x, axis, out=out)
    else:
        _step_by_step(partial(step, dtype=out.dtype, casting="unsafe"), axis, x, out)


def _step_by_step(step: Callable[..., Any], axis: int, x: Array, out: Array) -> None:
    rows, results = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    np.copyto(results[:1], rows[:1], casting="unsafe")
    for i in range(1, len(rows)):
        step(results[i - 1], rows[i], out=results[i])


# ---- sums and products ------------------------------------------------------------------------------


def _cumulative(step: np.ufunc, context: Context, self: Array, dim: int, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    axis = wrap_dim(dim, self.ndim)
    out = prepare_out(context, out, result, self.shape)
    if is_complex(self.dtype) and not is_complex(result):
        self = self.real  # the cast to `dtype` comes first, and drops the imaginary part
    if self.ndim == 0:
        return copy_call(out, self)
    running = staging_buffer(context, out, _accumulation_type(result))
    return staged_call(partial(_accumulate, step, axis, self, running.buffer), [], [running])


kernel("aten::cumsum.out")(partial(_cumulative, np.add))
kernel("aten::cumprod.out")(partial(_cumulative, np.multiply))


# ---- extremes ---------------------------------------------------------------------------------------

_EXTREMES: Final = {"aten::cummax.out": np.maximum, "aten::cummin.out": np.minimum}  # both hand NaN on


def _running_extreme(
    extreme: np.ufunc, context: Context, self: Array, dim: int, values: Array, indices: Array
) -> BoundCall:
    """The extreme so far, and the last place where it stands; of NaN, which outdoes all numbers, too."""
    if is_complex(self.dtype):
        raise InvalidType(f"argument 'self' is {self.dtype}: complex numbers have no order")
    check_result(self.dtype, values)
    axis = wrap_dim(dim, self.ndim)
    values, indices = context.resize(values, self.shape), context.resize(indices, self.shape)
    x, running = staging_buffer(context, np.atleast_1d(self), compute_type(self.dtype)), np.atleast_1d(values)
    best, places = (
        staging_buffer(context, running, x.buffer.dtype),
        staging_buffer(context, np.atleast_1d(indices), INT64),
    )

    def call() -> None:
        _accumulate(extreme, axis, x.buffer, best.buffer)
        if x.buffer.size:
            _last_places(axis, x.buffer, best.buffer, places.buffer)

    return staged_call(call, [x], [best, places])


def _last_places(axis: int, x: Array, best: Array, places: Array) -> None:
    numbers = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    stands = (x == best) | (x != x)
    _accumulate(np.maximum, axis, np.where(stands, numbers, 0), places)


for _op, _extreme in _EXTREMES.items():
    kernel(_op)(partial(_running_extreme, _extreme))


# ---- log-sums ---------------------------------------------------------------------------------------


@kernel("aten::logcumsumexp.out")
def logcumsumexp(context: Context, self: Array, dim: int, out: Array) -> BoundCall:
    """log(Σ exp(x)) over the elements so far."""
    if is_integral(self.dtype):
        raise InvalidType(f"argument 'self' must be floating-point or complex, but is {self.dtype}")
    axis = wrap_dim(dim, self.ndim)
    out = prepare_out(context, out, self.dtype, self.shape)
    if self.ndim == 0:
        return copy_call(out, self)
    running = staging_buffer(context, out, _accumulation_type(self.dtype))
    if is_complex(self.dtype):
        call = partial(_log_sums_complex, axis, self, running.buffer)
    else:
        call = partial(_accumulate, np.logaddexp, axis, self, running.buffer)
    return staged_call(call, [], [running])


def _log_sums_complex(axis: int, x: Array, out: Array) -> None:
    rows, results = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    total: Any = -np.inf  # log(0)
    for i in range(len(rows)):
        total = _log_add(rows[i], total)
        results[i] = total


def _log_add(x: Array, total: Array) -> Array:
    """log(exp(x) + exp(total)), of which the larger modulus is taken out first, of equal ones that of `x`; where
    both are 0, `total`."""
    swap = x.real < np.real(total)
    larger, smaller = np.where(swap, total, x), np.where(swap, x, total)
    ratio = np.exp(smaller - larger)
    added = np.empty_like(ratio)
    complex_log1p(ratio, added)
    result = larger + added
    result = np.where(larger.real == -np.inf, total, result)
    result = np.where(smaller.real == np.inf, np.log(np.exp(x) + np.exp(total)), result)
    return np.where(np.isnan(x) | np.isnan(total), complex(np.nan, np.nan), result)
