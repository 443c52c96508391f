"""Layers: convolutions, pools, normalisations, softmaxes, resampling, Fourier transforms, dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tests.operators.case import (
    FLOATS,
    Case,
    call,
    channels_last,
    function,
    renamed_call,
    rounded_once,
    special,
    stand_in,
    tensor,
)

aten = torch.ops.aten


def convolutions() -> Iterator[Case]:
    name, target = "aten::convolution.out", aten.convolution.default
    image = tensor(2, 4, 6, 5)

    def two_d(weight: tuple[int, ...], bias: bool = True, **changes: Any) -> tuple[Any, ...]:
        given = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0]}
        groups = changes.pop("groups", 1)
        out_channels = weight[1] * groups if changes.get("transposed") else weight[0]
        return (tensor(*weight), tensor(out_channels) if bias else None, *(given | changes).values(), groups)

    for dtype in FLOATS:
        x, weight, bias = tensor(1, 2, 5, 5, dtype=dtype), tensor(3, 2, 3, 3, dtype=dtype), tensor(3, dtype=dtype)
        yield call(name, dtype, target, x, weight, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    yield call(name, "without bias", target, image, *two_d((3, 4, 3, 3), bias=False))
    yield call(name, "stride and padding", target, image, *two_d((3, 4, 3, 3), stride=[2, 1], padding=[1, 2]))
    yield call(name, "dilation", target, image, *two_d((3, 4, 2, 2), dilation=[2, 3]))
    yield call(name, "groups", target, image, *two_d((6, 2, 3, 3), groups=2))
    yield call(name, "depthwise", target, image, *two_d((8, 1, 3, 3), groups=4, padding=[1, 1]))
    yield call(name, "1x1", target, image, *two_d((3, 4, 1, 1)))
    yield call(name, "channels_last", target, channels_last(2, 4, 6, 5), *two_d((3, 4, 3, 3)))
    yield call(name, "transposed", target, image, *two_d((4, 3, 3, 3), transposed=True))
    more: dict[str, Any] = {"transposed": True, "stride": [2, 2], "padding": [1, 0], "output_padding": [1, 0]}
    yield call(name, "transposed with stride", target, image, *two_d((4, 3, 3, 3), **more))
    yield call(name, "transposed with groups", target, image, *two_d((4, 2, 3, 2), transposed=True, groups=2))
    yield call(name, "empty batch", target, tensor(0, 4, 6, 5), *two_d((3, 4, 3, 3)))
    one, line = [1], tensor(2, 3, 8)
    yield call(name, "1-d", target, line, tensor(4, 3, 3), tensor(4), [2], one, one, False, [0], 1)
    yield call(name, "1-d transposed", target, line, tensor(3, 4, 3), tensor(4), [2], one, one, True, [0], 1)
    ones = [1, 1, 1]
    yield call(
        name,
        "3-d",
        target,
        tensor(1, 2, 4, 4, 4),
        tensor(3, 2, 2, 2, 2),
        tensor(3),
        ones,
        ones,
        ones,
        False,
        [0] * 3,
        1,
    )
    name, target = "aten::convolution_backward.out", aten.convolution_backward.default
    mask = [True, True, True]
    for dtype in ("float32", "float64"):
        x, weight, gradient = (
            tensor(2, 4, 6, 5, dtype=dtype),
            tensor(3, 4, 3, 3, dtype=dtype),
            tensor(2, 3, 4, 3, dtype=dtype),
        )
        fixed = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        yield call(name, dtype, target, gradient, x, weight, [3], *fixed, mask)
    depthwise = ([1, 1], [1, 1], [1, 1], False, [0, 0], 4)
    yield call(name, "groups", target, image, image, tensor(4, 1, 3, 3), [4], *depthwise, mask)
    strided = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)
    yield call(name, "stride", target, tensor(2, 3, 3, 3), image, tensor(3, 4, 3, 3), [3], *strided, mask)


def pools() -> Iterator[Case]:
    pool, average = aten.max_pool2d_with_indices.default, aten.avg_pool2d.default
    name, mean_name = "aten::max_pool2d_with_indices.out", "aten::avg_pool2d.out"
    image = tensor(2, 3, 7, 6)
    for dtype in FLOATS:
        x = tensor(1, 2, 6, 6, dtype=dtype)
        yield call(name, dtype, pool, x, [2, 2])
        yield call(mean_name, dtype, average, x, [2, 2])
        yield call("aten::_adaptive_avg_pool2d.out", dtype, aten._adaptive_avg_pool2d.default, x, [3, 4])
    for dtype in ("int64", "int32", "uint8", "int8"):
        yield call(name, dtype, pool, tensor(1, 2, 6, 6, dtype=dtype), [2, 2])
    yield call(name, "stride and padding", pool, image, [3, 2], [2, 1], [1, 0])
    yield call(name, "dilation", pool, image, [2, 2], [1, 1], [0, 0], [2, 3])
    yield call(name, "ceil_mode", pool, image, [2, 4], [2, 3], [0, 0], [1, 1], True)
    yield call(name, "unbatched", pool, tensor(3, 7, 6), [3, 3], [2, 2], [1, 1])
    yield call(name, "NaN", pool, special().reshape(1, 1, 2, 7), [2, 2])
    yield call(name, "channels_last", pool, channels_last(2, 3, 6, 4), [2, 2])
    yield call(name, "overlapping ties", pool, torch.ones(1, 1, 4, 4), [3, 3], [1, 1])
    yield call(mean_name, "stride and padding", average, image, [3, 2], [2, 1], [1, 0])
    yield call(mean_name, "padding not counted", average, image, [3, 2], [2, 1], [1, 1], False, False)
    yield call(mean_name, "ceil_mode", average, image, [2, 4], [2, 3], [0, 0], True)
    yield call(mean_name, "ceil_mode, padding not counted", average, image, [3, 3], [2, 2], [1, 1], True, False)
    yield call(mean_name, "divisor", average, image, [2, 2], [2, 2], [0, 0], False, True, 3)
    yield call(mean_name, "unbatched", average, tensor(3, 7, 6), [3, 3])
    yield call(mean_name, "channels_last", average, channels_last(2, 3, 6, 4), [2, 2])
    adaptive = aten._adaptive_avg_pool2d.default
    yield call("aten::_adaptive_avg_pool2d.out", "to one", adaptive, image, [1, 1])
    yield call("aten::_adaptive_avg_pool2d.out", "larger", adaptive, image, [9, 8])
    yield call("aten::_adaptive_avg_pool2d.out", "unbatched", adaptive, tensor(3, 7, 6), [2, 3])
    yield call("aten::_adaptive_avg_pool2d.out", "channels_last", adaptive, channels_last(2, 3, 6, 4), [2, 3])
    name, target = "aten::max_pool2d_with_indices_backward.grad_input", aten.max_pool2d_with_indices_backward.default
    for dtype in ("float32", "float64"):
        x = tensor(1, 2, 6, 6, dtype=dtype)
        _, taken = pool(x, [2, 2])
        yield call(
            name, dtype, target, tensor(1, 2, 3, 3, dtype=dtype), x, [2, 2], [2, 2], [0, 0], [1, 1], False, taken
        )
    _, taken = pool(image, [3, 3], [1, 1], [1, 1])
    yield call(name, "overlap", target, tensor(*taken.shape), image, [3, 3], [1, 1], [1, 1], [1, 1], False, taken)


def norms() -> Iterator[Case]:
    for dtype in FLOATS:
        x, weight, bias = tensor(2, 4, 3, dtype=dtype), tensor(3, dtype=dtype), tensor(3, dtype=dtype, seed=1)
        channels, variance = tensor(4, dtype=dtype), tensor(4, dtype=dtype, low=0.5)
        yield call("aten::native_layer_norm.out", dtype, aten.native_layer_norm.default, x, [3], weight, bias, 1e-5)
        yield call(
            "aten::native_group_norm.out",
            dtype,
            aten.native_group_norm.default,
            x,
            channels,
            channels,
            2,
            4,
            3,
            2,
            1e-5,
        )
        yield call(
            "aten::_native_batch_norm_legit_no_training.out", dtype,
            aten._native_batch_norm_legit_no_training.default, x, channels, channels, channels, variance, 0.1, 1e-5,
        )  # fmt: skip
        yield call("aten::_softmax.out", dtype, aten._softmax.default, x, 1, False)
        yield call("aten::_log_softmax.out", dtype, aten._log_softmax.default, x, 1, False)
    x = tensor(2, 4, 3)
    norm = aten.native_layer_norm.default
    yield call("aten::native_layer_norm.out", "two dims", norm, x, [4, 3], tensor(4, 3), tensor(4, 3), 1e-3)
    yield call("aten::native_layer_norm.out", "no weight", norm, x, [3], None, None, 1e-5)
    yield call("aten::native_layer_norm.out", "no bias", norm, x, [3], tensor(3), None, 1e-5)
    yield call("aten::native_layer_norm.out", "empty batch", norm, tensor(0, 3), [3], tensor(3), tensor(3), 1e-5)
    yield call("aten::native_layer_norm.out", "constant rows", norm, torch.ones(2, 3), [3], None, None, 1e-5)
    group = aten.native_group_norm.default
    yield call("aten::native_group_norm.out", "no weight", group, x, None, None, 2, 4, 3, 4, 1e-5)
    yield call(
        "aten::native_group_norm.out", "image", group, tensor(2, 4, 3, 5), tensor(4), tensor(4), 2, 4, 15, 1, 1e-5
    )
    inference = aten._native_batch_norm_legit_no_training.default
    yield call(
        "aten::_native_batch_norm_legit_no_training.out", "no weight",
        inference, tensor(2, 4, 3, 5), None, None, tensor(4), tensor(4, low=1), 0.1, 1e-3,
    )  # fmt: skip
    yield call(
        "aten::_native_batch_norm_legit_no_training.out", "rank 2",
        inference, tensor(2, 4), tensor(4), tensor(4), tensor(4), tensor(4, low=1), 0.1, 1e-3,
    )  # fmt: skip
    own = aten._native_batch_norm_legit.no_stats
    for dtype in ("float32", "float64"):
        weight = tensor(4, dtype=dtype)
        yield call(
            "aten::_native_batch_norm_legit.no_stats_out",
            dtype,
            own,
            tensor(3, 4, 5, dtype=dtype),
            weight,
            weight,
            True,
            0.1,
            1e-5,
        )
    yield call(
        "aten::_native_batch_norm_legit.no_stats_out", "no weight", own, tensor(3, 4, 5), None, None, True, 0.1, 1e-5
    )
    yield _with_running_statistics()
    soft, log = aten._softmax.default, aten._log_softmax.default
    for name, target in (("aten::_softmax.out", soft), ("aten::_log_softmax.out", log)):
        yield call(name, "dim -1", target, x, -1, False)
        yield call(name, "dim 0", target, x, 0, False)
        yield call(name, "0-d", target, tensor(), 0, False)
        yield call(name, "empty", target, tensor(0, 3), 1, False)
        yield call(name, "large values", target, torch.tensor([[1000.0, 999.0, -1000.0], [-1e30, 0.0, 1.0]]), 1, False)
        yield call(name, "infinities", target, torch.tensor([[float("-inf"), 0.0, 1.0], [float("-inf")] * 3]), 1, False)
        yield call(name, "channels_last", target, channels_last(2, 3, 4, 2), 1, False)


def _with_running_statistics() -> Case:
    """Lowering makes `_native_batch_norm_legit` functional, as it writes its statistics: a stand-in does not.

    In inference both are the same.
    """
    target = stand_in(
        "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training,"
        " float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        _batch_norm,
    )
    x, channels = tensor(3, 4, 5), tensor(4)
    return renamed_call(
        "aten::_native_batch_norm_legit.out",
        "inference",
        target,
        x,
        channels,
        channels,
        channels,
        tensor(4, low=1),
        False,
        0.0,
        1e-5,
    )


def _batch_norm(x: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Statistics of the batch are not computed."""
    return aten._native_batch_norm_legit.default(x, *others)[0], x.new_empty(0), x.new_empty(0)


