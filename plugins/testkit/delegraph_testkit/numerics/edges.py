"""A dtype -> the numbers at its edges: where rounding, overflow, signs and NaN decide.

edge_values       all of them                      dangerous_values   the few that are put into a tensor one at a time
edge_numbers      those that stand in a program as Python numbers
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

__all__ = ["DTYPES", "dangerous_values", "edge_numbers", "edge_values"]

DTYPES: Final = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""Operators are swept on these, as far as torch's kernels for the CPU take them."""

_POWERS: Final = (24, 31, 32, 53)
"""From here on float32 skips integers, int32 and uint32 end, float64 skips integers."""

_PLAIN: Final = (0.1, 0.5, 1.5, 2.0, 2.5, 3.0, math.pi, 7.0, 100.0, 1e-4, 1e-8)
"""Halves decide how is rounded; 1 + 1e-8 is 1 in float32."""

_BITS: Final = {16: torch.int16, 32: torch.int32, 64: torch.int64}


def edge_values(dtype: torch.dtype) -> Tensor:
    """The numbers at the edges of `dtype`, in one dim, each once but zero, which has two signs in floating point."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        return _complex_edges(dtype)
    return _float_edges(dtype) if dtype.is_floating_point else _integers(dtype, _integer_edges())


def dangerous_values(dtype: torch.dtype) -> Tensor:
    """The edges that are put into a tensor of ordinary numbers one at a time."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = torch.tensor([[math.nan, 0.0], [1.0, math.nan], [math.inf, 1.0], [-1.0, -math.inf], [0.0, -0.0]])
        return torch.view_as_complex(parts.to(dtype.to_real()))
    if not dtype.is_floating_point:
        (a, b, c, d), limits = _POWERS, torch.iinfo(dtype)
        return _integers(dtype, [0, 1, -1, limits.max, limits.min, 2**a + 1, 2**b, -(2**c), 2**d + 1])
    info = torch.finfo(dtype)
    plain = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, info.max, info.min, info.tiny], dtype=dtype)
    return torch.cat([plain, _last_odd(dtype), _denormals(dtype), -_denormals(dtype)])


def edge_numbers(dtype: torch.dtype) -> list[bool | int | float]:
    """Edges of `dtype` as Python numbers, with those of the dtype that Python's are promoted to."""
    if dtype == torch.bool:
        return [False, True, 2, 0.5]
    fractions = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 2.5, 3.0, math.inf, -math.inf, math.nan, 2.0**24 + 1]
    if dtype.is_floating_point or dtype.is_complex:
        limits = torch.finfo(dtype)
        return [*fractions, 3, 2**31, 2**53 + 1, limits.max, limits.min, float(_denormals(dtype.to_real())[0])]
    return [*dangerous_values(dtype).tolist(), 2, 3, *fractions]


def _integer_edges() -> list[int]:
    near = [2**power + step for power in _POWERS for step in (-1, 0, 1)]
    small = [0, 1, 2, 3, 7, 10, 100, 10**12]
    return [*small, *near, *(-number for number in (*small[1:], *near))]


def _integers(dtype: torch.dtype, numbers: list[int]) -> Tensor:
    """Those of `numbers` that `dtype` holds, and its extremes with their neighbours."""
    info = torch.iinfo(dtype)
    within = [n for n in (*numbers, info.min, info.min + 1, info.max - 1, info.max) if info.min <= n <= info.max]
    return torch.tensor(list(dict.fromkeys(within)), dtype=dtype)


def _float_edges(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    anchors = torch.tensor([1.0, *(2.0**power for power in _POWERS)], dtype=torch.float64).to(dtype)
    anchors = anchors[anchors.isfinite()]
    plain = torch.tensor([*_PLAIN, info.tiny, info.max, 0.0, math.inf], dtype=torch.float64).to(dtype)
    above = torch.cat(
        [_shifted(anchors, -1), anchors, _shifted(anchors, 1), _last_odd(dtype), _denormals(dtype), plain]
    )
    return torch.cat([torch.unique(above), -torch.unique(above), torch.tensor([math.nan], dtype=dtype)])


def _last_odd(dtype: torch.dtype) -> Tensor:
    """The largest odd number, 2^24 - 1 of float32: behind it integers are skipped."""
    return _shifted(torch.tensor([2.0 / torch.finfo(dtype).eps], dtype=dtype), -1)


def _shifted(values: Tensor, step: int) -> Tensor:
    """The `step`th neighbours of positive floats."""
    return (values.view(_BITS[8 * values.itemsize]) + step).view(values.dtype)


def _denormals(dtype: torch.dtype) -> Tensor:
    """The smallest denormal number, and the largest."""
    tiny = torch.tensor([torch.finfo(dtype).tiny], dtype=dtype)
    return torch.cat([torch.ones(1, dtype=_BITS[8 * dtype.itemsize]).view(dtype), _shifted(tiny, -1)])


def _complex_edges(dtype: torch.dtype) -> Tensor:
    real = dtype.to_real()
    parts = torch.tensor([0.0, -0.0, 1.0, -2.5, torch.finfo(real).max, math.inf, -math.inf, math.nan], dtype=real)
    return torch.view_as_complex(torch.cartesian_prod(parts, parts))
