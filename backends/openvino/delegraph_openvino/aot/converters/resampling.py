"""Resizing of images -> OpenVINO's Interpolate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from openvino import Output, opset15
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, shape_of
from delegraph_openvino.aot.table import converts


def _fixed(node: Node, x: Node, size: Any, *_: Any) -> str | None:
    fixed = all(isinstance(n, int) for n in (*shape_of(x)[2:], *node.meta["val"].shape[2:]))
    return None if fixed else "its sizes are not fixed"


def _resized(g: GraphBuilder, node: Node, x: Node, mode: str, corners: str, factors: Any) -> Output:
    """By the scale that was given, or else by that of the sizes, as torch does."""
    sizes: Sequence[int] = list(node.meta["val"].shape[2:])
    axes = list(range(2, len(sizes) + 2))
    scales = list(factors)
    use_scales = bool(scales) and all(scale is not None for scale in scales) and corners != "align_corners"
    target = g.tensor(np.array(scales, np.float32)) if use_scales else g.vector(sizes)
    result: Output = opset15.interpolate(
        g.value(x), target, mode, "scales" if use_scales else "sizes", coordinate_transformation_mode=corners,
        nearest_mode="floor" if corners == "asymmetric" else "round_prefer_ceil", axes=g.vector(axes),
    ).output(0)  # fmt: skip
    return result


@converts(*(f"upsample_nearest{n}d.{form}" for n in (1, 2, 3) for form in ("vec", "default")), check=_fixed, keep=True)
def nearest(g: GraphBuilder, node: Node, x: Node, size: Any, *factors: Any) -> Output:
    return _resized(g, node, x, "nearest", "asymmetric", _factors(factors))


@converts(
    *(f"_upsample_nearest_exact{n}d.{form}" for n in (1, 2, 3) for form in ("vec", "default")), check=_fixed, keep=True
)
def nearest_exact(g: GraphBuilder, node: Node, x: Node, size: Any, *factors: Any) -> Output:
    return _resized(g, node, x, "nearest", "half_pixel", _factors(factors))


@converts(
    "upsample_linear1d.vec", "upsample_linear1d.default", "upsample_bilinear2d.vec", "upsample_bilinear2d.default",
    check=_fixed, keep=True,
)  # fmt: skip
def linear(g: GraphBuilder, node: Node, x: Node, size: Any, corners: bool, *factors: Any) -> Output:
    return _resized(g, node, x, "linear_onnx", "align_corners" if corners else "half_pixel", _factors(factors))


def _factors(given: Sequence[Any]) -> list[Any]:
    """`vec` has a list of them, `default` one for each dim."""
    return list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)
