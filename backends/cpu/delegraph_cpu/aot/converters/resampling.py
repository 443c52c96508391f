"""Images made larger or smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import as_array
from delegraph_cpu.aot.converters.table import aten, convert_with
from delegraph_cpu.aot.graph_builder import GraphBuilder, Size
from delegraph_cpu.aot.node_facts import are_known, rank_of, shape_of


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
            same = {int(np.float32(before) * single), int(before * float(single))} == {after}  # rounded, and not
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
    # all dims, and no `axes`: onnxruntime loses the sizes as it moves a transpose past, for a convolution of integers
    before = enumerate(shape_of(input)[:2])
    sizes: list[Any] = [size if are_known(size) else g.size(g.value(input), dim) for dim, size in before]
    sizes += wanted
    return g.op("Resize", g.value(input), None, None, g.sizes(sizes), mode=mode, **attributes)


# ---- the nearest pixel --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """Which pixel is read: ONNX's terms for it, and the formula that they stand for, of a place in the result and the
    factor by which there are more of them."""

    terms: dict[str, str]
    pixel: Callable[[NDArray[np.floating], np.floating], NDArray[np.floating]]


RULES: Final = {
    "upsample_nearest": Rule(
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        lambda place, factor: np.floor(place / factor),
    ),
    "_upsample_nearest_exact": Rule(
        {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
        lambda place, factor: np.floor(((place + 0.5) / factor - 0.5) + 0.5),
    ),
}
"""Of torch's operators, which are these with "1d", "2d" and "3d" behind."""

for _name in RULES:

    def _nearest_vec(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: Sequence[Size] | None,
        scales: Sequence[float] | None,
        name: str = _name,
    ) -> ir.Value:
        return _nearest(g, node, input, output_size, *(scales or []), name=name)

    def _nearest(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: Sequence[Size] | None,
        *scales: float | None,
        name: str = _name,
    ) -> ir.Value:
        pixels = _pixels_of_its_own(name, node, input, scales)
        if pixels is None:
            return _resize(g, node, input, output_size, scales, "nearest", **RULES[name].terms)
        value = g.value(input)
        for dim, along in enumerate(pixels, start=2):
            as_it_is = np.array_equal(along, range(int(shape_of(input)[dim])))
            value = value if as_it_is else g.op("Gather", value, g.constant(along), axis=dim)
        return value

    convert_with(" ".join(f"{_name}{n}d.vec" for n in (1, 2, 3)), check=_same_size, keep=True)(_nearest_vec)
    convert_with(" ".join(f"{_name}{n}d" for n in (1, 2, 3)), check=_same_size, keep=True)(_nearest)


def _pixels_of_its_own(
    name: str, node: Node, input: Node, scales: Sequence[float | None]
) -> list[NDArray[np.int64]] | None:
    """What torch reads along each dim, where onnxruntime reads or may read other pixels; None for sizes not known.

    torch multiplies by the reciprocal of the factor, in single precision: near a border between two pixels the rounding
    decides, and onnxruntime's is another one, which depends on its version.
    """
    before, after = shape_of(input)[2:], shape_of(node)[2:]
    if not are_known(*before, *after):
        return None
    sizes = [(int(one), int(other)) for one, other in zip(before, after, strict=True)]
    given = scales or [None] * len(sizes)
    pixels = [_read_by_torch(name, len(sizes), *pair, scale) for pair, scale in zip(sizes, given, strict=True)]
    by_scale = [scale for scale in given if scale is not None]
    factors = by_scale if len(by_scale) == len(sizes) else [many / few for few, many in sizes]
    others = [_read_by_onnx(RULES[name], *pair, factor) for pair, factor in zip(sizes, factors, strict=True)]
    sure = all(np.array_equal(own, other) for own, ways in zip(pixels, others, strict=True) for other in ways)
    return None if sure else pixels


def _read_by_torch(name: str, dims: int, before: int, after: int, scale: float | None) -> NDArray[np.int64]:
    """Which pixel is at each place, by torch's own operator: in its last dim, as kernels of 1, 2 and 3 dims differ."""
    numbered = torch.arange(before, dtype=torch.float32).reshape([1] * (dims + 1) + [before])
    rest = dims - 1
    read = aten(f"{name}{dims}d")(numbered, [1] * rest + [after], *[None] * rest, scale)
    return as_array(read.flatten().to(torch.int64))


def _read_by_onnx(rule: Rule, before: int, after: int, factor: float) -> Iterator[NDArray[np.floating]]:
    """Which pixel is at each place, in single precision and in double, and where the image is copied."""
    for kind in (np.float32, np.float64):
        yield rule.pixel(np.arange(after, dtype=kind), kind(factor)).clip(0, before - 1)
    if before == after:
        yield np.arange(before, dtype=np.float32)


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
