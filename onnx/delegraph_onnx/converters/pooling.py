"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import overhang, per_dim, quantize_call
from delegraph_onnx.converters.not_a_number import extreme, largest_in_windows
from delegraph_onnx.converters.table import (
    convert_with,
    only_first_result_used,
    schema_arguments,
    used_results,
)
from delegraph_onnx.dtypes import REALS
from delegraph_onnx.graph_builder import GraphBuilder, Size
from delegraph_onnx.node_facts import are_known, dtype_of, rank_of, shape_of

# ---- windows ------------------------------------------------------------------------------------------------------


def _dims(node: Node) -> int:
    """The number of pooled dims, from the operator's name."""
    return int(next(c for c in str(node.target) if c.isdigit()))


def _spatial(node: Node, dims: int) -> tuple[Any, ...]:
    return shape_of(node)[-dims:]


def _overhang(node: Node, self: Node, kernel: Sequence[int], *window: Sequence[int]) -> list[int]:
    """The padding that `ceil_mode` adds, of sizes that are known; of a call with one result or several."""
    dims, value = len(kernel), node.meta["val"]
    result = value[0] if isinstance(value, tuple | list) else value
    return overhang(self.meta["val"].shape[-dims:], result.shape[-dims:], kernel, *window)


def _static_if_ceil(node: Node, self: Node, ceil_mode: bool) -> str | None:
    if ceil_mode and not are_known(*_spatial(self, _dims(node))):
        return "ceil_mode over dynamic dims"
    return None


def _within_reach(
    node: Node, self: Node, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool,
) -> str | None:  # fmt: skip
    """ceil_mode adds padding to dilated windows, and the sum may be more than onnxruntime takes."""
    declined, dims = _static_if_ceil(node, self, ceil_mode), _dims(node)
    if declined or not ceil_mode:
        return declined
    sizes, pads = per_dim(kernel, dims), per_dim(padding, dims)
    more = _overhang(node, self, sizes, per_dim(stride, dims) or sizes, pads, per_dim(dilation, dims))
    if any(p + m >= k for p, m, k in zip(pads, more, sizes, strict=True)):
        return "windows that reach beyond the input by as many places as they have"
    return None


def _window(
    node: Node, self: Node, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool,
) -> tuple[dict[str, Any], bool]:  # fmt: skip
    """ONNX's attributes of a window, and whether `ceil_mode` adds padding: a maximum ignores that."""
    dims = _dims(node)
    kernel, pads, dilations = per_dim(kernel_size, dims), per_dim(padding, dims), per_dim(dilation, dims)
    strides = per_dim(stride, dims) if stride else kernel
    more = _overhang(node, self, kernel, strides, pads, dilations) if ceil_mode else [0] * dims
    ends = [p + m for p, m in zip(pads, more, strict=True)]
    return {"kernel_shape": kernel, "strides": strides, "pads": pads + ends, "dilations": dilations}, any(more)


def _max_pools(g: GraphBuilder, node: Node, self: Node, results: int, *how: Any) -> Sequence[ir.Value]:
    """The maxima, and where there are two results their places."""
    window, _ = _window(node, self, *how)
    return _batched(g, self, _dims(node), lambda value: _maxima(g, self, value, results, window))


def _maxima(
    g: GraphBuilder, self: Node, value: ir.Value, results: int, window: Mapping[str, Any]
) -> Sequence[ir.Value]:
    call, element_type = quantize_call(self), g.value(self).dtype
    of_integers = not dtype_of(self).is_floating_point or (call is not None and not call.quantizes)
    of_integers = of_integers or (element_type is not None and element_type.is_integer())  # which may stand for floats
    if of_integers or (g.target.exact_max_pool and results == 1):
        return g.ops("MaxPool", results, value, **window)
    image = _spatial(self, len(window["kernel_shape"]))
    return largest_in_windows(g, value, dtype_of(self), window, image if results == 2 else None)


@convert_with("max_pool1d max_pool2d max_pool3d", dtypes=REALS, check=_within_reach, keep=True)
def max_pool(g: GraphBuilder, node: Node, self: Node, *how: Any) -> ir.Value:
    return _max_pools(g, node, self, 1, *how)[0]


def _values_of_floats(node: Node, self: Node, *_: object) -> str | None:
    """The operators' rows admit int64 for the places, and not for the values."""
    return None if dtype_of(self) in REALS else "a maximum of integers"


def _known_image(node: Node, self: Node) -> str | None:
    if 1 not in used_results(node):
        return None
    image = _spatial(self, _dims(node))
    if not are_known(*image):
        return "places in an image whose size is dynamic"
    return "more places in an image than float32 counts" if math.prod(image) >= 2**24 else None


@convert_with(
    "max_pool2d_with_indices max_pool3d_with_indices",
    dtypes=REALS | {torch.int64},
    check=lambda node, self, *window: (
        _values_of_floats(node, self) or _within_reach(node, self, *window) or _known_image(node, self)
    ),
)
def max_pool_with_indices(g: GraphBuilder, node: Node, self: Node, *window: Any) -> Sequence[ir.Value | None]:
    """ONNX counts places through batch and channels, torch within each image."""
    if 1 not in used_results(node):
        return [_max_pools(g, node, self, 1, *window)[0], None]
    image = math.prod(int(size) for size in _spatial(self, _dims(node)))
    pooled, places = _max_pools(g, node, self, 2, *window)
    return [pooled, g.op("Mod", places, g.tensor(image, torch.int64))]


def _static_average(
    node: Node, self: Node, kernel: object, stride: object, padding: object, ceil_mode: bool, *_: object
) -> str | None:
    return _static_if_ceil(node, self, ceil_mode)


