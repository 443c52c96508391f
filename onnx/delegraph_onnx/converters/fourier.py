"""Fourier transforms of pairs: products with a matrix of the waves where that is small, else ONNX's DFT.

    [..., n] ── MatMul [n, m * 2] ── Reshape ── [..., m, 2]        n real numbers, m frequencies
    [..., n, 2] ── Reshape ── MatMul [n * 2, n * 2] ── Reshape ── [..., n, 2]

onnxruntime's DFT (1.31, one thread, 30 rows of 400, as Whisper's spectrogram has them) takes 3.8 ms and is exact to
1e-4, the product 0.12 ms and 5e-7; for 512 it takes 0.75 ms, the product 0.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import numpy_dtype
from delegraph_onnx.converters.complex_numbers import convert_complex, parts
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


def _known_sizes(node: Node, self: Node, dims: Sequence[int], *_: object) -> str | None:
    known = all(isinstance(shape_of(each)[dim], int) for each in (self, node) for dim in dims)
    return None if known else "a Fourier transform along a dynamic dim"


@convert_complex("_fft_c2c", check=_known_sizes)
def fft_c2c(
    g: GraphBuilder, node: Node, self: Node, dims: Sequence[int], normalization: int, forward: bool
) -> ir.Value:
    sizes = _sizes(self, dims)
    value = _transformed(g, node, g.value(self), sizes, forward)
    return _scaled(g, value, dtype_of(node), list(sizes.values()), normalization, not forward)


@convert_complex("_fft_r2c", check=_known_sizes)
def fft_r2c(
    g: GraphBuilder, node: Node, self: Node, dims: Sequence[int], normalization: int, onesided: bool
) -> ir.Value:
    sizes = _sizes(self, dims)
    axis = dims[-1] % rank_of(self)
    n, m = sizes.pop(axis), int(shape_of(node)[axis])
    if n * m * 2 <= _LARGEST:
        waves = np.stack(_waves(n, np.arange(n), np.arange(m), forward=True), -1)
        value = _product(g, g.value(self), axis, rank_of(node), waves.reshape(n, m * 2), dtype_of(node))
    else:
        raised = g.op("Unsqueeze", g.value(self), g.ints([-1]))
        value = _dft(g, raised, dtype_of(node), axis, n, onesided=onesided)
    value = _transformed(g, node, value, sizes, forward=True)
    return _scaled(g, value, dtype_of(node), [n, *sizes.values()], normalization, inverse=False)


@convert_complex("_fft_c2r", check=lambda node, self, dims, normalization, size: (
    _known_sizes(node, self, dims) or (None if isinstance(size, int) else "a dynamic size")))  # fmt: skip
def fft_c2r(g: GraphBuilder, node: Node, self: Node, dims: Sequence[int], normalization: int, size: int) -> ir.Value:
    """The half that is left out is the conjugate of the other; imaginary parts of the result are rounding errors."""
    sizes = _sizes(self, dims)
    axis, half = dims[-1] % rank_of(self), size // 2 + 1
    del sizes[axis]
    value, last = _transformed(g, self, g.value(self), sizes, forward=False), g.ints([axis])
    if int(shape_of(self)[axis]) > half:
        value = g.op("Slice", value, g.ints([0]), g.ints([half]), last)
    if half * 2 * size <= _LARGEST:
        weights = np.full(half, 2 / size)  # a frequency and its conjugate
        weights[[0, *([half - 1] if size % 2 == 0 else [])]] = 1 / size
        cosines, sines = _waves(size, np.arange(half), np.arange(size), forward=False)
        waves = np.stack([cosines, -sines], 1) * weights[:, None, None]
        real = _product(g, value, axis, rank_of(self), waves.reshape(half * 2, size), dtype_of(node), to_real=True)
    else:
        if size > half:
            mirrored = g.op("Slice", value, g.ints([size - half]), g.ints([0]), last, g.ints([-1]))
            re, im = parts(g, mirrored)
            pairs = (g.op("Unsqueeze", part, g.ints([-1])) for part in (re, g.op("Neg", im)))
            value = g.op("Concat", value, g.op("Concat", *pairs, axis=-1), axis=axis)
        real = parts(g, _dft(g, value, dtype_of(node), axis, size, inverse=True))[0]
    return _scaled(g, real, dtype_of(node), [*sizes.values(), size], normalization, inverse=True)


def _sizes(self: Node, dims: Sequence[int]) -> dict[int, int]:
    """Axis -> its size."""
    return {dim % rank_of(self): int(shape_of(self)[dim]) for dim in dims}


def _transformed(g: GraphBuilder, like: Node, value: ir.Value, sizes: dict[int, int], forward: bool) -> ir.Value:
    """Pairs, of the rank and dtype of `like`, along axis after axis; divided by the sizes if not `forward`."""
    rank, dtype = rank_of(like), dtype_of(like)
    for axis, n in sizes.items():
        if n * n * 4 <= _LARGEST:
            c, s = _waves(n, np.arange(n), np.arange(n), forward)
            waves = np.stack([np.stack([c, s], -1), np.stack([-s, c], -1)], 1).reshape(n * 2, n * 2)
            value = _product(g, value, axis, rank, waves if forward else waves / n, dtype, from_pairs=True)
        else:
            value = _dft(g, value, dtype, axis, n, inverse=not forward)
    return value


_LARGEST: Final = 2**19
"""Elements of a matrix of waves, 2 MB. Beyond, onnxruntime's DFT is not much slower where it can halve the size."""


