"""Layers with constant int8 weights -> convolutions: of images, of sequences, transposed, in groups; linear layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot import is_weight
from delegraph.aot.authoring import per_dim, quantize_call, same_padding
from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import QuantizedCall, dtype_of, is_dequantize, shape_of
from delegraph_npu.aot.folding import Folding
from delegraph_npu.aot.ir import Laid, Window
from delegraph_npu.aot.layout import IMAGES, rows
from delegraph_npu.aot.operators.table import Annotate, operator

__all__: list[str] = []

MOST_ROWS: Final = 64
"""The most rows, and columns, of a kernel; as Ethos-U55's."""

MOST_PRODUCTS: Final = 1 << 16
"""The most products in a sum: 65536 products of int8 are less than 2**31, the limit of an accumulator."""


# ---- what the machine takes -----------------------------------------------------------------------------------------


def _check_weight(weight: Node, channel_axis: int) -> str | None:
    """In a float graph any constant; in a quantized one int8 about zero, with scales by channel of the output."""
    if not isinstance(weight, Node) or not is_dequantize(weight):
        constant = isinstance(weight, Node) and (weight.op == "placeholder" or is_weight(weight))
        return None if constant else "its weight is computed: the NPU's are compressed ahead of time"
    call = quantize_call(weight)
    assert call is not None
    if call.source.op == "call_function":
        return "its weight is computed: the NPU's are compressed ahead of time"
    if dtype_of(call.source) != torch.int8:
        return f"its weight is {dtype_of(call.source)}: the NPU's are int8"
    if call.axis not in (None, channel_axis):
        return f"its weight has scales along dim {call.axis}: the NPU's are one for each channel of the output"
    return "its weight has a zero point that is not 0" if isinstance(call.zero_point, int) and call.zero_point else None


def _pair(values: Sequence[int], dims: int) -> tuple[int, int]:
    """The pair for h and w of the numbers of a convolution over one or two dims."""
    first, second = [0, *per_dim(values, dims)][-2:]
    return first, second


def _window(
    weight: Node,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
) -> Window:
    """The window of torch's arguments. A transposed convolution convolves the spread input with the reversed kernel.

    x0 x1  stride 2, kernel 3, padding 1     ->     pads 1: 0 x0 0 x1 0, stride 1
    """
    sizes = shape_of(weight)[2:]
    dims = len(sizes)
    kernel = (sizes[0], sizes[1]) if dims == 2 else (1, sizes[0])
    steps = _ones(_pair(stride, dims))
    spread = _ones(_pair(dilation, dims))
    if padding == "same":
        (top, bottom), (left, right) = same_padding(kernel, spread)
        return Window(kernel, steps, (top, left, bottom, right), spread)
    pads = (0, 0) if isinstance(padding, str) else _pair(padding, dims)
    if not transposed:
        return Window(kernel, steps, (*pads, *pads), spread)
    before = [spread[axis] * (kernel[axis] - 1) - pads[axis] for axis in (0, 1)]
    more = _pair(output_padding, dims)
    behind = [before[axis] + more[axis] for axis in (0, 1)]
    return Window(kernel, (1, 1), (before[0], before[1], behind[0], behind[1]), spread, steps)


def _ones(pair: tuple[int, int]) -> tuple[int, int]:
    return max(pair[0], 1), max(pair[1], 1)


def _check_convolution(node: Node, input: Node, weight: Node, bias: Node | None, *arguments: Any) -> str | None:
    stride, padding, dilation, transposed, output_padding, groups = arguments[:6]
    rank = len(shape_of(input))
    if rank not in IMAGES or rank != len(shape_of(weight)):
        return f"a convolution of {rank} dims: the NPU's have batch, channels and one or two places"
    reason = _check_weight(weight, 1 if transposed else 0)
    if reason is not None:
        return reason
    window = _window(weight, stride, padding, dilation, transposed, output_padding)
    products = int(np.prod(shape_of(weight)[2:])) * shape_of(input)[1] // groups
    return check_window(window) or (
        f"sums of {products} products: an accumulator holds {MOST_PRODUCTS}" if products > MOST_PRODUCTS else None
    )


def check_window(window: Window) -> str | None:
    """The reason why the NPU has no such window; None if it has."""
    if max(window.kernel) > MOST_ROWS:
        return f"a kernel of {window.kernel}: the NPU's have up to {MOST_ROWS} rows and columns"
    for axis, name in enumerate(("rows", "columns")):
        reach = window.dilation[axis] * (window.kernel[axis] - 1) + 1
        if max(window.padding[axis], window.padding[axis + 2]) >= reach:
            return f"a padding of as many {name} as its window has"
        if min(window.padding) < 0:
            return "a transposed convolution whose padding cuts off more than its kernel adds"
        if window.upscale[axis] > 1 and (window.kernel[axis] < window.upscale[axis] or window.dilation[axis] > 1):
            return f"a transposed convolution that leaves {name} which no weight reaches"
    return None