@convert_with("avg_pool1d avg_pool2d avg_pool3d", check=_static_average, keep=True)
def avg_pool(
    g: GraphBuilder,
    node: Node,
    self: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> ir.Value:
    dims = _dims(node)
    window, is_longer = _window(node, self, kernel_size, stride, padding, [1], ceil_mode)
    del window["dilations"]
    own_count = is_longer or divisor_override is not None
    window["count_include_pad"] = int(count_include_pad or own_count)
    average = _batched(g, self, dims, lambda value: g.ops("AveragePool", 1, value, **window))[0]
    if not own_count:
        return average
    return g.op("Mul", average, g.constant(_by_torchs_count(node, self, window["kernel_shape"])))


def _by_torchs_count(node: Node, self: Node, kernel: Sequence[int]) -> NDArray[Any]:
    """The correction of an average over the whole window: torch may have a divisor, or not count the padding."""
    dims, dtype = len(kernel), dtype_of(node)
    _, _, stride, padding, _, count_include_pad, *divisor = schema_arguments(node)
    whole = math.prod(kernel)
    if divisor and divisor[0] is not None:
        return torch.tensor(whole / divisor[0], dtype=dtype).numpy()
    counts = torch.ones([1] * dims)
    steps = zip(_spatial(self, dims), _spatial(node, dims), per_dim(padding, dims), kernel, strict=True)
    for dim, (size, windows, pad, width) in enumerate(steps):
        step = per_dim(stride, dims)[dim] if stride else width
        first = torch.arange(int(windows)) * step - pad
        low, high = (-pad, int(size) + pad) if count_include_pad else (0, int(size))
        inside = (first + width).clamp(max=high) - first.clamp(min=low)
        counts = counts * inside.reshape([-1 if i == dim else 1 for i in range(dims)])
    return (whole / counts).to(dtype).numpy()


def _batched(
    g: GraphBuilder, self: Node, dims: int, pooled: Callable[[ir.Value], Sequence[ir.Value]]
) -> Sequence[ir.Value]:
    """ONNX pools need a batch dim, which torch's input may lack."""
    if rank_of(self) == dims + 2:
        return pooled(g.value(self))
    return [g.op("Squeeze", result, g.ints([0])) for result in pooled(g.op("Unsqueeze", g.value(self), g.ints([0])))]


# ---- adaptive -----------------------------------------------------------------------------------------------------


def _known_windows(node: Node, self: Node, output_size: Sequence[Size]) -> str | None:
    if all(size == 1 for size in output_size):
        return None
    return None if are_known(*output_size) else "adaptive pooling to a dynamic size"


def _adaptive(g: GraphBuilder, self: Node, output_size: Sequence[int], kind: str) -> ir.Value:
    dims = len(output_size)
    if all(size == 1 for size in output_size):
        if kind == "Max":
            axes = range(rank_of(self) - dims, rank_of(self))
            return extreme(g, kind, g.value(self), dtype_of(self), axes, keepdim=True)
        return _batched(g, self, dims, lambda value: g.ops(f"Global{kind}Pool", 1, value))[0]
    before = _spatial(self, dims)
    if not all(isinstance(size, int) and size % after == 0 for size, after in zip(before, output_size, strict=True)):
        return _by_windows(g, self, before, output_size, kind)
    window = [int(size) // after for size, after in zip(before, output_size, strict=True)]
    attributes: dict[str, Any] = {"kernel_shape": window, "strides": window}
    if kind == "Average":
        return _batched(g, self, dims, lambda value: g.ops("AveragePool", 1, value, **attributes))[0]
    return _batched(g, self, dims, lambda value: _maxima(g, self, value, 1, attributes))[0]


def _by_windows(g: GraphBuilder, self: Node, before: Sequence[object], after: Sequence[int], kind: str) -> ir.Value:
    """Dim by dim, each window by a slice: windows differ in size and overlap."""
    value, rank = g.value(self), rank_of(self)
    for axis, size, windows in zip(range(rank - len(after), rank), before, after, strict=True):
        known = size if isinstance(size, int) else g.reshape(g.size(value, axis), [1])
        parts = []
        for i in range(windows):
            first, last = _window_bound(g, i, known, windows, 0), _window_bound(g, i + 1, known, windows, windows - 1)
            part = g.op("Slice", value, first, last, g.ints([axis]))
            if kind == "Max":
                parts.append(extreme(g, kind, part, dtype_of(self), [axis], keepdim=True))
            else:
                parts.append(g.op("ReduceMean", part, g.ints([axis]), keepdims=1))
        value = g.op("Concat", *parts, axis=axis)
    return value


def _window_bound(g: GraphBuilder, i: int, size: int | ir.Value, windows: int, more: int) -> ir.Value:
    """(i * size + more) // windows, for a size that is known or an int64 value."""
    if isinstance(size, int):
        return g.ints([(i * size + more) // windows])
    return g.op("Div", g.op("Add", g.op("Mul", size, g.ints([i])), g.ints([more])), g.ints([windows]))


@convert_with(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d",
    check=_known_windows,
    keep=True,
)
def adaptive_avg_pool(g: GraphBuilder, node: Node, self: Node, output_size: Sequence[int]) -> ir.Value:
    return _adaptive(g, self, output_size, "Average")


@convert_with(
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    dtypes=REALS | {torch.int64},
    check=lambda node, self, size: (
        only_first_result_used(node) or _values_of_floats(node, self) or _known_windows(node, self, size)
    ),
    keep=True,
)
def adaptive_max_pool(g: GraphBuilder, node: Node, self: Node, output_size: Sequence[int]) -> Sequence[ir.Value | None]:
    return [_adaptive(g, self, output_size, "Max"), None]
