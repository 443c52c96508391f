"""Transposed convolutions of uint8 in the plane: a convolution whose channels are the places between, put in place.

With a stride s, an output at s * q + r, counted from where the padding begins, is a sum over the kernel's elements
r, r + s, …: for each of the s places r a convolution of its own, of the input as it is. One QLinearConv computes them
all, as s * s channels for each, which are then put where they belong; what padding takes away is cut off.

    x [n, c, h, w] ── QLinearConv ── [n, s * s * o, h', w'] ── to places ── Slice ── [n, o, H, W]

onnxruntime has no transposed convolution of integers. Its one of floats takes (1.31, one thread, 64 channels to 32 of
28 x 28, a kernel of 4 by strides of 2) 1.2 ms, this 0.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch.fx import Node

from delegraph_cpu.aot.converters.table import per_dim
from delegraph_cpu.aot.graph_builder import GraphBuilder
from delegraph_cpu.aot.node_facts import are_known, rank_of, shape_of
from delegraph_cpu.aot.quantized.table import activation, integers_for
from delegraph_cpu.aot.quantized.values import Integers
from delegraph_cpu.aot.quantized.weights import float_bias, in_steps, symmetric_weight

__all__ = ["conv_transpose"]


@integers_for("conv_transpose2d.input")
def conv_transpose(
    g: GraphBuilder,
    node: Node,
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Integers | None:
    """For the same stride down and across, sizes that are known, and a result that is on a grid."""
    taken, factors, wanted = activation(g, input), symmetric_weight(g, weight, 1), g.wanted.get(node)
    sizes = [*shape_of(input)[-2:], *shape_of(node)[-2:]]
    fits = rank_of(weight) == rank_of(node) == 4 and len(set(stride)) == len(set(dilation)) == 1
    if taken is None or factors is None or wanted is None or not fits or dilation[0] != 1:
        return None
    if not are_known(*sizes):
        return None
    h, w, height, width = map(int, sizes)
    pads, kernel, step = per_dim(padding, 2), factors.content.shape[2:], stride[0]
    down = _Places.of(h, kernel[0], step, pads[0], height)
    across = _Places.of(w, kernel[1], step, pads[1], width)
    if min(down.before, down.after, across.before, across.after) < 0:
        return None  # the padding takes away whole rows or columns of the input
    (x, grid), added = taken, float_bias(g, bias)
    scale = _for_places(np.tile(factors.scale, groups), step, groups)
    steps = None if added is None else in_steps(_for_places(added, step, groups), grid.scale * scale)
    if bias is not None and steps is None:
        return None
    content = g.weight(weight.name, _by_place(factors.content, step, groups))
    zero_points = g.weight(f"{weight.name}.zero_points", np.zeros(scale.shape, np.int8))
    result = g.op(
        "QLinearConv",
        *(x.value, *x.inputs(g), content, g.constant(scale), zero_points, *wanted.inputs(g)),
        None if steps is None else g.constant(steps),
        pads=[down.before, across.before, down.after, across.after],
        group=groups,
    )
    result = _to_places(g, result, down.made // step, across.made // step, step, groups, int(shape_of(node)[1]))
    first, last = [down.cut, across.cut], [down.cut + height, across.cut + width]
    if [*first, *last] != [0, 0, down.made, across.made]:
        result = g.op("Slice", result, g.ints(first), g.ints(last), g.ints([2, 3]))
    return Integers.on(result, wanted)


@dataclass(frozen=True, slots=True)
class _Places:
    """Along a dim: how the input is padded, what is made of it, and how much of its beginning is cut off."""

    before: int
    after: int
    made: int
    cut: int

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, padding: int, wanted: int) -> _Places:
        reach = -(-kernel // stride) - 1  # of a place: how many inputs before its own it reads
        first, last = padding // stride, (padding + wanted - 1) // stride
        return cls(reach - first, last - (size - 1), stride * (last - first + 1), padding - stride * first)


def _to_places(g: GraphBuilder, x: ir.Value, h: int, w: int, stride: int, groups: int, outputs: int) -> ir.Value:
    """[n, groups * s * s * o, h, w] -> [n, groups * o, h * s, w * s].

    With channels last, as convolutions of integers have them: then a place's channels lie in a row, and are moved
    together. DepthToSpace moves byte by byte (onnxruntime 1.31, one thread, 16 channels of 128 x 128: 1 ms, this 0.2).
    """
    last = g.op("Transpose", x, perm=[0, 2, 3, 1])
    parts = g.op("Reshape", last, g.ints([-1, h, w, groups, stride, stride, outputs // groups]))
    placed = g.op("Transpose", parts, perm=[0, 1, 4, 2, 5, 3, 6])
    joined = g.op("Reshape", placed, g.ints([-1, h * stride, w * stride, outputs]))
    return g.op("Transpose", joined, perm=[0, 3, 1, 2])


_T = TypeVar("_T", bound=np.generic)


def _for_places(of_channels: NDArray[_T], stride: int, groups: int) -> NDArray[_T]:
    """[groups * o] -> [groups * s * s * o]: each place has those of its group."""
    return np.tile(of_channels.reshape(groups, 1, -1), (1, stride * stride, 1)).reshape(-1)


def _by_place(weight: NDArray[np.int8], stride: int, groups: int) -> NDArray[np.int8]:
    """[in, out / groups, h, w] -> [stride * stride * out, in / groups, ⌈h / stride⌉, ⌈w / stride⌉], turned around; by
    groups, within each by places."""
    inputs, outputs, *kernel = weight.shape
    h, w = (-(-size // stride) for size in kernel)
    whole = np.zeros((inputs, outputs, h * stride, w * stride), np.int8)
    whole[:, :, : kernel[0], : kernel[1]] = weight
    parts = whole.reshape(groups, inputs // groups, outputs, h, stride, w, stride)[:, :, :, ::-1, :, ::-1]
    ordered = parts.transpose(0, 4, 6, 2, 1, 3, 5)  # groups, two places, outputs, inputs, h, w
    return np.ascontiguousarray(ordered.reshape(groups * outputs * stride**2, inputs // groups, h, w))