def resampling() -> Iterator[Case]:
    nearest, bilinear = aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec
    image = tensor(1, 2, 3, 4)
    for dtype in FLOATS:
        x, grid = tensor(1, 2, 3, 4, dtype=dtype), tensor(1, 3, 2, 2, dtype=dtype, low=-1.2, high=1.2)
        yield call("aten::upsample_nearest2d.vec_out", dtype, nearest, x, [6, 8], None)
        yield call("aten::upsample_bilinear2d.vec_out", dtype, bilinear, x, [6, 8], False, None)
        sampled = call("aten::grid_sampler_2d.out", dtype, aten.grid_sampler_2d.default, x, grid, 0, 0, False)
        yield rounded_once(sampled) if dtype in ("float16", "bfloat16") else sampled
    yield call("aten::upsample_nearest2d.vec_out", "uint8", nearest, tensor(1, 2, 3, 4, dtype="uint8"), [6, 8], None)
    for name, target, fixed in (
        ("nearest", nearest, ()),
        ("bilinear", bilinear, (False,)),
        ("bilinear", bilinear, (True,)),
    ):
        operator, suffix = f"aten::upsample_{name}2d.vec_out", " align_corners" if fixed == (True,) else ""
        yield call(operator, f"scale factors{suffix}", target, image, None, *fixed, [1.5, 2.5])
        yield call(operator, f"smaller{suffix}", target, image, [2, 3], *fixed, None)
        yield call(operator, f"odd size{suffix}", target, image, [7, 5], *fixed, None)
        yield call(operator, f"channels_last{suffix}", target, channels_last(1, 2, 3, 4), [6, 8], *fixed, None)
    name, target = "aten::_upsample_bilinear2d_aa.out", aten._upsample_bilinear2d_aa.default
    for dtype in ("float32", "float64"):
        yield call(name, dtype, target, tensor(1, 2, 6, 8, dtype=dtype), [3, 4], False)
    yield call(name, "larger", target, image, [6, 8], False)
    yield call(name, "align_corners", target, tensor(1, 2, 6, 8), [4, 3], True)
    yield call(name, "odd size", target, tensor(1, 2, 7, 9), [3, 5], False)
    yield call(name, "scales", target, tensor(1, 2, 6, 8), [3, 4], False, 0.5, 0.5)
    grid = tensor(1, 4, 5, 2, low=-1.5, high=1.5)
    for mode_name, mode in {"bilinear": 0, "nearest": 1, "bicubic": 2}.items():
        for padding_name, padding in {"zeros": 0, "border": 1, "reflection": 2}.items():
            for corners in (False, True):
                variant = f"{mode_name} {padding_name}{' align_corners' * corners}"
                yield call(
                    "aten::grid_sampler_2d.out",
                    variant,
                    aten.grid_sampler_2d.default,
                    image,
                    grid,
                    mode,
                    padding,
                    corners,
                )


