"""Kernels of matrix products: float16 summed in float32 in the order of k, integers exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph_dsp.runtime.kernels.table import CODE, CODES, Arrays, kernel, write_codes

__all__: list[str] = []

HALF = ("float16",)


def product_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """[…, M, K], [… or 1, K, N], then vectors of N or 1, and the output […, M, N]."""
    a, b, *vectors, out = shapes
    if not len(a) == len(b) == len(out) >= 2 or any(v not in ((1,), out[-1:]) for v in vectors):
        return False
    batches = all(x in (1, z) and y in (1, z) for x, y, z in zip(a[:-2], b[:-2], out[:-2], strict=True))
    return batches and a[-1] == b[-2] and a[-2] == out[-2] and b[-1] == out[-1]


@kernel("matmul", HALF, HALF, HALF, HALF, shapes=product_shapes)
def matmul(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """a @ b + bias. A product of two float16 is exact in float32; sums begin with the bias, round to float32, and go on
    by rising k, a lane for each column, until they are rounded to float16 once."""
    a, b, bias, out = arrays
    left, right = a.astype(np.float32), b.astype(np.float32)
    total = np.broadcast_to(bias.astype(np.float32), out.shape).copy()
    product = np.empty_like(total)
    for k in range(a.shape[-1]):
        np.multiply(left[..., k : k + 1], right[..., k : k + 1, :], out=product)
        total += product
    np.copyto(out, total, casting="unsafe")


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
    """The product of integers, by doubles: they hold all sums of up to 2**20 products of 17 bits each, in any order."""
    left, right = a.astype(np.float64) - zero_a, b.astype(np.float64) - zero_b
    return np.asarray(np.matmul(left, right), np.int64)
