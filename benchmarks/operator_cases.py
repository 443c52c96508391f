"""(operator, size) -> the program that times it: a `Case` of one call, on float32 where the operator takes that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from tests.operators.case import Case, call, indices, tensor

aten = torch.ops.aten

Shape = tuple[int, ...]

MATRICES: Final[dict[str, Shape]] = {"small": (16,), "medium": (64, 64), "large": (256, 1024)}
IMAGES: Final[dict[str, Shape]] = {"small": (1, 4, 8, 8), "medium": (1, 16, 32, 32), "large": (1, 32, 112, 112)}

_UNARY: Final = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor"),
    *("isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not", "neg", "reciprocal", "relu", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    *("gelu", "elu", "leaky_relu", "hardtanh", "logit", "prod", "cumsum", "flip", "nonzero", "tril"),
)
_BINARY: Final = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "pow")
_BINARY_DEFAULT: Final = ("atan2", "maximum", "minimum", "floor_divide", "logical_and", "logical_or", "logical_xor")
_BITS: Final = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
_SCALARS: Final = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "rsub")


def _arguments(x: torch.Tensor) -> dict[str, tuple[Any, ...]]:
    """What a few unary operators take besides the tensor."""
    return {"cumsum": (x.dim() - 1,), "flip": ([0],)}


def operator_cases() -> Iterator[Case]:
    """Every case; its variant is the size."""
    for size, shape in MATRICES.items():
        yield from _elementwise(size, shape)
        yield from _reductions_and_shapes(size, shape)
        yield from _indexing(size, shape)
        yield from _products(size)
    for size, shape in IMAGES.items():
        yield from _images(size, shape)


def _elementwise(size: str, shape: Shape) -> Iterator[Case]:
    x, y = tensor(*shape, low=0.1, high=0.9), tensor(*shape, low=0.1, high=0.9, seed=1)
    i, j = tensor(*shape, dtype="int32", low=1, high=9), tensor(*shape, dtype="int32", low=1, high=9, seed=1)
    mask = x > 0.5
    more = _arguments(x)
    for name in _UNARY:
        value = tensor(*shape) if name == "tril" and len(shape) > 1 else x + 1 if name == "acosh" else x
        if name != "tril" or len(shape) > 1:
            yield call(f"aten::{name}", size, getattr(aten, name).default, value, *more.get(name, ()))
    for name in _BINARY:
        packet = getattr(aten, name)
        yield call(f"aten::{name}.Tensor", size, packet.Tensor_Tensor if name == "pow" else packet.Tensor, x, y)
    for name in _BINARY_DEFAULT:
        yield call(f"aten::{name}", size, getattr(aten, name).default, x, y)
    for name in _BITS:
        yield call(f"aten::{name}.Tensor", size, getattr(aten, name).Tensor, i, j)
    for name in _SCALARS:
        yield call(f"aten::{name}.Scalar", size, getattr(aten, name).Scalar, x, 2.0)
    yield call("aten::pow.Tensor_Scalar", size, aten.pow.Tensor_Scalar, x, 2.0)
    yield call("aten::pow.Scalar", size, aten.pow.Scalar, 2.0, x)
    yield call("aten::div.Tensor_mode", size, aten.div.Tensor_mode, x, y, rounding_mode="floor")
    yield call("aten::div.Tensor_mode int32", size, aten.div.Tensor_mode, i, j, rounding_mode="trunc")
    yield call("aten::bitwise_not", size, aten.bitwise_not.default, i)
    yield call("aten::clamp", size, aten.clamp.default, x, 0.2, 0.8)
    yield call("aten::clamp.Tensor", size, aten.clamp.Tensor, x, y, y + 1)
    yield call("aten::where.self", size, aten.where.self, mask, x, y)
    yield call("aten::masked_fill.Scalar", size, aten.masked_fill.Scalar, x, mask, 0.0)
    for dtype in (torch.float16, torch.float64, torch.int64, torch.bool):
        yield call(f"aten::_to_copy {dtype}".replace("torch.", ""), size, aten._to_copy.default, x, dtype=dtype)
    yield call("aten::add.Tensor float16", size, aten.add.Tensor, x.half(), y.half())
    yield call("aten::glu", size, aten.glu.default, x)


def _reductions_and_shapes(size: str, shape: Shape) -> Iterator[Case]:
    x, last = tensor(*shape), len(shape) - 1
    for name in ("sum", "mean", "amax", "amin", "any"):
        packet = getattr(aten, name)

        overload = {"sum": "dim_IntList", "mean": "dim", "any": "dims"}.get(name, "default")
        target = getattr(packet, overload)
        yield call(f"aten::{name} last dim", size, target, x, [last])
        yield call(f"aten::{name} first dim", size, target, x, [0])
    for name in ("max", "min"):
        yield call(f"aten::{name}.dim", size, getattr(aten, name).dim, x, last)
        yield call(f"aten::{name}", size, getattr(aten, name).default, x)
    for name in ("argmax", "argmin"):
        yield call(f"aten::{name}", size, getattr(aten, name).default, x, last)
    yield call("aten::topk", size, aten.topk.default, x, 5)
    yield call("aten::var.correction", size, aten.var.correction, x, [last], correction=1)
    yield call("aten::var_mean.correction", size, aten.var_mean.correction, x, [last], correction=1)
    yield call("aten::_softmax", size, aten._softmax.default, x, last, False)
    yield call("aten::_log_softmax", size, aten._log_softmax.default, x, last, False)
    width = shape[-1]
    yield call(
        "aten::native_layer_norm", size, aten.native_layer_norm.default, x, [width], tensor(width), tensor(width), 1e-5
    )
    yield call("aten::cat", size, aten.cat.default, [x, x], last)
    yield call("aten::stack", size, aten.stack.default, [x, x])
    yield call("aten::split_copy.Tensor", size, aten.split_copy.Tensor, x, width // 4, last)
    yield call("aten::slice_copy.Tensor", size, aten.slice_copy.Tensor, x, last, 1, width - 1, 2)
    yield call("aten::expand_copy", size, aten.expand_copy.default, x, [3, *shape])
    yield call("aten::repeat", size, aten.repeat.default, x, [2] * len(shape))
    yield call("aten::constant_pad_nd", size, aten.constant_pad_nd.default, x, [1, 2])
    yield call("aten::roll", size, aten.roll.default, x, [3], [last])
    yield call("aten::unfold_copy", size, aten.unfold_copy.default, x, last, 4, 2)
    yield call("aten::select_copy.int", size, aten.select_copy.int, x, last, 1)
    if len(shape) == 2:
        yield call("aten::permute_copy", size, aten.permute_copy.default, x, [1, 0])
        yield call("aten::diagonal_copy", size, aten.diagonal_copy.default, x)
        yield call("aten::unbind_copy.int", size, aten.unbind_copy.int, x[:16].contiguous())
    yield call("aten::full_like", size, aten.full_like.default, x, 1.5)
    yield call("aten::fill.Scalar", size, aten.fill.Scalar, x, 1.5)
    yield call("aten::arange", size, aten.arange.default, x.numel())


def _indexing(size: str, shape: Shape) -> Iterator[Case]:
    x = tensor(*shape)
    rows, width, last = shape[0], shape[-1], len(shape) - 1
    picked = indices(rows, below=rows)
    along = indices(*shape, below=width)
    yield call("aten::index.Tensor", size, aten.index.Tensor, x, [picked])
    yield call("aten::index_select", size, aten.index_select.default, x, 0, picked)
    yield call("aten::index_put", size, aten.index_put.default, x, [picked], x)
    yield call("aten::index_put accumulate", size, aten.index_put.default, x, [picked], x, True)
    yield call("aten::gather", size, aten.gather.default, x, last, along)
    yield call("aten::scatter.src", size, aten.scatter.src, x, last, along, x)
    yield call("aten::scatter_add", size, aten.scatter_add.default, x, last, along, x)
    yield call("aten::masked_select", size, aten.masked_select.default, x, x > 0)
    yield call("aten::masked_scatter", size, aten.masked_scatter.default, x, x > 0, x)
    yield call("aten::select_scatter", size, aten.select_scatter.default, x, x.select(last, 0).contiguous(), last, 1)
    yield call(
        "aten::slice_scatter", size, aten.slice_scatter.default, x, x.narrow(last, 0, width - 1).contiguous(), last, 1
    )
    yield call("aten::embedding", size, aten.embedding.default, tensor(100, width), indices(rows, below=100))


def _products(size: str) -> Iterator[Case]:
    n = {"small": 4, "medium": 64, "large": 256}[size]
    a, b = tensor(n, n), tensor(n, n, seed=1)
    yield call("aten::mm", size, aten.mm.default, a, b)
    yield call("aten::bmm", size, aten.bmm.default, a.expand(4, n, n).contiguous(), b.expand(4, n, n).contiguous())
    yield call("aten::addmm", size, aten.addmm.default, tensor(n), a, b)
    yield call("aten::linear", size, aten.linear.default, a, b, tensor(n))
    yield call("aten::_cdist_forward", size, aten._cdist_forward.default, a, b, 2.0, None)
    yield call("aten::_pdist_forward", size, aten._pdist_forward.default, a, 2.0)
    yield call("aten::_fft_r2c", size, aten._fft_r2c.default, a, [1], 0, True)


def _images(size: str, shape: Shape) -> Iterator[Case]:
    x, channels = tensor(*shape), shape[1]
    one, zero = [1, 1], [0, 0]

    def convolve(name: str, weight: Shape, padding: list[int], groups: int = 1, transposed: bool = False) -> Case:
        bias = tensor(channels)
        fixed = (bias, one, padding, one, transposed, zero, groups)
        return call(f"aten::convolution {name}", size, aten.convolution.default, x, tensor(*weight), *fixed)

    yield convolve("3x3", (channels, channels, 3, 3), one)
    yield convolve("1x1", (channels, channels, 1, 1), zero)
    yield convolve("depthwise", (channels, 1, 3, 3), one, channels)
    yield convolve("transposed", (channels, channels, 3, 3), one, 1, True)
    yield call("aten::max_pool2d_with_indices", size, aten.max_pool2d_with_indices.default, x, [2, 2])
    yield call("aten::avg_pool2d", size, aten.avg_pool2d.default, x, [2, 2])
    yield call("aten::_adaptive_avg_pool2d", size, aten._adaptive_avg_pool2d.default, x, [3, 3])
    norm: Callable[..., Any] = aten._native_batch_norm_legit_no_training.default
    scale = tensor(channels, low=1)
    yield call("aten::_native_batch_norm_legit_no_training", size, norm, x, scale, scale, scale, scale, 0.1, 1e-5)
    area = shape[2] * shape[3]
    yield call(
        "aten::native_group_norm", size, aten.native_group_norm.default, x, scale, scale, 1, channels, area, 2, 1e-5
    )
    doubled = [2 * shape[2], 2 * shape[3]]
    yield call("aten::upsample_nearest2d.vec", size, aten.upsample_nearest2d.vec, x, doubled, None)
    yield call("aten::upsample_bilinear2d.vec", size, aten.upsample_bilinear2d.vec, x, doubled, False, None)
    yield call("aten::_upsample_bilinear2d_aa", size, aten._upsample_bilinear2d_aa.default, x, [4, 4], False)
    grid = tensor(1, shape[2], shape[3], 2, low=-1, high=1)
    yield call("aten::grid_sampler_2d", size, aten.grid_sampler_2d.default, x, grid, 0, 0, False)
    yield call("aten::pixel_shuffle", size, aten.pixel_shuffle.default, x, 2)
    yield call("aten::pixel_unshuffle", size, aten.pixel_unshuffle.default, x, 2)
    yield call("aten::reflection_pad2d", size, aten.reflection_pad2d.default, x, [1, 2, 1, 2])
    yield call("aten::replication_pad2d", size, aten.replication_pad2d.default, x, [1, 2, 1, 2])
