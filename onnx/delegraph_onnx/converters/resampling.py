"""Images made larger or smaller, by the nearest pixel or by interpolation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import frexp
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import nearest_pixels, operator_name, resize_scales
from delegraph_onnx.converters.table import convert_with, name_of, schema_arguments
from delegraph_onnx.graph_builder import GraphBuilder, Size
from delegraph_onnx.node_facts import Dim, are_known, rank_of, shape_of


def _same_size(node: Node, input: Node, *_: object) -> str | None:
    """Where scales are given, onnxruntime computes the result's size from them in single precision."""
    scales = resize_scales(node)
    if None in scales and any(scale is not None for scale in scales):
        return "a scale along one dim, and none along another"
    for before, after, scale in zip(shape_of(input)[2:], shape_of(node)[2:], scales, strict=True):
        if scale is None:
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


def _but_of_copies(node: Node, input: Node, scales: Sequence[float | None]) -> tuple[float | None, ...]:
    """1 where the size stays the same: torch's linear operators copy there, whatever the scale."""
    sizes = zip(shape_of(input)[2:], shape_of(node)[2:], scales, strict=True)
    return tuple(
        1.0 if scale and are_known(before, after) and before == after else scale for before, after, scale in sizes
    )


def _cubic_scales(node: Node, input: Node, output_size: object, align_corners: bool, *_: object) -> str | None:
    """onnxruntime copies an image that stays as large; torch does so only in linear operators."""
    for before, after, scale in zip(shape_of(input)[2:], shape_of(node)[2:], resize_scales(node), strict=True):
        known = are_known(before, after)
        if scale not in (None, 1) and not align_corners and (before == after if known else 1 < scale < _COPIES_TWO):
            return f"a scale of {scale} that may leave an image as large"
    return _same_size(node, input)


_COPIES_TWO: Final = 1.5
"""From this scale on, two or more pixels become more."""


def _resize(
    g: GraphBuilder,
    node: Node,
    input: Node,
    output_size: Sequence[Size] | None,
    scales: Sequence[float | None],
    mode: str,
    **attributes: Any,
) -> ir.Value:
    """Resize to the result's size; by the scales where the call has them, since they set where torch samples."""
    if all(scale is not None for scale in scales):
        factors = g.constant(np.array([1.0, 1.0, *scales], np.float32))
        return g.op("Resize", g.value(input), None, factors, mode=mode, **attributes)
    known = [size for size in shape_of(node)[2:] if isinstance(size, int)]
    spatial = output_size if len(known) < rank_of(node) - 2 and output_size is not None else known
    # all dims, and no `axes`: onnxruntime loses the sizes as it moves a transpose past, for a convolution of integers
    before = enumerate(shape_of(input)[:2])
    sizes: list[Any] = [size if are_known(size) else g.size(g.value(input), dim) for dim, size in before]
    sizes += spatial
    return g.op("Resize", g.value(input), None, None, g.sizes(sizes), mode=mode, **attributes)


# ---- the nearest pixel --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """The pixel that is read: ONNX's attributes, the formula that they stand for (place in the result, factor), and
    torch's formula (place, reciprocal of the factor)."""

    terms: dict[str, str]
    pixel: Callable[[NDArray[np.floating], np.floating], NDArray[np.floating]]
    pixel_of_torch: Callable[[GraphBuilder, ir.Value, ir.Value, int], ir.Value]


def _product_from_the_middle(g: GraphBuilder, place: ir.Value, step: ir.Value, dims: int) -> ir.Value:
    """`step * (place + 0.5) - 0.5`, rounded once, as processors multiply and add, and then half up; of images the
    product alone, rounded down."""
    if dims == 2:
        return g.op("Mul", g.op("Add", g.cast(place, torch.float32), g.tensor(0.5, torch.float32)), step)
    half = g.tensor(0.5, torch.float64)
    middle = g.op("Mul", g.op("Add", g.cast(place, torch.float64), half), g.cast(step, torch.float64))
    return g.op("Add", g.cast(g.op("Sub", middle, half), torch.float32), g.tensor(0.5, torch.float32))


