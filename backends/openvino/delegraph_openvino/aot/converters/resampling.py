"""Resizing of images -> OpenVINO's Interpolate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from openvino import Output, opset15
from torch.fx import Node

from delegraph.aot.authoring import as_array, operator_name
from delegraph_openvino.aot.graph_builder import GraphBuilder, shape_of
from delegraph_openvino.aot.table import converts


def _fixed(node: Node, x: Node, size: Any, *_: Any) -> str | None:
    fixed = all(isinstance(n, int) for n in (*shape_of(x)[2:], *node.meta["val"].shape[2:]))
    return None if fixed else "its sizes are not fixed"


def _resized(g: GraphBuilder, node: Node, x: Node, mode: str, corners: str, factors: Sequence[float]) -> Output:
    """By the scale that was given, or else by that of the sizes, as torch does."""
    sizes: Sequence[int] = list(node.meta["val"].shape[2:])
    axes = list(range(2, len(sizes) + 2))
    use_scales = bool(factors) and corners != "align_corners"
    target = g.tensor(np.array(factors, np.float32)) if use_scales else g.vector(sizes)
    result: Output = opset15.interpolate(
        g.value(x), target, mode, "scales" if use_scales else "sizes", coordinate_transformation_mode=corners,
        nearest_mode="floor" if corners == "asymmetric" else "round_prefer_ceil", axes=g.vector(axes),
    ).output(0)  # fmt: skip
    return result


# ---- the nearest pixel --------------------------------------------------------------------------------------------


@converts(*(f"upsample_nearest{n}d.{form}" for n in (1, 2, 3) for form in ("vec", "default")), check=_fixed, keep=True)
def nearest(g: GraphBuilder, node: Node, x: Node, size: Any, *factors: Any) -> Output:
    return _nearest(g, node, x, _factors(factors), "asymmetric", _at_the_corner)


@converts(
    *(f"_upsample_nearest_exact{n}d.{form}" for n in (1, 2, 3) for form in ("vec", "default")), check=_fixed, keep=True
)
def nearest_exact(g: GraphBuilder, node: Node, x: Node, size: Any, *factors: Any) -> Output:
    return _nearest(g, node, x, _factors(factors), "half_pixel", _in_the_middle)


def _at_the_corner(places: NDArray[np.floating], factor: np.floating) -> NDArray[np.floating]:
    return np.asarray(np.floor(places / factor))


def _in_the_middle(places: NDArray[np.floating], factor: np.floating) -> NDArray[np.floating]:
    return np.asarray(np.floor((places + 0.5) / factor - 0.5 + 0.5))


def _nearest(
    g: GraphBuilder, node: Node, x: Node, factors: Sequence[float], corners: str,
    pixel: Callable[[NDArray[np.floating], np.floating], NDArray[np.floating]],
) -> Output:  # fmt: skip
    """Near a border between two pixels the rounding decides, which is another one than torch's: what OpenVINO would not
    surely read as torch does is picked, along one dim after the other."""
    sizes = list(zip(shape_of(x)[2:], node.meta["val"].shape[2:], strict=True))
    given: Sequence[float | None] = factors or [None] * len(sizes)
    read = [_read_by_torch(node, *pair, factor) for pair, factor in zip(sizes, given, strict=True)]
    used = factors or [after / before for before, after in sizes]
    kinds = (np.float32, np.float64)
    if all(
        np.array_equal(places, pixel(np.arange(after, dtype=kind), kind(factor)).clip(0, before - 1))
        for places, (before, after), factor in zip(read, sizes, used, strict=True)
        for kind in kinds
    ):
        return _resized(g, node, x, "nearest", corners, factors)
    result = g.value(x)
    for dim, places in enumerate(read):
        result = g.op("gather", result, g.tensor(places), g.axis(dim - len(read)))
    return result


def _read_by_torch(node: Node, before: int, after: int, factor: float | None) -> NDArray[np.int64]:
    """Which pixel is at each place of a dim, by torch's own operator."""
    name = operator_name(node).removeprefix("aten::").partition(".")[0]
    rest = node.meta["val"].dim() - 3
    numbered = torch.arange(before, dtype=torch.float32).reshape([1] * (rest + 2) + [before])
    read = getattr(torch.ops.aten, name).default(numbered, [1] * rest + [after], *[None] * rest, factor)
    return as_array(read.flatten().to(torch.int64))


# ---- between pixels -----------------------------------------------------------------------------------------------


@converts(
    *(f"upsample_{mode}.{form}" for mode in ("linear1d", "bilinear2d", "trilinear3d") for form in ("vec", "default")),
    check=_fixed, keep=True,
)  # fmt: skip
def linear(g: GraphBuilder, node: Node, x: Node, size: Any, corners: bool, *factors: Any) -> Output:
    return _resized(g, node, x, "linear_onnx", "align_corners" if corners else "half_pixel", _factors(factors))


@converts("upsample_bicubic2d.vec", "upsample_bicubic2d.default", check=_fixed, keep=True)
def cubic(g: GraphBuilder, node: Node, x: Node, size: Any, corners: bool, *factors: Any) -> Output:
    return _resized(g, node, x, "cubic", "align_corners" if corners else "half_pixel", _factors(factors))


def _factors(given: Sequence[Any]) -> list[float]:
    """`vec` has a list of them, `default` one for each dim; if one is missing, there are none."""
    factors = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    return [] if None in factors else list(factors)
