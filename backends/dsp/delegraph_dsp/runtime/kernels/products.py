"""Kernels of matrix products: float16 summed in float32 in the order of k, integers exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph_dsp.runtime.kernels.table import CODE, CODES, Arrays, kernel, write_codes

__all__ = ["ordered_product"]

HALF = ("float16",)

CACHED = 8192
"""The number of float32 sums that are computed at a time: 32 KB, so that they stay in a core's first cache."""


def product_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """[…, M, K], [… or 1, K, N], then vectors of N or 1, and the output […, M, N]."""
    a, b, *vectors, out = shapes
    if not len(a) == len(b) == len(out) >= 2 or any(v not in ((1,), out[-1:]) for v in vectors):
        return False
    batches = all(x in (1, z) and y in (1, z) for x, y, z in zip(a[:-2], b[:-2], out[:-2], strict=True))
    return batches and a[-1] == b[-2] and a[-2] == out[-2] and b[-1] == out[-1]


@kernel("matmul", HALF, HALF, HALF, HALF, shapes=product_shapes)
def matmul(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """a @ b + bias. A product of two float16 is exact in float32; sums begin with the bias, and are rounded to float32
    after each k in ascending order, a lane for each column, and to float16 once."""
    a, b, bias, out = arrays
    *batch, rows, columns = out.shape
    depth = a.shape[-1] + 1  # the bias is the first term: times one
    left = np.ones((*a.shape[:-2], depth, rows), np.float32)
    left[..., 1:, :] = np.swapaxes(a, -1, -2)
    right = np.empty((*b.shape[:-2], depth, columns), np.float32)
    right[..., 0, :], right[..., 1:, :] = bias, b
    if batch:
        left, right = (np.broadcast_to(operand, (*batch, *operand.shape[-2:])) for operand in (left, right))
    for place in product(*map(range, batch)):
        np.copyto(out[place], ordered_product(left[place], right[place]), casting="unsafe")


def ordered_product(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """[K, M] and [K, N] -> the sums over K [M, N], in ascending k in float32, of products that float32 holds exactly.

    NumPy's einsum goes row by row of K and adds products to whole rows of sums; a fused multiplication and addition
    makes no difference, since products are exact. It does not promise this order, so it is tested once
    (`_einsum_goes_by_rows`); a single sum it adds in lanes.
    """
    rows, sums = left.shape[1], left.shape[1] * right.shape[1]
    if sums == 1 or not _einsum_goes_by_rows():
        return _by_rows(left, right)
    if sums <= CACHED:
        return np.asarray(np.einsum("km,kn->mn", left, right))
    parts = np.array_split(left, min(rows, -(-sums // CACHED)), axis=1)
    return np.concatenate([np.einsum("km,kn->mn", part, right) for part in parts])


def _by_rows(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    total = np.zeros((left.shape[1], right.shape[1]), np.float32)
    products = np.empty_like(total)
    for a, b in zip(left, right, strict=True):
        np.multiply(a[:, None], b, out=products)
        total += products
    return total


@lru_cache(maxsize=1)
def _einsum_goes_by_rows() -> bool:
    """Whether NumPy's einsum adds in the machine's order here, tried on sums that differ in any other order."""
    rng = np.random.default_rng(0)
    for rows, columns in ((1, 2), (2, 1), (1, 70), (33, 1), (5, 8), (16, 37)):
        left, right = (
            (rng.standard_normal((83, n)) * 10.0 ** rng.integers(-2, 3, (83, n))).astype(np.float16).astype(np.float32)
            for n in (rows, columns)
        )
        if not np.array_equal(np.einsum("km,kn->mn", left, right), _by_rows(left, right)):
            return False
    return True


@kernel(
    "matmul_int", CODES, CODES, ("int32", "int64"), ("int32",), ("int32",), CODES,
    shapes=product_shapes, integers=(CODE, CODE, CODE, CODE, CODE),
)  # fmt: skip
def matmul_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """(a - za) @ (b - zb) + bias, rescaled by a multiplier and shift for each column (TOSA 1.0, MATMUL and RESCALE)."""
    a, b, bias, multiplier, shift, out = arrays
    zero_a, zero_b, zero_out, low, high = integers
    total = exact_product(a, zero_a, b, zero_b) + bias
    shifts = np.clip(shift, 2, 62)
    write_codes(out, total, (multiplier, shifts, zero_out, low, high))


def exact_product(a: NDArray[Any], zero_a: int, b: NDArray[Any], zero_b: int) -> NDArray[np.int64]:
    """The product of integers, by doubles, which hold all sums of up to 2**20 products of 17 bits each, in any
    order."""
    left, right = a.astype(np.float64) - zero_a, b.astype(np.float64) - zero_b
    return np.asarray(np.matmul(left, right), np.int64)
