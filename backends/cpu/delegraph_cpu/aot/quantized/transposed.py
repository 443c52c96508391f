"""Transposed convolutions of uint8: a convolution with channels for each place within a stride, which are interleaved.

With a stride s, an output at s * q + r, counted from the begin of the padding, is a sum over the kernel's elements
r, r + s, …: for each of the s places r a convolution of its own, of the same input. One QLinearConv computes them all,
in the plane as s * s channels for each output channel, which are then interleaved; the padding is cut off.

    x [n, c, h, w] ── QLinearConv ── [n, s * s * o, h', w'] ── to places ── Slice ── [n, o, H, W]

onnxruntime has no transposed convolution of integers. Its one of floats takes (1.31, one thread, 64 channels to 32 of
28 x 28, a kernel of 4 by strides of 2) 1.2 ms, this 0.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import named_arguments, per_dim
from delegraph_cpu.aot.quantized.table import activation
from delegraph_cpu.aot.quantized.weights import float_bias, in_steps, symmetric_weight
from delegraph_onnx.dtypes import INT64_MAX
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import are_known, rank_of, shape_of

__all__ = ["conv_transpose"]


def conv_transpose(g: GraphBuilder, node: Node, input: Node, weight: Node, bias: Node | None) -> Integers | None:
    """Converts kernels without gaps, inputs with at most one dynamic size, and results that are on a grid."""
    told = named_arguments(node)
    groups: int = told["groups"]
    taken, factors, result_grid = activation(g, input), symmetric_weight(g, weight, 1), g.wanted.get(node)
    if taken is None or factors is None or result_grid is None or set(told["dilation"]) != {1}:
        return None
    sizes = shape_of(input)[2:]
    if rank_of(node) != rank_of(weight) or sum(not are_known(size) for size in sizes) > 1:
        return None
    steps, pads, more = (per_dim(told[name], len(sizes)) for name in ("stride", "padding", "output_padding"))
    along = [_Places.of(*of) for of in zip(factors.content.shape[2:], steps, pads, more, strict=True)]
    if min(min(each.before, each.after) for each in along) < 0:
        return None  # the padding takes away whole rows or columns of the input
    (x, grid), added, places = taken, float_bias(g, bias), prod(steps)
    scale = _for_places(np.tile(factors.scale, groups), places, groups)
    of_bias = None if added is None else in_steps(_for_places(added, places, groups), grid.scale * scale)
    if bias is not None and of_bias is None:
        return None
    content = g.weight(weight.name, _by_place(factors.content, steps, groups))
    zero_points = g.weight(f"{weight.name}.zero_points", np.zeros(scale.shape, np.int8))
    result = g.op(
        "QLinearConv",
        *(x.value, *x.inputs(g), content, g.constant(scale), zero_points, *result_grid.inputs(g)),
        None if of_bias is None else g.constant(of_bias),
        pads=[*(each.before for each in along), *(each.after for each in along)],
        group=groups,
    )
    placed = [
        step * (size + each.more) if isinstance(size, int) else -1
        for size, step, each in zip(sizes, steps, along, strict=True)
    ]
    result = _to_places(g, result, placed, steps, groups, int(shape_of(node)[1]))
    if any(each.first or each.behind for each in along):
        ends = [-each.behind if each.behind else INT64_MAX for each in along]
        result = g.op("Slice", result, *map(g.ints, ([each.first for each in along], ends, range(2, 2 + len(along)))))
    return Integers.on(result, result_grid)


@dataclass(frozen=True, slots=True)
class _Places:
    """The places along a dim: the input's padding before and after; how many outputs more than inputs each place has;
    how much is cut off at the beginning and the end of the result."""

    before: int
    after: int
    more: int
    first: int
    behind: int

    @classmethod
    def of(cls, kernel: int, stride: int, padding: int, output_padding: int) -> _Places:
        reach = -(-kernel // stride) - 1  # the inputs before its own that a place reads
        skipped, first = divmod(padding, stride)
        after = (kernel + output_padding - 1 - padding) // stride
        more = after - skipped
        beyond = kernel + output_padding - stride - 2 * padding  # elements of the result beyond `stride` for each input
        return cls(reach - skipped, after, more, first, stride * more - first - beyond)


def _to_places(
    g: GraphBuilder, x: ir.Value, sizes: Sequence[int], steps: Sequence[int], groups: int, outputs: int
) -> ir.Value:
    """[n, groups * s * … * o, h, …] -> [n, groups * o, h * s, …]; the new sizes are `sizes`, one of which may be -1.

    Moved with channels last, as convolutions of integers have them: a place's channels lie in a row, and are copied
    together. DepthToSpace moves byte by byte (onnxruntime 1.31, one thread, 16 channels of 128 x 128: 1 ms, this 0.2).
    """
    dims = len(sizes)
    last = g.op("Transpose", x, perm=[0, *range(2, 2 + dims), 1])
    parts = g.op("Reshape", last, g.ints([*[0] * (1 + dims), groups, *steps, outputs // groups]))  # 0: keeps the size
    # [n, h, w, groups, sh, sw, o]  ->  [n, h, sh, w, sw, groups, o]  ->  [n, h * sh, w * sw, groups * o]
    interleaved = [axis for dim in range(1, 1 + dims) for axis in (dim, dim + 1 + dims)]
    placed = g.op("Transpose", parts, perm=[0, *interleaved, 1 + dims, 2 + 2 * dims])
    joined = g.op("Reshape", placed, g.ints([0, *sizes, outputs]))
    return g.op("Transpose", joined, perm=[0, 1 + dims, *range(1, 1 + dims)])


_T = TypeVar("_T", bound=np.generic)


def _for_places(of_channels: NDArray[_T], places: int, groups: int) -> NDArray[_T]:
    """[groups * o] -> [groups * places * o]: each place has the values of its group."""
    return np.tile(of_channels.reshape(groups, 1, -1), (1, places, 1)).reshape(-1)


def _by_place(weight: NDArray[np.int8], steps: Sequence[int], groups: int) -> NDArray[np.int8]:
    """[in, out / groups, h, …] -> [s * … * out, in / groups, ⌈h / s⌉, …], reversed along the kernel; by groups, and
    within each by places."""
    inputs, outputs, *kernel = weight.shape
    counts = [-(-size // step) for size, step in zip(kernel, steps, strict=True)]
    filled = [(0, count * step - size) for size, count, step in zip(kernel, counts, steps, strict=True)]
    whole = np.pad(weight, [(0, 0), (0, 0), *filled])
    split = [size for pair in zip(counts, steps, strict=True) for size in pair]
    # [in, o, kh, kw] padded  ->  [groups, in, o, nh, sh, nw, sw]  ->  [groups, sh, sw, o, in, nh, nw]
    parts = whole.reshape(groups, inputs // groups, outputs, *split)
    of_counts, of_places = range(3, parts.ndim, 2), range(4, parts.ndim, 2)
    # reversed: a transposed convolution scatters with the kernel, and QLinearConv gathers
    ordered = np.flip(parts, tuple(of_counts)).transpose(0, *of_places, 2, 1, *of_counts)
    return np.ascontiguousarray(ordered.reshape(groups * prod(steps) * outputs, inputs // groups, *counts))
