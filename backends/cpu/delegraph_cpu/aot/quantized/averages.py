"""Averages of uint8 on the grid of the result: over all dims behind the channels, or over windows.

An average over windows is a convolution by channels with ones, whose scale is one by their number: onnxruntime's
average pool of integers (1.31, one thread, 64 x 56 x 56, windows of 3 x 3) takes 4.6 ms, this 0.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from torch.fx import Node

from delegraph.aot.authoring import per_dim, reduced_dims
from delegraph_cpu.aot.quantized.pointwise import unary
from delegraph_cpu.aot.quantized.table import activation, integers_for
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import are_known, rank_of, shape_of


@integers_for("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d")
def adaptive_avg_pool(g: GraphBuilder, node: Node, self: Node, output_size: Sequence[int]) -> Integers | None:
    """Over all places, or over equal windows that do not overlap."""
    before, dims = shape_of(self)[2:], len(output_size)
    if rank_of(self) != dims + 2:
        return None
    if all(size == 1 for size in output_size):
        return _global_average(g, node, self)
    if not all(isinstance(size, int) and size % after == 0 for size, after in zip(before, output_size, strict=True)):
        return None
    window = [int(size) // after for size, after in zip(before, output_size, strict=True)]
    return _window_average(g, node, self, window, window, [0] * dims, prod(window))


@integers_for("mean.dim")
def mean(
    g: GraphBuilder, node: Node, self: Node, dim: Sequence[int] | None, keepdim: bool, dtype: object
) -> Integers | None:
    """Over all dims behind the channels."""
    rank = rank_of(self)
    if rank < 3 or reduced_dims(rank, dim) != tuple(range(2, rank)):
        return None
    average = _global_average(g, node, self)
    if average is None or keepdim:
        return average
    return Integers.on(g.op("Squeeze", average.value, g.ints(range(2, rank))), g.wanted[node])


@integers_for("avg_pool1d avg_pool2d avg_pool3d")
def avg_pool(
    g: GraphBuilder, node: Node, self: Node, kernel_size: Sequence[int], stride: Sequence[int], *how: Any
) -> Integers | None:
    """Converts an average whose windows are all divided by the same number."""
    dims, (padding, ceil_mode, count_include_pad, *divisors) = rank_of(self) - 2, how
    divisor = divisors[0] if divisors else None
    kernel, pads = per_dim(kernel_size, dims), per_dim(padding, dims)
    counts_differ = ceil_mode or (any(pads) and not count_include_pad and divisor is None)
    if counts_differ or rank_of(node) != len(kernel) + 2:
        return None
    strides = per_dim(stride, dims) if stride else kernel
    return _window_average(g, node, self, kernel, strides, pads, divisor or prod(kernel))


def _global_average(g: GraphBuilder, node: Node, self: Node) -> Integers | None:
    sizes, taken, grid = shape_of(self)[2:], activation(g, self), g.wanted.get(node)
    if taken is None or grid is None or not are_known(*sizes):
        return None
    count = prod(map(int, sizes))
    factor = taken[1].scale / (grid.scale * max(count, 1))
    if count > _MOST_AVERAGED or not _FACTORS[0] <= factor < _FACTORS[1]:
        return None
    return unary(g, node, self, "QLinearGlobalAveragePool")


def _window_average(
    g: GraphBuilder, node: Node, self: Node, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int],
    divisor: int,
) -> Integers | None:  # fmt: skip
    taken, grid, channels = activation(g, self), g.wanted.get(node), shape_of(self)[1]
    if taken is None or grid is None or not isinstance(channels, int) or prod(kernel) > _MOST_AVERAGED:
        return None
    x, _ = taken
    ones = g.weight("ones", np.ones((channels, 1, *kernel), np.int8))
    scale, zero_point = g.constant(np.array(1 / divisor, np.float32)), g.weight("zero_point", np.array(0, np.int8))
    inputs = (x.value, *x.inputs(g), ones, scale, zero_point, *grid.inputs(g))
    average = g.op("QLinearConv", *inputs, kernel_shape=kernel, strides=strides, pads=[*pads, *pads], group=channels)
    return Integers.on(average, grid)


_FACTORS = (2.0**-32, 2.0**8)
"""The kernel takes factors of a sum from the first, below the second: "parameter out of computation range" else."""
_MOST_AVERAGED = 2**23
"""The most uint8 whose sum fits int32 (`MlasQLinearGlobalAveragePool`)."""
