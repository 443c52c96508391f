"""Images and volumes at another size: upsampling, which also makes smaller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    FLOAT64,
    INT64,
    DType,
    check_same_dtype,
    compute_type,
    float_type,
    is_integral,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, check_rank, per_dim, trailing

from ..library import kernel, prepare_out
from .interpolation import (
    CUBIC,
    LANCZOS,
    TRIANGLE,
    ResizedAxis,
    Taps,
    antialiased_taps,
    cubic_taps,
    linear_taps,
    nearest,
    nearest_exact,
    nearest_exact_of_image,
    nearest_of_image,
)

Factors = Sequence[float | None]
TapsOf = Callable[[ResizedAxis, DType], Taps]
Finish = Callable[[Array], None]


def _output_size(rank: int, input: Array, size: Sequence[int]) -> Shape:
    check_rank(input, (rank + 2,), "input")
    output = per_dim(size, rank, "output_size")
    if min(output) < 1 or 0 in input.shape[1:]:
        raise InvalidArgument(f"argument 'input' of shape {input.shape} cannot be resized to {output}")
    return output


def _requested_size(
    rank: int, input: Array, size: Sequence[int] | None, factors: Sequence[float] | None
) -> tuple[Sequence[int], Factors]:
    """The output size and the factors, of which exactly one was given."""
    check_rank(input, (rank + 2,), "input")
    if size is not None and factors is None:
        return size, (None,) * rank
    if factors is None or size is not None:
        raise InvalidArgument("exactly one of the arguments 'output_size' and 'scale_factors' must be given")
    if len(factors) != rank:
        raise InvalidArgument(f"argument 'scale_factors' must have {rank} values, but is {list(factors)}")
    return [int(n * f) for n, f in zip(input.shape[2:], factors, strict=True)], factors


# ---- nearest ----------------------------------------------------------------------------------------


def _nearest_call(
    places_of: Callable[[ResizedAxis], Array],
    context: Context,
    input: Array,
    output_size: Sequence[int],
    factors: Factors,
    out: Array,
) -> BoundCall:
    size = _output_size(len(factors), input, output_size)
    out = prepare_out(context, out, input.dtype, (*input.shape[:2], *size))
    resizes = map(ResizedAxis, input.shape[2:], size, factors)
    places = trailing(np.ix_(*map(places_of, resizes)))
    return lambda: np.copyto(out, input[places], casting="unsafe")


def _upsample_nearest(
    places_of: Callable[[ResizedAxis], Array],
    context: Context,
    self: Array,
    output_size: Sequence[int],
    *scales_and_out: Any,
) -> BoundCall:
    """The schema has a scale for each spatial dim, and then `out`."""
    *scales, out = scales_and_out
    return _nearest_call(places_of, context, self, output_size, scales, out)


for _rank in (1, 2, 3):
    _rules = (nearest_of_image, nearest_exact_of_image) if _rank == 2 else (nearest, nearest_exact)
    kernel(f"aten::upsample_nearest{_rank}d.out")(partial(_upsample_nearest, _rules[0]))
    kernel(f"aten::_upsample_nearest_exact{_rank}d.out")(partial(_upsample_nearest, _rules[1]))


@kernel("aten::upsample_nearest2d.vec_out")
def upsample_nearest2d(
    context: Context, input: Array, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None, out: Array
) -> BoundCall:
    return _nearest_call(nearest_of_image, context, input, *_requested_size(2, input, output_size, scale_factors), out)


# ---- interpolation ----------------------------------------------------------------------------------


def _interpolation_call(
    taps_of: TapsOf,
    context: Context,
    input: Array,
    output_size: Sequence[int],
    align_corners: bool,
    factors: Factors,
    out: Array,
) -> BoundCall:
    size = _output_size(len(factors), input, output_size)
    check_same_dtype(out, "out", input, "input")
    out = context.resize(out, (*input.shape[:2], *size))
    compute = compute_type(float_type(input.dtype))
    resizes = [ResizedAxis(*axis, align_corners) for axis in zip(input.shape[2:], size, factors, strict=True)]
    if input.dtype == np.uint8 and taps_of in _ANTIALIASED.values():
        fixed = [_fixed(taps_of(resize, FLOAT64)) for resize in resizes]
        return function_call(context, partial(_weigh_all, fixed), (input,), out, INT64)
    finish = partial(_saturate, np.iinfo(input.dtype)) if is_integral(input.dtype) else None
    steps = [(taps_of(resize, compute), finish) for resize in resizes]
    return function_call(context, partial(_weigh_all, steps), (input,), out, compute)


def _fixed(taps: Taps) -> tuple[Taps, Finish]:
    """Weights as torch has them for bytes: integers of 16 bits with as many places behind the point as the largest has
    room for (`_compute_index_ranges_int16_weights` of its `UpSampleKernel.cpp`)."""
    places, weights = taps
    largest = float(weights.max())
    bits = next((bits for bits in range(22) if int(0.5 + largest * 2 ** (bits + 1)) >= 2**15), 22)
    scaled = weights * 2.0**bits
    return (places, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64)), partial(_to_bytes, bits)


def _to_bytes(bits: int, x: Array) -> None:
    """Halves are rounded up."""
    x += 1 << bits >> 1
    x >>= bits
    np.clip(x, 0, 255, x)


def _saturate(limits: np.iinfo[Any], x: Array) -> None:
    np.rint(x, x)
    np.clip(x, limits.min, limits.max, x)


def _weigh_all(steps: Sequence[tuple[Taps, Finish | None]], x: Array, out: Array) -> None:
    """The last axis first, as torch does, which keeps integers between the axes: `Finish` makes them of sums."""
    for axis, (taps, finish) in reversed(list(enumerate(steps, 2))):
        x = _weigh(x, taps, axis)
        if finish is not None:
            finish(x)
    np.copyto(out, x)


def _weigh(x: Array, taps: Taps, axis: int) -> Array:
    shape = (-1, *(1,) * (x.ndim - 1 - axis))
    terms = (np.take(x, places, axis) * weights.reshape(shape) for places, weights in zip(*taps, strict=True))
    total: Array = next(terms)
    for term in terms:
        total += term
    return total


def _upsample(
    taps_of: TapsOf,
    context: Context,
    self: Array,
    output_size: Sequence[int],
    align_corners: bool,
    *scales_and_out: Any,
) -> BoundCall:
    """The schema has a scale for each spatial dim, and then `out`."""
    *scales, out = scales_and_out
    return _interpolation_call(taps_of, context, self, output_size, align_corners, scales, out)


_ANTIALIASED: Final[dict[str, TapsOf]] = {
    "aten::_upsample_bilinear2d_aa.out": partial(antialiased_taps, TRIANGLE),
    "aten::_upsample_bicubic2d_aa.out": partial(antialiased_taps, CUBIC),
    "aten::_upsample_lanczos2d_aa.out": partial(antialiased_taps, LANCZOS),
}
_INTERPOLATIONS: Final[dict[str, TapsOf]] = {
    "aten::upsample_linear1d.out": linear_taps,
    "aten::upsample_bilinear2d.out": linear_taps,
    "aten::upsample_trilinear3d.out": linear_taps,
    "aten::upsample_bicubic2d.out": cubic_taps,
    **_ANTIALIASED,
}

for _op, _taps_of in _INTERPOLATIONS.items():
    kernel(_op)(partial(_upsample, _taps_of))


@kernel("aten::upsample_bilinear2d.vec_out")
def upsample_bilinear2d(
    context: Context,
    input: Array,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
    out: Array,
) -> BoundCall:
    size, factors = _requested_size(2, input, output_size, scale_factors)
    return _interpolation_call(linear_taps, context, input, size, align_corners, factors, out)
