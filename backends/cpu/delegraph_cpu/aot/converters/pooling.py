"""Pooling and resampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.converters.not_a_number import extreme
from delegraph_cpu.aot.converters.table import aten, convert_with, only_first_result_used
from delegraph_cpu.aot.dtypes import REALS
from delegraph_cpu.aot.graph_builder import GraphBuilder, Size, dtype_of, rank_of, shape_of

MAX_POOLS: Final = frozenset(
    {
        *(aten(f"max_pool{n}d") for n in (1, 2, 3)),
        *(aten(f"max_pool{n}d_with_indices") for n in (2, 3)),
        *(aten(f"adaptive_max_pool{n}d") for n in (1, 2, 3)),
    }
)
"""Of these onnxruntime's differ from torch's: a NaN may be ignored, and the maximum of nothing but -inf is the lowest
number. To find a NaN in a window takes as long as to pool it."""

# ---- windows ------------------------------------------------------------------------------------------------------


def _dims(node: Node) -> int:
    """The number of pooled dims, from the operator's name."""
    return int(next(c for c in str(node.target) if c.isdigit()))


def _per_dim(values: Sequence[int] | int, dims: int) -> list[int]:
    values = [values] if isinstance(values, int) else list(values)
    return values * dims if len(values) == 1 else values


def _spatial(node: Node, dims: int) -> tuple[object, ...]:
    return shape_of(node)[-dims:]


