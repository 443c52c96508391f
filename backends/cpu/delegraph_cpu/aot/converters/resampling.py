"""Images made larger or smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from torch.fx import Node

from delegraph_cpu.aot.converters.table import convert_with
from delegraph_cpu.aot.graph_builder import GraphBuilder, Size, rank_of, shape_of

# torch's index rules in ONNX's terms (coordinate_transformation_mode, nearest_mode).
NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
NEAREST_EXACT = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def _same_size(node: Node, input: Node, output_size: object, *rest: Any) -> str | None:
    """Where scales are given, onnxruntime finds the result's size from them in single precision."""
    scales = rest[-1] if rest and isinstance(rest[-1], list | tuple) else rest
    for before, after, scale in zip(
        shape_of(input)[2:], shape_of(node)[2:], scales[-(rank_of(node) - 2) :] or (), strict=False
    ):
        if scale is None or isinstance(scale, bool):
            continue
        if isinstance(scale, Node):
            return "a scale is dynamic"
        single = np.float32(scale)
        if isinstance(before, int) and isinstance(after, int):
            same = int(np.floor(np.float32(before) * single)) == after
        else:
            same = float(single) == scale
        if not same:
            return f"a scale of {scale} gives another size in single precision"
    return None


def _resize(
    g: GraphBuilder,
    node: Node,
    input: Node,
    output_size: Sequence[Size] | None,
    scales: Sequence[float | None],
    mode: str,
    **attributes: Any,
) -> ir.Value:
    """To the result's size; by the given scales where there are any, since they set where torch samples."""
    if scales and all(scale is not None for scale in scales):
        factors = g.constant(np.array([1.0, 1.0, *scales], np.float32))
        return g.op("Resize", g.value(input), None, factors, mode=mode, **attributes)
    known = [size for size in shape_of(node)[2:] if isinstance(size, int)]
    wanted = output_size if len(known) < rank_of(node) - 2 and output_size is not None else known
    sizes = g.sizes([size if isinstance(size, int) else g.value(size) for size in wanted])
    axes = list(range(2, rank_of(node)))
    return g.op("Resize", g.value(input), None, None, sizes, mode=mode, axes=axes, **attributes)


for _prefix, _attributes in (("upsample_nearest", NEAREST), ("_upsample_nearest_exact", NEAREST_EXACT)):

    def _nearest_vec(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: Sequence[Size] | None,
        scales: Sequence[float] | None,
        attributes: dict[str, str] = _attributes,
    ) -> ir.Value:
        return _resize(g, node, input, output_size, scales or [], "nearest", **attributes)

    def _nearest(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: Sequence[Size] | None,
        *scales: float | None,
        attributes: dict[str, str] = _attributes,
    ) -> ir.Value:
        return _resize(g, node, input, output_size, scales, "nearest", **attributes)

    convert_with(" ".join(f"{_prefix}{n}d.vec" for n in (1, 2, 3)), check=_same_size, keep=True)(_nearest_vec)
    convert_with(" ".join(f"{_prefix}{n}d" for n in (1, 2, 3)), check=_same_size, keep=True)(_nearest)

for _names, _mode in (("upsample_linear1d upsample_bilinear2d", "linear"), ("upsample_bicubic2d", "cubic")):

    def _smooth_vec(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        scales: Sequence[float] | None,
        mode: str = _mode,
    ) -> ir.Value:
        return _smooth(g, node, input, output_size, align_corners, *(scales or []), mode=mode)

    def _smooth(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        *scales: float | None,
        mode: str = _mode,
    ) -> ir.Value:
        where = "align_corners" if align_corners else "half_pixel"
        return _resize(
            g, node, input, output_size, scales, mode, coordinate_transformation_mode=where, cubic_coeff_a=-0.75
        )

    convert_with(" ".join(f"{name}.vec" for name in _names.split()), check=_same_size, keep=True)(_smooth_vec)
    convert_with(_names, check=_same_size, keep=True)(_smooth)