def transforms_and_dropout() -> Iterator[Case]:
    forward, backward = aten._fft_r2c.default, aten._fft_c2r.default
    for dtype, pair in (("float32", "complex64"), ("float64", "complex128")):
        yield call("aten::_fft_r2c.out", dtype, forward, tensor(3, 8, dtype=dtype), [1], 0, True)
        yield call("aten::_fft_c2r.out", pair, backward, forward(tensor(3, 8, dtype=dtype), [1], 0, True), [1], 2, 8)
    yield call("aten::_fft_r2c.out", "two-sided", forward, tensor(3, 8), [1], 0, False)
    yield call("aten::_fft_r2c.out", "two dims, odd", forward, tensor(3, 7), [0, 1], 1, True)
    yield call("aten::_fft_r2c.out", "normalised", forward, tensor(3, 6), [1], 2, True)
    yield call("aten::_fft_c2r.out", "odd", backward, forward(tensor(3, 7), [1], 0, True), [1], 2, 7)
    yield call("aten::_fft_c2r.out", "two dims", backward, forward(tensor(4, 6), [0, 1], 0, True), [0, 1], 2, 6)
    yield function(
        "aten::_fft_c2r.out", "from real to real", lambda x: backward(forward(x, [1], 0, True), [1], 2, 8), tensor(3, 8)
    )
    dropout = aten.native_dropout.default
    for dtype in FLOATS:
        yield call("aten::native_dropout.out", f"p=0 {dtype}", dropout, tensor(3, 5, dtype=dtype), 0.0, True)
    yield call("aten::native_dropout.out", "p=1", dropout, tensor(3, 5), 1.0, True)
    yield call("aten::native_dropout.out", "not training", dropout, tensor(3, 5), 0.5, False)
    yield function("aten::native_dropout.out", "half of it", _kept_is_doubled, tensor(3, 50), keep=[dropout])


def _kept_is_doubled(x: torch.Tensor) -> torch.Tensor:
    """What is random is which elements stay; what they are is not."""
    y, mask = aten.native_dropout.default(x, 0.5, True)
    right: torch.Tensor = ((y == 2 * x) & mask) | ((y == 0) & ~mask)
    return right


def neural_cases() -> Iterator[Case]:
    yield from convolutions()
    yield from pools()
    yield from norms()
    yield from resampling()
    yield from transforms_and_dropout()