def _waves(
    n: int, rows: NDArray[np.int64], columns: NDArray[np.int64], forward: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosines and sines of -2 pi * row * column / n, or of + where not `forward`. Quarter turns are exactly 0: 1e-16
    times a large number would not be."""
    angles = np.outer(rows, columns) % n * (2 * math.pi / n)
    cosines, sines = np.cos(angles), np.sin(-angles if forward else angles)
    return tuple(np.where(np.abs(wave) < 1e-12, 0.0, wave) for wave in (cosines, sines))  # type: ignore[return-value]


def _product(
    g: GraphBuilder, value: ir.Value, axis: int, rank: int, matrix: NDArray[np.float64], dtype: torch.dtype,
    *, from_pairs: bool = False, to_real: bool = False,
) -> ir.Value:  # fmt: skip
    """The vectors along `axis` of `value`, pairs flattened to two numbers, times `matrix`."""
    order = [*(dim for dim in range(rank) if dim != axis), axis]
    back, last, keep = [order.index(dim) for dim in range(rank)], [rank], [0] * (rank - 1)
    pairs = from_pairs or to_real
    x = g.transpose(value, order + last if pairs else order)
    if pairs:
        x = g.op("Reshape", x, g.ints([*keep, matrix.shape[0]]))
    y = g.op("MatMul", x, g.constant(matrix.astype(numpy_dtype(dtype))))
    if to_real:
        return g.transpose(y, back)
    return g.transpose(g.op("Reshape", y, g.ints([*keep, matrix.shape[1] // 2, 2])), back + last)


def _dft(
    g: GraphBuilder, value: ir.Value, dtype: torch.dtype, axis: int, n: int, *,
    onesided: bool = False, inverse: bool = False,
) -> ir.Value:  # fmt: skip
    """ONNX's DFT; in double where it cannot halve the size down to 1: onnxruntime's sums lose four digits there."""
    halves = n & (n - 1) == 0
    wide = value if halves or dtype == torch.float64 else g.cast(value, torch.float64)
    transformed = g.op("DFT", wide, None, g.tensor(axis, torch.int64), onesided=int(onesided), inverse=int(inverse))
    return transformed if wide is value else g.cast(transformed, dtype)


def _scaled(
    g: GraphBuilder, value: ir.Value, dtype: torch.dtype, sizes: Sequence[int], normalization: int, inverse: bool
) -> ir.Value:
    """Scale by torch's normalisation (0: none, 1: the root of the number of elements, 2: that number), where an inverse
    transform has divided by the number already."""
    count = math.prod(sizes)
    factor = (count if inverse else 1.0) / (1.0, math.sqrt(count), float(count))[normalization]
    return value if factor == 1 else g.op("Mul", value, g.tensor(factor, dtype))