def _overhang(
    node: Node,
    self: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """How far the last window reaches beyond the padded input, per dim: what `ceil_mode` adds. Static shapes only."""
    dims = len(kernel)
    result = node.meta["val"][0] if isinstance(node.meta["val"], tuple | list) else node.meta["val"]
    sizes = zip(_spatial(self, dims), result.shape[-dims:], kernel, stride, padding, dilation, strict=True)
    return [max(0, (int(after) - 1) * s + d * (k - 1) + 1 - int(before) - 2 * p) for before, after, k, s, p, d in sizes]


def _static_if_ceil(node: Node, self: Node, ceil_mode: bool) -> str | None:
    if ceil_mode and not all(isinstance(size, int) for size in _spatial(self, _dims(node))):
        return "ceil_mode over dynamic dims"
    return None


def _max_pool(
    g: GraphBuilder,
    node: Node,
    self: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> ir.Value:
    dims = _dims(node)
    kernel, pads, dilations = _per_dim(kernel_size, dims), _per_dim(padding, dims), _per_dim(dilation, dims)
    strides = _per_dim(stride, dims) if stride else kernel
    # What is beyond the input never wins, so that ceil_mode is nothing but more padding at the end.
    more = _overhang(node, self, kernel, strides, pads, dilations) if ceil_mode else [0] * dims
    ends = [p + m for p, m in zip(pads, more, strict=True)]
    return _batched(
        g, self, dims, "MaxPool", kernel_shape=kernel, strides=strides, pads=pads + ends, dilations=dilations
    )


@convert_with(
    "max_pool1d max_pool2d max_pool3d",
    dtypes=REALS,
    check=lambda node, self, k, s, p, d, ceil_mode: _static_if_ceil(node, self, ceil_mode),
    keep=True,
)
def max_pool(
    g: GraphBuilder,
    node: Node,
    self: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> ir.Value:
    return _max_pool(g, node, self, kernel_size, stride, padding, dilation, ceil_mode)


def _values_of_floats(node: Node, self: Node) -> str | None:
    """The rows of these operators admit int64 for the indices, which must not be used."""
    return only_first_result_used(node) or (None if dtype_of(self) in REALS else "a maximum of integers")


@convert_with(
    "max_pool2d_with_indices max_pool3d_with_indices",
    dtypes=REALS | {torch.int64},
    check=lambda node, self, k, s, p, d, ceil_mode: (
        _values_of_floats(node, self) or _static_if_ceil(node, self, ceil_mode)
    ),
)
def max_pool_with_indices(
    g: GraphBuilder,
    node: Node,
    self: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Sequence[ir.Value | None]:
    return [_max_pool(g, node, self, kernel_size, stride, padding, dilation, ceil_mode), None]


def _plain_average(
    node: Node,
    self: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> str | None:
    if divisor_override is not None:
        return "divisor_override"
    reason = _static_if_ceil(node, self, ceil_mode)
    if reason is None and ceil_mode:
        dims = _dims(node)
        kernel, pads = _per_dim(kernel_size, dims), _per_dim(padding, dims)
        strides = _per_dim(stride, dims) if stride else kernel
        if any(_overhang(node, self, kernel, strides, pads, [1] * dims)):
            return "ceil_mode with a window that is partly outside"
    return reason


@convert_with("avg_pool1d avg_pool2d avg_pool3d", check=_plain_average, keep=True)
def avg_pool(
    g: GraphBuilder,
    node: Node,
    self: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    *_: object,
) -> ir.Value:
    dims = _dims(node)
    kernel, pads = _per_dim(kernel_size, dims), _per_dim(padding, dims)
    strides = _per_dim(stride, dims) if stride else kernel
    return _batched(
        g,
        self,
        dims,
        "AveragePool",
        kernel_shape=kernel,
        strides=strides,
        pads=pads * 2,
        count_include_pad=int(count_include_pad),
    )


def _batched(g: GraphBuilder, self: Node, dims: int, op_type: str, **attributes: Any) -> ir.Value:
    """ONNX pools want a batch dim, which torch's may lack."""
    if rank_of(self) == dims + 2:
        return g.op(op_type, g.value(self), **attributes)
    return g.op("Squeeze", g.op(op_type, g.op("Unsqueeze", g.value(self), g.ints([0])), **attributes), g.ints([0]))


# ---- adaptive -----------------------------------------------------------------------------------------------------


def _even_windows(node: Node, self: Node, output_size: Sequence[Size]) -> str | None:
    before = _spatial(self, len(output_size))
    for size, wanted in zip(before, output_size, strict=True):
        if wanted != 1 and not (isinstance(size, int) and isinstance(wanted, int) and size % wanted == 0):
            return f"adaptive pooling of {size} to {wanted}: windows of different sizes"
    return None


def _adaptive(g: GraphBuilder, self: Node, output_size: Sequence[int], kind: str) -> ir.Value:
    dims = len(output_size)
    if all(size == 1 for size in output_size):
        if kind == "Max":
            axes = range(rank_of(self) - dims, rank_of(self))
            return extreme(g, kind, g.value(self), dtype_of(self), axes, keepdim=True)
        return _batched(g, self, dims, f"Global{kind}Pool")
    window = [int(b) // a for b, a in zip(_spatial(self, dims), output_size, strict=True)]  # type: ignore[call-overload]
    return _batched(g, self, dims, f"{kind}Pool", kernel_shape=window, strides=window)


def _even_or_one(node: Node, self: Node, output_size: Sequence[Size]) -> str | None:
    if any(size == 1 for size in output_size) and not all(size == 1 for size in output_size):
        known = all(isinstance(size, int) for size in _spatial(self, len(output_size)))
        return _even_windows(node, self, output_size) if known else "adaptive pooling of a dynamic dim"
    return _even_windows(node, self, output_size)


@convert_with(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d",
    check=_even_or_one,
    keep=True,
)
def adaptive_avg_pool(g: GraphBuilder, node: Node, self: Node, output_size: Sequence[int]) -> ir.Value:
    return _adaptive(g, self, output_size, "Average")


@convert_with(
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    dtypes=REALS | {torch.int64},
    check=lambda node, self, size: _values_of_floats(node, self) or _even_or_one(node, self, size),
    keep=True,
)
def adaptive_max_pool(g: GraphBuilder, node: Node, self: Node, output_size: Sequence[int]) -> Sequence[ir.Value | None]:
    return [_adaptive(g, self, output_size, "Max"), None]


# ---- resampling ---------------------------------------------------------------------------------------------------

# torch's index rules in ONNX's terms (coordinate_transformation_mode, nearest_mode).
NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
NEAREST_EXACT = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def _known_size(node: Node, *_: object) -> str | None:
    known = all(isinstance(size, int) for size in shape_of(node)[2:])
    return None if known else "the size of the result is dynamic"


def _resize(
    g: GraphBuilder, node: Node, input: Node, scales: Sequence[float | None], mode: str, **attributes: Any
) -> ir.Value:
    """To the result's size; by the given scales where there are any, since they set where torch samples."""
    if scales and all(scale is not None for scale in scales):
        factors = g.constant(np.array([1.0, 1.0, *scales], np.float32))
        return g.op("Resize", g.value(input), None, factors, mode=mode, **attributes)
    sizes = g.ints([int(size) for size in shape_of(node)[2:]])
    axes = list(range(2, rank_of(node)))
    return g.op("Resize", g.value(input), None, None, sizes, mode=mode, axes=axes, **attributes)


for _prefix, _attributes in (("upsample_nearest", NEAREST), ("_upsample_nearest_exact", NEAREST_EXACT)):

    def _nearest_vec(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: object,
        scales: Sequence[float] | None,
        attributes: dict[str, str] = _attributes,
    ) -> ir.Value:
        return _resize(g, node, input, scales or [], "nearest", **attributes)

    def _nearest(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: object,
        *scales: float | None,
        attributes: dict[str, str] = _attributes,
    ) -> ir.Value:
        return _resize(g, node, input, scales, "nearest", **attributes)

    convert_with(" ".join(f"{_prefix}{n}d.vec" for n in (1, 2, 3)), check=_known_size, keep=True)(_nearest_vec)
    convert_with(" ".join(f"{_prefix}{n}d" for n in (1, 2, 3)), check=_known_size, keep=True)(_nearest)

for _names, _mode in (("upsample_linear1d upsample_bilinear2d", "linear"), ("upsample_bicubic2d", "cubic")):

    def _smooth_vec(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: object,
        align_corners: bool,
        scales: Sequence[float] | None,
        mode: str = _mode,
    ) -> ir.Value:
        return _smooth(g, node, input, output_size, align_corners, *(scales or []), mode=mode)

    def _smooth(
        g: GraphBuilder,
        node: Node,
        input: Node,
        output_size: object,
        align_corners: bool,
        *scales: float | None,
        mode: str = _mode,
    ) -> ir.Value:
        where = "align_corners" if align_corners else "half_pixel"
        return _resize(g, node, input, scales, mode, coordinate_transformation_mode=where, cubic_coeff_a=-0.75)

    convert_with(" ".join(f"{name}.vec" for name in _names.split()), check=_known_size, keep=True)(_smooth_vec)
    convert_with(_names, check=_known_size, keep=True)(_smooth)