def _check_conv(
    node: Node, input: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> str | None:
    return _check_convolution(node, input, weight, bias, stride, padding, dilation, False, [0, 0], groups)


def _check_transposed(
    node: Node, input: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, output_padding: Any,
    groups: int, dilation: Any,
) -> str | None:  # fmt: skip
    return _check_convolution(node, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _check_linear(node: Node, input: Node, weight: Node, bias: Node | None = None) -> str | None:
    features = shape_of(weight)[-1]
    if features > MOST_PRODUCTS:
        return f"sums of {features} products: an accumulator holds {MOST_PRODUCTS}"
    if not shape_of(input)[:-1]:
        return "a vector: the NPU's rows of features have two dims or more"
    return _check_weight(weight, 0)


# ---- how it is computed ---------------------------------------------------------------------------------------------


@operator("convolution", Annotate.LAYER, _check_convolution)
def convolution(
    f: Folding,
    call: QuantizedCall,
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Laid:
    """One convolution; with groups, unless each channel is a group, one for each on its part of the channels."""
    order = IMAGES[len(shape_of(input))]
    image = f.image(input, order)
    window = _window(weight, stride, padding, dilation, transposed, output_padding)
    kernels, scale = _kernels(f, weight, transposed, groups)
    result = f.result(call, order)
    n, h, w, channels = result.tensor.shape
    offsets, kernels, steps = f.bias(bias, image.scale, kernels, np.broadcast_to(scale, channels))
    low, high = call.limits
    if groups > 1 and kernels.shape[3] == 1 and channels == groups:
        kernel = np.ascontiguousarray(kernels[..., 0].transpose(1, 2, 0))
        f.add(ir.Convolution(call.head.name, (image,), result.tensor, low, high, window, kernel, offsets, steps, True))
        return result
    parts = []
    for group in range(groups):
        part = _channels(f, image, group, groups)
        mine = slice(group * channels // groups, (group + 1) * channels // groups)
        out = result.tensor if groups == 1 else f.part("part", (n, h, w, channels // groups), result.tensor)
        weights = np.ascontiguousarray(kernels[mine])
        f.add(ir.Convolution(call.head.name, (part,), out, low, high, window, weights, offsets[mine], steps[mine]))
        parts.append(out)
    if groups > 1:
        f.add(ir.Concat(call.head.name, tuple(parts), result.tensor, low, high, 3))
    return result


def _kernels(f: Folding, weight: Node, transposed: bool, groups: int) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """The weight as [out, kh, kw, in], and its scales by channel of the output.

    torch's transposed weight is [in, out / groups, …] and scatters; to gather, the kernel is reversed.
    """
    integers, scale = f.weight(weight)
    kernels = integers if integers.ndim == 4 else integers[:, :, None, :]
    if transposed:
        inner, outer, height, width = kernels.shape
        split = kernels[:, :, ::-1, ::-1].reshape(groups, inner // groups, outer, height, width)
        kernels = split.transpose(0, 2, 1, 3, 4).reshape(groups * outer, inner // groups, height, width)
        if len(scale) > 1:
            scale = np.tile(scale, groups)
    return np.ascontiguousarray(kernels.transpose(0, 2, 3, 1)), scale


def _channels(f: Folding, image: ir.Tensor, group: int, groups: int) -> ir.Tensor:
    if groups == 1:
        return image
    n, h, w, c = image.shape
    part = f.part("group", (n, h, w, c // groups), image)
    begin = (0, 0, 0, group * c // groups)
    f.add(ir.Slice("group", (image,), part, *image.bounds, begin, (1, 1, 1, 1)))
    return part


@operator("conv1d conv2d", Annotate.LAYER, _check_conv, "conv1d conv2d conv1d.padding conv2d.padding")
def conv(
    f: Folding, call: QuantizedCall, input: Node, weight: Node, bias: Node | None, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> Laid:  # fmt: skip
    """A convolution as torch writes it."""
    return convolution(f, call, input, weight, bias, stride, padding, dilation, False, [0, 0], groups)


@operator(
    "conv_transpose1d conv_transpose2d", Annotate.LAYER, _check_transposed, "conv_transpose1d conv_transpose2d.input"
)
def conv_transpose(
    f: Folding, call: QuantizedCall, input: Node, weight: Node, bias: Node | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> Laid:  # fmt: skip
    """A transposed convolution as torch writes it."""
    return convolution(f, call, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@operator("linear", Annotate.LAYER, _check_linear, "linear")
def linear(f: Folding, call: QuantizedCall, input: Node, weight: Node, bias: Node | None = None) -> Laid:
    """A convolution with a window of one place."""
    return _linear(f, call, input, weight, bias, transposed=False)


def _check_addmm(node: Node, bias: Node, input: Node, weight: Node, beta: Any = 1, alpha: Any = 1) -> str | None:
    if (beta, alpha) != (1, 1):
        return f"beta is {beta}, alpha is {alpha}: the NPU adds a bias to products without factors"
    if shape_of(bias) not in [(shape_of(weight)[1],), (1,)]:
        return f"a bias of {shape_of(bias)}: the NPU's are one for each column"
    if bias.op == "call_function" and not is_dequantize(bias):
        return "its bias is computed: the NPU's are constants"
    features = shape_of(weight)[0]
    if features > MOST_PRODUCTS:
        return f"sums of {features} products: an accumulator holds {MOST_PRODUCTS}"
    return _check_weight(weight, 1)


@operator("addmm", Annotate.LAYER, _check_addmm, "addmm")
def addmm(f: Folding, call: QuantizedCall, bias: Node, input: Node, weight: Node, *factors: Any) -> Laid:
    """A linear layer whose weight is [in, out]."""
    return _linear(f, call, input, weight, bias, transposed=True)


def _linear(f: Folding, call: QuantizedCall, input: Node, weight: Node, bias: Node | None, *, transposed: bool) -> Laid:
    order = rows(len(shape_of(input)))
    features = f.image(input, order)
    integers, scale = f.weight(weight)
    result = f.result(call, order)
    channels = result.tensor.shape[3]
    kernels = np.ascontiguousarray((integers.T if transposed else integers)[:, None, None, :])
    offsets, kernels, steps = f.bias(bias, features.scale, kernels, np.broadcast_to(scale, channels))
    f.add(ir.Convolution(call.head.name, (features,), result.tensor, *call.limits, Window(), kernels, offsets, steps))
    return result
