"""Pooling -> OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import used_results
from delegraph_openvino.aot.converters.convolution import _each
from delegraph_openvino.aot.graph_builder import GraphBuilder, shape_of
from delegraph_openvino.aot.rounded_values import roundings_behind, with_reals
from delegraph_openvino.aot.table import converts

_RANKS: Final = {"1d": 1, "2d": 2, "3d": 3}


def _dims(node: Node) -> int:
    return next(dims for text, dims in _RANKS.items() if text in str(node.target))


def _batched(node: Node, x: Node, *_: Any) -> str | None:
    return None if len(shape_of(x)) == _dims(node) + 2 else "its input has no batch"


def _max_only(node: Node, x: Node, *_: Any) -> str | None:
    places = isinstance(node.meta["val"], tuple) and 1 in used_results(node)
    return "its result 1, the places of maxima, is used" if places else _batched(node, x)


@converts("max_pool1d.default", "max_pool2d.default", "max_pool3d.default", check=_batched, keep=True)
def max_pool(
    g: GraphBuilder, node: Node, x: Node, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Output:
    dims = _dims(node)
    pads = _each(padding, dims)
    return g.op(
        "max_pool", x, strides=_each(stride or kernel, dims), dilations=_each(dilation, dims), pads_begin=pads,
        pads_end=pads, kernel_shape=_each(kernel, dims), rounding_type="ceil_torch" if ceil else "floor",
    )  # fmt: skip


@converts("max_pool2d_with_indices.default", "max_pool3d_with_indices.default", check=_max_only)
def max_pool_with_places(g: GraphBuilder, node: Node, *arguments: Any) -> tuple[Output, None]:
    return max_pool(g, node, *arguments), None


def _plain_average(
    node: Node, x: Node, kernel: Any, stride: Any, padding: Any, ceil: bool, count_padding: bool, *divisor: Any
) -> str | None:
    if any(number is not None for number in divisor):
        return "it has a divisor of its own"
    if ceil and count_padding and not _fits(node, x, kernel, stride, padding):
        return "it counts padding, and its last windows go beyond that"  # OpenVINO divides by what lies there, too
    return _batched(node, x)


def _fits(node: Node, x: Node, kernel: Any, stride: Any, padding: Any) -> bool:
    """Whether no window goes beyond the padding, or there is none."""
    dims = _dims(node)
    settings = (_each(setting, dims) for setting in (kernel, stride or kernel, padding))
    sizes = shape_of(x)[-dims:], shape_of(node)[-dims:]
    return not any(_each(padding, dims)) or all(
        isinstance(size, int) and (count - 1) * step + width <= size + 2 * pad
        for size, count, width, step, pad in zip(*sizes, *settings, strict=True)
    )


@converts("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default", check=_plain_average, keep=True)
def avg_pool(
    g: GraphBuilder,
    node: Node,
    x: Node,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    count_padding: bool,
    *_: Any,
) -> Output:
    """Zeros that are averaged are those of reals: of integers with a zero point they would be others."""
    dims = _dims(node)
    pads = _each(padding, dims)
    value = with_reals(g, x, node) if count_padding and any(pads) and _is_shifted(x) else g.value(x)
    return g.op(
        "avg_pool", value, strides=_each(stride or kernel, dims), pads_begin=pads, pads_end=pads,
        kernel_shape=_each(kernel, dims), exclude_pad=not count_padding,
        rounding_type="ceil_torch" if ceil else "floor",
    )  # fmt: skip


def _is_shifted(x: Node) -> bool:
    """Whether integers may stand for `x` that do not begin with the one for zero; OpenVINO lets them begin with 0."""
    settings: list[Sequence[Any]] = [call.args for call in roundings_behind(x)]
    return any(zero != low for _, _, zero, low, *_ in settings)


def _to_one(node: Node, x: Node, size: Any) -> bool:
    return all(isinstance(n, int) and n == 1 for n in _each(size, _dims(node)))


def _adaptive(node: Node, x: Node, size: Any) -> str | None:
    fixed = all(isinstance(n, int) for n in _each(size, _dims(node)))
    return _batched(node, x) if fixed else "its sizes are not fixed"


@converts(
    "adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default",
    "_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", check=_adaptive, keep=True,
)  # fmt: skip
def adaptive_avg_pool(g: GraphBuilder, node: Node, x: Node, size: Any) -> Output:
    dims = _dims(node)
    if _to_one(node, x, size):
        return g.op("reduce_mean", x, g.vector(list(range(2, dims + 2))), keep_dims=True)
    return g.op("adaptive_avg_pool", x, g.vector(_each(size, dims)))
