"""The Hadamard transform along the last dim, by which SpinQuant's models rotate values before they quantize them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import copy_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_floating, check_same_dtype, compute_type

from ..library import kernel

# fmt: off
_ROWS: Final = (
    0x80796B3, 0x403EB59, 0x211D5EC, 0x118EAB6, 0x09C751B, 0x05E1ACD, 0x02F2D66, 0xC30262D, 0xE081356, 0x70409AB,
    0x38224D5, 0x1C1326A, 0x0E09935, 0x8604CDA, 0xA4CE061, 0x5365070, 0xA9B0838, 0x54D841C, 0x2A6C20E, 0x9534107,
    0x4B980C3, 0x9948F40, 0x4CA47A0, 0x2752390, 0x92AB188, 0xC857884, 0x652BC02, 0x3295E01,
)
# fmt: on
"""The Hadamard matrix of size 28 that ExecuTorch has, a row a number, 1 for +1, from the highest of 28 bits on."""

_OF_28: Final = np.array([[1 if row >> 27 - bit & 1 else -1 for bit in range(28)] for row in _ROWS], np.float32)


@kernel("llama::fast_hadamard_transform.out")
def fast_hadamard_transform(context: Context, mat: Array, out: Array) -> BoundCall:
    """mat (*, n) times the Hadamard matrix of size n, which is a power of two, over the root of n; or 28 times a power
    of two, over the root of that power."""
    check_floating(mat, "mat")
    check_same_dtype(out, "out", mat, "mat")
    size = mat.shape[-1] if mat.ndim else 0
    blocks = 28 if size and size % 28 == 0 else 1
    power = size // blocks
    if power < 1 or power & (power - 1):
        raise InvalidArgument(f"argument 'mat' has {size} columns, which is no power of two, nor 28 times one")
    out = context.resize(out, mat.shape)

    def call() -> None:
        copy_call(out, _transformed(mat, blocks, power))()

    return call


def _transformed(mat: Array, blocks: int, power: int) -> Array:
    dtype = compute_type(mat.dtype)
    values = mat.astype(dtype).reshape(-1, blocks, power)
    width = 1
    while width < power:  # pairs of parts: their sum and their difference
        first, second = np.split(values.reshape(-1, blocks, power // (2 * width), 2, width), 2, axis=3)
        values = np.concatenate([first + second, first - second], 3).reshape(-1, blocks, power)
        width *= 2
    values = values / dtype.type(math.sqrt(power))
    if blocks == 28:
        values = np.einsum("ji,bjk->bik", _OF_28.astype(dtype), values)
    return np.asarray(values.reshape(mat.shape))
