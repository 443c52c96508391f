"""Windows and samples of an image: unfold, col2im, grid_sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.table import convert_with, unless
from delegraph_onnx.dtypes import ALL, FLOATS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import are_known, rank_of, shape_of

MODES: Final = ("linear", "nearest", "cubic")
PADDINGS: Final = ("zeros", "border", "reflection")
"""In the order of torch's numbers (`GridSamplerInterpolation` and `GridSamplerPadding` of ATen)."""


@convert_with("unfold unfold_copy", dtypes=ALL)
def unfold(g: GraphBuilder, node: Node, self: Node, dimension: int, size: int, step: int) -> ir.Value:
    """Gather's result is [..., windows, size, ...]; torch's has the elements of a window last."""
    if not rank_of(self):
        return g.op("Unsqueeze", g.value(self), g.ints([0])) if size else g.filled(0, [0], node.meta["val"].dtype)
    axis = dimension % rank_of(self)
    whole, offsets = shape_of(self)[axis], np.arange(size)
    if isinstance(whole, int):
        places = g.constant(np.arange(0, whole - size + 1, step)[:, None] + offsets)
    else:
        behind = g.op("Sub", g.size(g.value(self), axis), g.tensor(size - 1, torch.int64))
        starts = g.op("Range", g.tensor(0, torch.int64), behind, g.tensor(step, torch.int64))
        places = g.op("Add", g.op("Unsqueeze", starts, g.ints([1])), g.constant(offsets))
    windows = g.op("Gather", g.value(self), places, axis=axis)
    order = [dim for dim in range(rank_of(node)) if dim != axis + 1]
    return g.transpose(windows, [*order, axis + 1])


@convert_with("col2im", dtypes=FLOATS, check=unless(
    lambda node, self, output_size, *_: are_known(*output_size), "the size of the result is dynamic"))  # fmt: skip
def col2im(
    g: GraphBuilder, node: Node, self: Node, output_size: Sequence[int], kernel_size: Sequence[int], *how: Any
) -> ir.Value:
    dilation, padding, stride = how
    batched = rank_of(self) == 3
    image = g.op(
        "Col2Im",
        g.value(self) if batched else g.op("Unsqueeze", g.value(self), g.ints([0])),
        g.ints(output_size),
        g.ints(kernel_size),
        dilations=list(dilation),
        pads=[*padding, *padding],
        strides=list(stride),
    )
    return image if batched else g.op("Squeeze", image, g.ints([0]))


@convert_with("grid_sampler_2d grid_sampler_3d", check=lambda node, input, grid, mode, padding, align: (
    "cubic samples beyond the image" if MODES[mode] == "cubic" and PADDINGS[padding] != "zeros" else None))  # fmt: skip
def grid_sampler(
    g: GraphBuilder, node: Node, input: Node, grid: Node, mode: int, padding: int, align_corners: bool
) -> ir.Value:
    return g.op(
        "GridSample",
        g.value(input),
        g.value(grid),
        mode=MODES[mode],
        padding_mode=PADDINGS[padding],
        align_corners=int(align_corners),
    )