RULES: Final = {
    "upsample_nearest": Rule(
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        lambda place, factor: np.floor(place / factor),
        lambda g, place, step, dims: g.op("Mul", g.cast(place, torch.float32), step),
    ),
    "_upsample_nearest_exact": Rule(
        {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
        lambda place, factor: np.floor(((place + 0.5) / factor - 0.5) + 0.5),
        _product_from_the_middle,
    ),
}
"""torch's operators, whose names have "1d", "2d" or "3d" behind."""


@dataclass(frozen=True, slots=True)
class _Nearest:
    """A call: its rule, input, sizes (None: the scales say them) and scales (None where there is none)."""

    name: str
    node: Node
    input: Node
    output_size: Sequence[Size] | None
    scales: Sequence[float | None]

    @classmethod
    def of(cls, node: Node) -> _Nearest:
        name = name_of(node)[:-2]
        input, output_size, *_ = schema_arguments(node)
        return cls(name, node, input, output_size, resize_scales(node))

    @property
    def dims(self) -> int:
        return rank_of(self.node) - 2

    def sizes(self, dim: int) -> tuple[Dim, Dim]:
        """The sizes of a spatial dim before and after."""
        return shape_of(self.input)[2 + dim], shape_of(self.node)[2 + dim]


def _nearest(g: GraphBuilder, node: Node, input: Node, output_size: Sequence[Size] | None, *_: object) -> ir.Value:
    """ONNX's Resize where that reads torch's pixels: it is several times as fast for floats."""
    call = _Nearest.of(node)

    def resized() -> ir.Value:
        return _resize(g, node, input, output_size, call.scales, "nearest", **RULES[call.name].terms)

    if _is_known(node, input):
        return resized() if _same_size(node, input) is None and _reads_the_same(call) else nearest_gathered(g, node)
    if any(scale is not None for scale in call.scales):
        # powers of two need no rounding, so that onnxruntime and torch read the same pixels
        by_powers = all(scale is not None and frexp(scale)[0] == 0.5 for scale in call.scales)
        return resized() if by_powers else nearest_gathered(g, node)
    [result] = g.choose(_is_doubled(g, call), lambda: [resized()], lambda: [nearest_gathered(g, node)])
    return result


def _is_known(node: Node, input: Node) -> bool:
    return are_known(*shape_of(input)[2:], *shape_of(node)[2:])


def _size_from_scales(node: Node, input: Node, *_: object) -> str | None:
    return None if _is_known(node, input) else _same_size(node, input)


for _name in RULES:
    _all = [f"{_name}{n}d{overload}" for n in (1, 2, 3) for overload in ("", ".vec")]
    convert_with(" ".join(_all), check=_size_from_scales, keep=True)(_nearest)


def nearest_gathered(g: GraphBuilder, node: Node) -> ir.Value:
    """The pixels that torch reads, along one dim after the other. With channels last a place's lie in a row, and are
    copied together: 64 channels of 16 x 16, twice as large, take 38 us so, and 266 one by one (onnxruntime 1.31)."""
    call = _Nearest.of(node)
    dims = range(call.dims)
    value = g.transpose(g.value(call.input), [0, *(2 + dim for dim in dims), 1])
    for dim in reversed(dims):
        pixels = _pixels(g, call, dim)
        value = value if pixels is None else g.op("Gather", value, pixels, axis=1 + dim)
    return g.transpose(value, [0, 1 + call.dims, *(1 + dim for dim in dims)])


def _pixels(g: GraphBuilder, call: _Nearest, dim: int) -> ir.Value | None:
    """The pixels that torch reads along a dim; None if it reads each pixel once."""
    before, after = call.sizes(dim)
    if isinstance(before, int) and isinstance(after, int):
        known = nearest_pixels(call.name, call.dims, before, after, call.scales[dim])
        return None if known == list(range(before)) else g.ints(known)
    counts = _counts(g, call, dim)
    few, many = (g.cast(count, torch.float32) for count in counts)
    scale = call.scales[dim]
    step = g.op("Div", few, many) if scale is None else g.tensor(1 / scale, torch.float32)
    places = g.op("Range", g.tensor(0, torch.int64), counts[1], g.tensor(1, torch.int64))
    pixel = g.cast(g.op("Floor", RULES[call.name].pixel_of_torch(g, places, step, call.dims)), torch.int64)
    if scale is not None and (call.name, call.dims) == ("upsample_nearest", 2):
        pixel = _copied(g, counts, places, pixel)
    # rounding may go beyond the last pixel
    return g.op("Min", pixel, g.op("Sub", counts[0], g.tensor(1, torch.int64)))


def _copied(g: GraphBuilder, counts: tuple[ir.Value, ir.Value], places: ir.Value, pixel: ir.Value) -> ir.Value:
    """`pixel`, but copied pixels in an image as large, or twice as large: torch ignores the scale there."""
    before, after = counts
    halves = g.op("Div", places, g.tensor(2, torch.int64))
    pixel = g.op("Where", g.op("Equal", after, g.op("Add", before, before)), halves, pixel)
    return g.op("Where", g.op("Equal", after, before), places, pixel)


def _counts(g: GraphBuilder, call: _Nearest, dim: int) -> tuple[ir.Value, ir.Value]:
    """The sizes of a dim before and after, int64."""
    before = g.size(g.value(call.input), 2 + dim)
    if call.output_size is not None:
        return before, g.tensor(call.output_size[dim], torch.int64)
    scale = call.scales[dim]
    assert scale is not None
    exact = g.op("Mul", g.cast(before, torch.float64), g.tensor(scale, torch.float64))
    return before, g.cast(g.op("Floor", exact), torch.int64)


def _is_doubled(g: GraphBuilder, call: _Nearest) -> ir.Value:
    """Whether each dim has twice as many pixels, or as many: these factors need no rounding."""
    fits = []
    for dim in range(call.dims):
        before, after = _counts(g, call, dim)
        as_it_is, twice = g.op("Equal", after, before), g.op("Equal", after, g.op("Add", before, before))
        fits.append(g.op("Or", as_it_is, twice))
    return reduce(lambda a, b: g.op("And", a, b), fits)


def _reads_the_same(call: _Nearest) -> bool:
    """Whether onnxruntime certainly reads torch's pixels, for known sizes.

    torch multiplies by the reciprocal of the factor, in single precision: near a border between two pixels the rounding
    decides, and onnxruntime's differs, and depends on its version.
    """
    sizes = [(int(before), int(after)) for before, after in map(call.sizes, range(call.dims))]
    by_scale = [scale for scale in call.scales if scale is not None]
    factors = by_scale if len(by_scale) == len(sizes) else [many / few for few, many in sizes]
    for dim, (pair, factor) in enumerate(zip(sizes, factors, strict=True)):
        own = nearest_pixels(call.name, call.dims, *pair, call.scales[dim])
        if not all(np.array_equal(own, read) for read in _read_by_onnx(RULES[call.name], *pair, factor)):
            return False
    return True


def _read_by_onnx(rule: Rule, before: int, after: int, factor: float) -> Iterator[NDArray[np.floating]]:
    """The pixel at each place, in single precision, in double, and where the image is copied."""
    for kind in (np.float32, np.float64):
        yield rule.pixel(np.arange(after, dtype=kind), kind(factor)).clip(0, before - 1)
    if before == after:
        yield np.arange(before, dtype=np.float32)


_LINEAR: Final = "upsample_linear1d upsample_bilinear2d upsample_trilinear3d"


@convert_with(f"{_LINEAR} {_LINEAR.replace(' ', '.vec ')}.vec", check=_same_size, keep=True)
@convert_with("upsample_bicubic2d upsample_bicubic2d.vec", check=_cubic_scales, keep=True)
def smooth(
    g: GraphBuilder, node: Node, input: Node, output_size: Sequence[Size] | None, align_corners: bool, *_: object
) -> ir.Value:
    cubic, where = "cubic" in operator_name(node), "align_corners" if align_corners else "half_pixel"
    scales = resize_scales(node) if cubic else _but_of_copies(node, input, resize_scales(node))
    mode = "cubic" if cubic else "linear"
    return _resize(g, node, input, output_size, scales, mode, coordinate_transformation_mode=where, cubic_coeff_a=-0.75)
