"""Each converter against torch: small functions, lowered whole, give what eager gives; static and dynamic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.cpu.tests.harness import Batches, Function, Lowered, arguments_of, declined, edge
from torch import nn
from torch.export import Dim, ExportedProgram

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return make()


def x(*shape: int) -> torch.Tensor:
    """Numbers of both signs, none of them twice."""
    return seeded(lambda: torch.randn(shape))


def positive(*shape: int) -> torch.Tensor:
    return x(*shape).abs() + 0.1


def whole(*shape: int, high: int = 9, low: int = -9) -> torch.Tensor:
    return seeded(lambda: torch.randint(low, high, shape))


def mask(*shape: int) -> torch.Tensor:
    return x(*shape) > 0


def module(make: Callable[[], nn.Module]) -> nn.Module:
    """With weights and statistics that are not trivial."""
    made: nn.Module = seeded(make)
    with torch.no_grad():
        for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
            if tensor.is_floating_point() and ("norm" in type(made).__name__.lower() or "running" in name):
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    return made.eval()


def assigned_inner(t: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    result = t.clone()
    result[:, i] = v
    return result


UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 floor log log10 log2 neg reciprocal relu
round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc log1p expm1 isnan isinf square"""
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNIT = ("acos", "asin", "atanh")

CASES: dict[str, Case] = {
    **{
        name: (getattr(torch, name), (positive(3, 5).clamp(max=0.9) if name in UNIT else positive(3, 5) + 1,))
        for name in UNARY.split()
    },
    "log1p_near_zero": (torch.log1p, (x(20) * 1e-6,)),
    "expm1_near_zero": (torch.expm1, (x(20) * 1e-6,)),
    "log1p_limits": (torch.log1p, (torch.tensor([0.0, -1.0, torch.inf, 1e30, -2.0]),)),
    "expm1_limits": (torch.expm1, (torch.tensor([0.0, -200.0, torch.inf, -torch.inf, 200.0]),)),
    **{
        f"{name}_of_integers": (getattr(torch, name), (torch.tensor([3, 1, -2, 0, 2**24 + 1]),))
        for name in ["atan", "cos", "erf", "exp", "log", "reciprocal", "rsqrt", "sin", "sqrt", "tanh"]
    },
    **{
        f"{name}_of_both_signs": (getattr(torch, name), (x(3, 5) * 2,))
        for name in ["abs", "ceil", "floor", "neg", "relu", "round", "sign", "trunc", "sigmoid", "tanh", "erf"]
    },
    # activations
    "gelu": (F.gelu, (x(4, 9),)),
    "gelu_tanh": (lambda t: F.gelu(t, approximate="tanh"), (x(4, 9),)),
    "silu": (F.silu, (x(4, 9),)),
    "mish": (F.mish, (x(4, 9),)),
    "elu": (F.elu, (x(4, 9),)),
    "elu_alpha": (lambda t: F.elu(t, 0.3), (x(4, 9),)),
    "selu": (F.selu, (x(4, 9),)),
    "celu": (lambda t: F.celu(t, 0.7), (x(4, 9),)),
    "softplus": (lambda t: F.softplus(t * 20, 2.0, 15.0), (x(4, 9),)),
    "log_sigmoid": (F.logsigmoid, (x(4, 9),)),
    "softsign": (F.softsign, (x(4, 9),)),
    "hardswish": (F.hardswish, (x(4, 9) * 4,)),
    "hardsigmoid": (F.hardsigmoid, (x(4, 9) * 4,)),
    "hardtanh": (lambda t: F.hardtanh(t, -0.5, 0.7), (x(4, 9),)),
    "relu6": (F.relu6, (x(4, 9) * 5,)),
    "leaky_relu": (lambda t: F.leaky_relu(t, 0.2), (x(4, 9),)),
    "prelu": (module(lambda: nn.PReLU(4)), (x(2, 4, 3),)),
    "prelu_one": (module(nn.PReLU), (x(2, 4, 3),)),
    "glu": (F.glu, (x(4, 8),)),
    "threshold": (lambda t: F.threshold(t, 0.1, 20.0), (x(4, 9),)),
    "softmax": (lambda t: F.softmax(t, 1), (x(2, 5, 3),)),
    "log_softmax": (lambda t: F.log_softmax(t, -1), (x(2, 5, 3),)),
    # arithmetic and promotion
    "add": (torch.add, (x(3, 4), x(4))),
    "add_alpha": (lambda a, b: torch.add(a, b, alpha=2), (x(3, 4), x(4))),
    "add_number": (lambda a: a + 2.5, (x(3, 4),)),
    "add_int_float": (torch.add, (whole(3, 4), x(4))),
    "add_bool": (torch.add, (mask(3, 4), mask(3, 4))),
    "add_int32_int64": (torch.add, (whole(3).int(), whole(3))),
    "sub_alpha": (lambda a, b: torch.sub(a, b, alpha=3), (x(3, 4), x(4))),
    "rsub": (lambda a: 1 - a, (x(3, 4),)),
    "mul": (torch.mul, (x(3, 4), x(3, 1))),
    "mul_bool": (torch.mul, (mask(3, 4), mask(3, 4))),
    "mul_mask": (torch.mul, (x(3, 4), mask(3, 4))),
    "mul_int_number": (lambda a: a * 2.5, (whole(3, 4),)),
    "div": (torch.div, (x(3, 4), positive(4))),
    "div_ints": (torch.div, (whole(3, 4), whole(4, low=1))),
    "div_floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (x(3, 4), positive(4))),
    "div_trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (x(3, 4) * 5, positive(4))),
    "div_floor_ints": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (whole(3, 40), whole(40, low=1))),
    "div_floor_by_negative": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (whole(3, 40), -whole(40, low=1))),
    "div_trunc_ints": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (whole(3, 40), whole(40, low=1))),
    "floor_divide": (lambda a: a // 3, (whole(3, 40),)),
    "remainder": (torch.remainder, (x(3, 40), positive(40))),
    "remainder_by_negative": (torch.remainder, (x(3, 40), -positive(40))),
    "remainder_ints": (torch.remainder, (whole(3, 40), whole(40, low=1))),
    "remainder_ints_by_negative": (lambda a: a % -4, (whole(3, 40),)),
    "fmod": (torch.fmod, (x(3, 40), positive(40))),
    "fmod_ints": (torch.fmod, (whole(3, 40), whole(40, low=1))),
    "pow_square": (lambda a: a**2, (x(3, 4),)),
    "pow_root": (lambda a: a**0.5, (positive(3, 4),)),
    "pow_number": (lambda a: a**3, (x(3, 4),)),
    "pow_tensor": (torch.pow, (positive(3, 4), x(4))),
    "pow_base": (lambda a: 2**a, (x(3, 4),)),
    "maximum": (torch.maximum, (x(3, 4), x(4))),
    "minimum_ints": (torch.minimum, (whole(3, 4), whole(4))),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), (x(3, 4),)),
    "clamp_low": (lambda a: a.clamp(min=0.2), (x(3, 4),)),
    "clamp_ints": (lambda a: a.clamp(-2, 3), (whole(3, 4),)),
    "clamp_tensors": (lambda a, b: a.clamp(b, b + 1), (x(3, 4), x(4))),
    "double": (lambda a, b: torch.sigmoid(a) * b + a.exp() / 3, (x(3, 4).double(), x(4).double())),
    # comparison, logic, choice
    **{f"{name}_tensor": (getattr(torch, name), (whole(3, 4), whole(4))) for name in COMPARISONS},
    **{f"{name}_number": (partial(getattr(torch, name), other=0.5), (x(3, 4),)) for name in COMPARISONS[2:]},
    "eq_bools": (torch.eq, (mask(3, 4), mask(3, 4))),
    "lt_bools": (torch.lt, (mask(3, 4), mask(3, 4).flip(0))),
    "eq_bool_number": (lambda a: a == 1, (mask(3, 4),)),
    "eq_int_float_number": (lambda a: a < 0.5, (whole(3, 4),)),
    "gt_int_float": (torch.gt, (whole(3, 4), x(4))),
    "logical_and": (torch.logical_and, (whole(3, 9), mask(9))),
    "logical_or": (torch.logical_or, (x(3, 9), mask(9))),
    "logical_xor": (torch.logical_xor, (mask(3, 9), mask(9))),
    "logical_not": (torch.logical_not, (whole(3, 9),)),
    "bitwise": (lambda a, b: ((a & b) | ~a) ^ (b & 3), (whole(3, 9), whole(9))),
    "bitwise_bools": (lambda a, b: ((a & b) | ~a) ^ b, (mask(3, 9), mask(9))),
    "where": (torch.where, (mask(3, 4), x(3, 4), x(4))),
    "where_number": (lambda m, a: torch.where(m, a, 0.0), (mask(3, 4), x(3, 4))),
    "where_mixed": (torch.where, (mask(3, 4), whole(3, 4), x(4))),
    "where_bools": (torch.where, (mask(3, 4), mask(4), mask(3, 4).flip(0))),
    "masked_fill": (lambda a, m: a.masked_fill(m, -1e9), (x(3, 4), mask(3, 4))),
    "casts": (lambda a: (a.int(), a.bool(), a.double(), a.half(), a.long().float()), (x(3, 4) * 3,)),
    "half": (lambda a: (torch.softmax(a, -1) + a.relu()) @ a.T, (x(3, 4).half(),)),
    # products
    "mm": (torch.mm, (x(3, 4), x(4, 5))),
    "bmm": (torch.bmm, (x(2, 3, 4), x(2, 4, 5))),
    "matmul_broadcast": (torch.matmul, (x(2, 6, 3, 4), x(4, 5))),
    "matmul_vector": (torch.matmul, (x(3, 4), x(4))),
    "dot": (torch.dot, (x(4), x(4))),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2), (x(5), x(3, 4), x(4, 5))),
    "baddbmm": (lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5, alpha=2), (x(2, 3, 5), x(2, 3, 4), x(2, 4, 5))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (x(2, 3, 4), x(2, 5, 4))),
    "linear": (module(lambda: nn.Linear(4, 5)), (x(3, 4),)),
    "linear_no_bias": (module(lambda: nn.Linear(4, 5, bias=False)), (x(3, 4),)),
    "linear_vector": (module(lambda: nn.Linear(4, 5)), (x(4),)),
    "linear_4d": (module(lambda: nn.Linear(4, 5)), (x(2, 3, 2, 4),)),
    "linear_computed_weight": (lambda a, w: F.linear(a, w * 2), (x(2, 3, 4), x(5, 4))),
    "linear_onto_a_vector": (F.linear, (x(2, 4), x(4))),
    "linear_of_vectors": (F.linear, (x(4), x(4))),
    "linear_4d_onto_a_vector": (F.linear, (x(2, 3, 2, 4), x(4))),
    "linear_double": (module(lambda: nn.Linear(4, 5).double()), (x(2, 3, 4).double(),)),
    # convolution
    "conv1d": (module(lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1)), (x(2, 3, 9),)),
    "conv2d": (module(lambda: nn.Conv2d(4, 6, 3, padding=(1, 2), dilation=2, groups=2)), (x(2, 4, 9, 9),)),
    "conv2d_no_bias": (module(lambda: nn.Conv2d(4, 6, 3, bias=False)), (x(2, 4, 9, 9),)),
    "conv2d_same": (module(lambda: nn.Conv2d(4, 6, 4, padding="same")), (x(2, 4, 9, 9),)),
    "conv2d_valid": (module(lambda: nn.Conv2d(4, 6, 4, padding="valid")), (x(2, 4, 9, 9),)),
    "conv2d_reflect": (module(lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect")), (x(2, 4, 9, 9),)),
    "conv2d_unbatched": (module(lambda: nn.Conv2d(4, 6, 3)), (x(4, 9, 9),)),
    "conv3d": (module(lambda: nn.Conv3d(2, 3, 3, padding=1)), (x(1, 2, 5, 5, 5),)),
    "conv_transpose1d": (module(lambda: nn.ConvTranspose1d(3, 4, 3, stride=2)), (x(2, 3, 9),)),
    "conv_transpose2d": (
        module(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)),
        (x(2, 4, 5, 5),),
    ),
    "pad_conv": (
        nn.Sequential(nn.ConstantPad2d((0, 1, 2, 1), 0), module(lambda: nn.Conv2d(3, 4, 3))),
        (x(2, 3, 7, 7),),
    ),
    "pad_value_conv": (
        nn.Sequential(nn.ConstantPad2d((0, 1, 2, 1), 3), module(lambda: nn.Conv2d(3, 4, 3))),
        (x(2, 3, 7, 7),),
    ),
    "pad_pad_conv": (
        nn.Sequential(nn.ZeroPad2d(1), nn.ZeroPad2d((1, 0, 0, 0)), module(lambda: nn.Conv2d(3, 4, 3, padding=1))),
        (x(2, 3, 7, 7),),
    ),
    "pad_channels_conv": (
        lambda t, w: F.conv2d(F.pad(t, (1, 1, 1, 1, 0, 1)), w),
        (x(2, 3, 7, 7), x(5, 4, 3, 3)),
    ),
    "negative_pad_conv": (lambda t, w: F.conv2d(F.pad(t, (-1, 1)), w), (x(2, 3, 7, 7), x(5, 3, 3, 3))),
    "conv_bn_relu": (
        nn.Sequential(
            module(lambda: nn.Conv2d(3, 4, 3)), module(lambda: nn.BatchNorm2d(4)), nn.ReLU6()
        ),
        (x(2, 3, 7, 7),),
    ),
    # normalisation
    "layer_norm": (module(lambda: nn.LayerNorm(6)), (x(2, 5, 6),)),
    "layer_norm_two_dims": (module(lambda: nn.LayerNorm((5, 6), bias=False)), (x(2, 5, 6),)),
    "layer_norm_plain": (lambda t: F.layer_norm(t, (6,)), (x(2, 5, 6),)),
    "rms_norm": (module(lambda: nn.RMSNorm(6)), (x(2, 5, 6),)),
    "rms_norm_eps": (lambda t: F.rms_norm(t, (6,), eps=1e-3), (x(2, 5, 6),)),
    "batch_norm": (module(lambda: nn.BatchNorm2d(4)), (x(2, 4, 5, 5),)),
    "batch_norm_1d": (module(lambda: nn.BatchNorm1d(4)), (x(3, 4),)),
    "batch_norm_plain": (module(lambda: nn.BatchNorm2d(4, affine=False)), (x(2, 4, 5, 5),)),
    "group_norm": (module(lambda: nn.GroupNorm(2, 4)), (x(2, 4, 5, 5),)),
    "group_norm_plain": (module(lambda: nn.GroupNorm(2, 4, affine=False)), (x(2, 4, 6),)),
    "instance_norm": (module(lambda: nn.InstanceNorm2d(4, affine=True)), (x(2, 4, 5, 5),)),
    "native_layer_norm": (lambda t, w: torch.native_layer_norm(t, (6,), w, w, 1e-5)[0], (x(2, 6), x(6))),
    # pooling and resampling
    "max_pool1d": (lambda t: F.max_pool1d(t, 3, 2), (x(2, 3, 9),)),
    "max_pool2d": (lambda t: F.max_pool2d(t, 3, 2, 1), (x(2, 3, 9, 9),)),
    "max_pool2d_dilated": (lambda t: F.max_pool2d(t, 2, 1, dilation=2), (x(2, 3, 9, 9),)),
    "max_pool2d_ceil": (lambda t: F.max_pool2d(t, 3, 2, ceil_mode=True), (x(2, 3, 8, 8),)),
    "max_pool2d_unbatched": (lambda t: F.max_pool2d(t, 2), (x(3, 8, 8),)),
    "max_pool3d": (lambda t: F.max_pool3d(t, 2), (x(1, 3, 6, 6, 6),)),
    "avg_pool1d": (lambda t: F.avg_pool1d(t, 3, 2), (x(2, 3, 9),)),
    "avg_pool2d": (lambda t: F.avg_pool2d(t, 3, 2, 1), (x(2, 3, 9, 9),)),
    "avg_pool2d_without_pad": (lambda t: F.avg_pool2d(t, 3, 2, 1, count_include_pad=False), (x(2, 3, 9, 9),)),
    "avg_pool2d_needless_ceil": (lambda t: F.avg_pool2d(t, 3, 2, ceil_mode=True), (x(2, 3, 9, 9),)),
    "avg_pool3d": (lambda t: F.avg_pool3d(t, 2), (x(1, 3, 6, 6, 6),)),
    "adaptive_avg_pool2d": (lambda t: F.adaptive_avg_pool2d(t, 1), (x(2, 3, 9, 7),)),
    "adaptive_avg_pool2d_even": (lambda t: F.adaptive_avg_pool2d(t, (3, 2)), (x(2, 3, 9, 8),)),
    "adaptive_avg_pool2d_one_dim": (lambda t: F.adaptive_avg_pool2d(t, (1, 4)), (x(2, 3, 9, 8),)),
    "adaptive_avg_pool1d": (lambda t: F.adaptive_avg_pool1d(t, 3), (x(2, 3, 9),)),
    "adaptive_max_pool2d": (lambda t: F.adaptive_max_pool2d(t, (3, 4)), (x(2, 3, 9, 8),)),
    "upsample_nearest": (lambda t: F.interpolate(t, scale_factor=2), (x(2, 3, 4, 5),)),
    "upsample_nearest_size": (lambda t: F.interpolate(t, size=(7, 9)), (x(2, 3, 4, 5),)),
    "upsample_nearest_exact": (lambda t: F.interpolate(t, size=(7, 9), mode="nearest-exact"), (x(2, 3, 4, 5),)),
    "upsample_nearest_1d": (lambda t: F.interpolate(t, scale_factor=3), (x(2, 3, 4),)),
    "upsample_linear": (lambda t: F.interpolate(t, scale_factor=2, mode="linear"), (x(2, 3, 4),)),
    "upsample_bilinear": (lambda t: F.interpolate(t, scale_factor=1.7, mode="bilinear"), (x(2, 3, 6, 5),)),
    "upsample_bilinear_size": (lambda t: F.interpolate(t, size=(7, 9), mode="bilinear"), (x(2, 3, 4, 5),)),
    "upsample_bilinear_smaller": (lambda t: F.interpolate(t, size=(3, 4), mode="bilinear"), (x(2, 3, 7, 5),)),
    "upsample_bilinear_corners": (
        lambda t: F.interpolate(t, size=(7, 9), mode="bilinear", align_corners=True),
        (x(2, 3, 4, 5),),
    ),
    "upsample_bicubic": (lambda t: F.interpolate(t, scale_factor=2, mode="bicubic"), (x(2, 3, 4, 5),)),
    "upsample_trilinear": (lambda t: F.interpolate(t, scale_factor=1.7, mode="trilinear"), (x(2, 3, 4, 6, 5),)),
    "upsample_trilinear_corners": (
        lambda t: F.interpolate(t, size=(5, 3, 7), mode="trilinear", align_corners=True),
        (x(2, 3, 4, 6, 5),),
    ),
    "antialiased_smaller": (lambda t: F.interpolate(t, size=(3, 4), mode="bilinear", antialias=True), (x(2, 3, 9, 7),)),
    "antialiased_larger": (lambda t: F.interpolate(t, size=(9, 5), mode="bilinear", antialias=True), (x(2, 3, 4, 7),)),
    "antialiased_scale": (
        lambda t: F.interpolate(t, scale_factor=0.45, mode="bilinear", antialias=True),
        (x(2, 3, 11, 9),),
    ),
    "antialiased_corners": (
        lambda t: F.interpolate(t, size=(3, 4), mode="bilinear", align_corners=True, antialias=True),
        (x(2, 3, 9, 7),),
    ),
    "antialiased_bicubic": (lambda t: F.interpolate(t, size=(3, 4), mode="bicubic", antialias=True), (x(2, 3, 9, 7),)),
    # attention
    "attention": (F.scaled_dot_product_attention, (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4))),
    "attention_3d": (F.scaled_dot_product_attention, (x(3, 5, 4), x(3, 6, 4), x(3, 6, 4))),
    "attention_other_value_size": (F.scaled_dot_product_attention, (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 8))),
    "attention_of_long_rows": (F.scaled_dot_product_attention, (x(2, 3, 5, 4), x(2, 3, 1030, 4), x(2, 3, 1030, 8))),
    "attention_scaled": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4)),
    ),
    "attention_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (x(2, 3, 5, 4), x(2, 3, 5, 4), x(2, 3, 5, 4)),
    ),
    "attention_causal_longer_keys": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (x(2, 3, 5, 4), x(2, 3, 7, 4), x(2, 3, 7, 4)),
    ),
    "attention_causal_3d": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (x(3, 5, 4), x(3, 5, 4), x(3, 5, 4)),
    ),
    "attention_one_key_head": (F.scaled_dot_product_attention, (x(2, 3, 5, 4), x(2, 1, 6, 4), x(2, 1, 6, 4))),
    "attention_float_mask": (
        F.scaled_dot_product_attention,
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4), x(2, 1, 5, 6)),
    ),
    "attention_float_mask_2d": (
        F.scaled_dot_product_attention,
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4), x(5, 6)),
    ),
    "attention_row_mask": (
        F.scaled_dot_product_attention,
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4), x(2, 1, 1, 6)),
    ),
    "attention_bool_mask": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 6).tril(1).bool()),
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4)),
    ),
    "attention_masked_rows": (
        F.scaled_dot_product_attention,
        (x(1, 2, 3, 4), x(1, 2, 3, 4), x(1, 2, 3, 4), torch.tensor([[True, False, True], [False] * 3, [True] * 3])),
    ),
    "attention_grouped": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (x(2, 6, 5, 4), x(2, 3, 7, 4), x(2, 3, 7, 4)),
    ),
    "multi_head_attention": (
        module(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
        (x(2, 5, 8),),
    ),
    # recurrent
    "lstm": (module(lambda: nn.LSTM(4, 5, 2, batch_first=True)), (x(2, 3, 4),)),
    "lstm_bidirectional": (module(lambda: nn.LSTM(4, 5, 2, bidirectional=True)), (x(3, 2, 4),)),
    "lstm_no_bias": (module(lambda: nn.LSTM(4, 5, bias=False)), (x(3, 2, 4),)),
    "gru": (module(lambda: nn.GRU(4, 5, 2, batch_first=True)), (x(2, 3, 4),)),
    "gru_bidirectional": (module(lambda: nn.GRU(4, 5, bidirectional=True)), (x(3, 2, 4),)),
    # reductions
    "sum": (torch.sum, (x(3, 4),)),
    "sum_dim": (lambda t: t.sum((0, 2), keepdim=True), (x(2, 3, 4),)),
    "sum_bools": (lambda t: t.sum(1), (mask(3, 4),)),
    "sum_dtype": (lambda t: t.sum(1, dtype=torch.float32), (whole(3, 4),)),
    "mean": (torch.mean, (x(3, 4),)),
    "mean_dim": (lambda t: t.mean(-1), (x(2, 3, 4),)),
    "mean_image": (lambda t: t.mean((2, 3)), (x(2, 3, 4, 5),)),
    "mean_image_keepdim": (lambda t: t.mean((-1, -2), keepdim=True), (x(2, 3, 4, 5),)),
    "amax_amin": (lambda t: (t.amax(1), t.amin((0, 1), keepdim=True)), (x(3, 4),)),
    "max_min": (lambda t: (t.max(), t.min()), (x(3, 4),)),
    "max_dim": (lambda t: torch.max(t, 1), (x(3, 4),)),
    "min_dim_keepdim": (lambda t: torch.min(t, 0, keepdim=True), (x(3, 4),)),
    "max_dim_values": (lambda t: torch.max(t, 1).values, (x(3, 4),)),
    "argmax": (torch.argmax, (x(3, 4),)),
    "argmax_dim": (lambda t: t.argmax(-1, keepdim=True), (x(3, 4),)),
    "argmin": (lambda t: t.argmin(0), (x(3, 4),)),
    "prod": (lambda t: (t.prod(), t.prod(1)), (x(3, 4),)),
    "any_all": (lambda t: (t.any(), t.all(), t.any(1), t.all(0, keepdim=True)), (mask(3, 4),)),
    "any_numbers": (lambda t: (t.any(1), t.all(1)), (whole(3, 4, high=2, low=0),)),
    "var": (lambda t: (t.var(1), t.var((0, 1), correction=0, keepdim=True)), (x(3, 4),)),
    "std": (lambda t: t.std(-1), (x(3, 4),)),
    "var_mean": (lambda t: torch.var_mean(t, 1), (x(3, 4),)),
    "logsumexp": (lambda t: t.logsumexp(1), (x(3, 4),)),
    "norm": (lambda t: (torch.linalg.vector_norm(t, dim=1), torch.linalg.vector_norm(t, 1)), (x(3, 4),)),
    "normalize": (lambda t: F.normalize(t, dim=-1), (x(3, 4),)),
    "cumsum": (lambda t: t.cumsum(1), (x(3, 4),)),
    "cumsum_mask": (lambda t: t.cumsum(0), (mask(3, 4),)),
    "topk": (lambda t: t.topk(3, 1), (x(2, 7),)),
    "topk_smallest": (lambda t: t.topk(3, 0, largest=False), (x(7, 2),)),
    "sort": (lambda t: t.sort(1, descending=True), (x(2, 7),)),
    # shapes
    "view": (lambda t: t.view(6, -1), (x(2, 3, 4),)),
    "reshape_of_permuted": (lambda t: t.permute(2, 0, 1).reshape(8, 3), (x(2, 3, 4),)),
    "permute_twice": (lambda t: t.permute(2, 0, 1).permute(1, 2, 0) + 1, (x(2, 3, 4),)),
    "transpose": (lambda t: t.transpose(-1, 0), (x(2, 3, 4),)),
    "t": (lambda t: t.t() + t.T, (x(3, 4),)),
    "flatten": (lambda t: t.flatten(1), (x(2, 3, 4),)),
    "unflatten": (lambda t: t.unflatten(1, (2, -1)), (x(2, 6, 4),)),
    "squeeze": (lambda t: (t.squeeze(), t.squeeze(0), t.squeeze((0, 2)), t.squeeze(1)), (x(1, 3, 1, 4),)),
    "unsqueeze": (lambda t: (t.unsqueeze(0), t.unsqueeze(-1), t[:, None]), (x(3, 4),)),
    "expand": (lambda t: t.expand(2, 3, -1) + 1, (x(3, 1, 4)[:1],)),
    "expand_as_it_is": (lambda t: t.expand(3, 4) + 1, (x(3, 4),)),
    "repeat": (lambda t: t.repeat(2, 1, 3), (x(3, 4),)),
    "repeat_interleave": (lambda t: t.repeat_interleave(2, 1), (x(3, 4),)),
    "slice": (lambda t: (t[1:3], t[:, -2:], t[:, ::2], t[..., :-1], t[:, 1:100]), (x(4, 6),)),
    "select": (lambda t: (t[1], t[:, -1], t.select(1, 2)), (x(4, 6),)),
    "narrow": (lambda t: t.narrow(1, 2, 3), (x(4, 6),)),
    "split": (lambda t: t.split(4, 1), (x(2, 10),)),
    "split_sizes": (lambda t: t.split([1, 2, 3], 1)[1], (x(2, 6),)),
    "chunk": (lambda t: t.chunk(3, -1), (x(2, 7),)),
    "unbind": (lambda t: t.unbind(1), (x(2, 3),)),
    "cat": (lambda a, b: torch.cat([a, b, a], -1), (x(2, 3), x(2, 1))),
    "cat_mixed": (lambda a, b: torch.cat([a, b]), (x(2, 3), whole(2, 3))),
    "stack": (lambda a, b: torch.stack([a, b], 1), (x(2, 3), x(2, 3))),
    "flip": (lambda t: t.flip(0, 2), (x(2, 3, 4),)),
    "roll": (lambda t: t.roll(2, 1), (x(2, 5),)),
    "pad": (lambda t: F.pad(t, (1, 2, 0, 3), value=1.5), (x(2, 3, 4),)),
    "pad_crop": (lambda t: F.pad(t, (-1, 2)), (x(2, 3, 4),)),
    "pad_ints": (lambda t: F.pad(t, (1, 0), value=7), (whole(3, 4),)),
    "pad_bools": (lambda t: F.pad(t, (1, 0), value=True), (mask(3, 4),)),
    "pad_reflect": (lambda t: F.pad(t, (1, 2), mode="reflect"), (x(2, 3, 4),)),
    "pad_replicate": (lambda t: F.pad(t, (1, 2, 0, 1), mode="replicate"), (x(1, 2, 3, 4),)),
    "pad_circular": (lambda t: F.pad(t, (1, 2), mode="circular"), (x(2, 3, 4),)),
    "pixel_shuffle": (lambda t: F.pixel_shuffle(t, 2), (x(2, 8, 3, 4),)),
    "pixel_unshuffle": (lambda t: F.pixel_unshuffle(t, 2), (x(2, 2, 6, 4),)),
    "channel_shuffle": (lambda t: F.channel_shuffle(t, 2), (x(2, 4, 3, 3),)),
    "clone": (lambda t: t.clone().contiguous() * 2, (x(2, 3),)),
    "channels_last": (lambda t: t.to(memory_format=torch.channels_last) * 2, (x(2, 3, 4, 5),)),
    # indices
    "embedding": (module(lambda: nn.Embedding(10, 4, padding_idx=0)), (whole(3, 5, low=0),)),
    "gather": (lambda t, i: t.gather(1, i), (x(3, 5), whole(3, 2, low=0, high=5))),
    "index_select": (lambda t, i: t.index_select(1, i), (x(3, 5), whole(4, low=0, high=5))),
    "index_one": (lambda t, i: t[i], (x(5, 3), whole(2, 4, low=-5, high=5))),
    "index_later": (lambda t, i: t[:, :, i], (x(2, 3, 5), whole(4, low=0, high=5))),
    "index_two": (lambda t, i, j: t[i, j], (x(5, 4, 3), whole(6, low=0, high=4), whole(6, low=-4, high=4))),
    "index_two_broadcast": (
        lambda t, i, j: t[i[:, None], j],
        (x(5, 4, 3), whole(6, low=0, high=4), whole(2, low=0, high=4)),
    ),
    "index_two_inner": (lambda t, i, j: t[:, i, j], (x(2, 5, 4, 3), whole(6, low=0, high=4), whole(6, low=0, high=4))),
    "index_two_apart": (lambda t, i, j: t[i, :, j], (x(5, 2, 4, 3), whole(6, low=0, high=4), whole(6, low=0, high=4))),
    "index_bools": (lambda t, i: t[i[:, None], i], (mask(4, 4), whole(3, low=0, high=4))),
    "index_int32": (lambda t, i: t[i], (x(5, 3), whole(4, low=0, high=4).int())),
    "index_put": (lambda t, i, v: t.index_put((i,), v), (x(5, 3), torch.tensor([0, 3]), x(2, 3))),
    "index_put_number": (lambda t, i: t.index_put((i,), torch.tensor(7.0)), (x(5, 3), torch.tensor([0, 3]))),
    "index_put_two": (lambda t, i, v: t.index_put((i, i), v), (x(5, 4), torch.tensor([0, 3]), x(2))),
    "index_put_inner": (assigned_inner, (x(2, 5, 3), torch.tensor([0, 3]), x(2, 2, 3))),
    "index_put_accumulate": (
        lambda t, i, v: t.index_put((i,), v, accumulate=True),
        (x(5, 3), torch.tensor([3, 3]), x(2, 3)),
    ),
    "scatter": (lambda t, i, v: t.scatter(1, i, v), (x(3, 5), torch.tensor([[0], [4], [2]]), x(3, 1))),
    "scatter_number": (lambda t, i: t.scatter(1, i, 2.0), (x(3, 5), torch.tensor([[0], [4], [2]]))),
    "scatter_add": (lambda t, i, v: t.scatter_add(1, i, v), (x(3, 5), torch.tensor([[0, 0]] * 3), x(3, 2))),
    "slice_scatter": (lambda t, v: torch.slice_scatter(t, v, 1, 1, 3), (x(3, 5), x(3, 2))),
    "slice_scatter_of_nothing": (lambda t, v: torch.slice_scatter(t, v, 1, 3, 2) + 1, (x(3, 5), x(3, 0))),
    "select_scatter": (lambda t, v: torch.select_scatter(t, v, 1, -1), (x(3, 5), x(3))),
    "tril_triu": (lambda t: (t.tril(), t.triu(1), t.tril(-1)), (x(4, 5),)),
    "one_hot": (lambda i: F.one_hot(i, 5).float(), (whole(4, low=0, high=5),)),
    # creation
    "constants": (
        lambda t: (t + torch.ones(3), torch.zeros(2, 3) + t, torch.full_like(t, 3) * t, torch.arange(3) + t),
        (x(2, 3),),
    ),
    "likes": (lambda t: (torch.ones_like(t), torch.zeros_like(t, dtype=torch.long), t.new_full((2,), 3.0)), (x(2, 3),)),
    "arange_step": (lambda t: t + torch.arange(1, 7, 2) + torch.arange(0.0, 1.5, 0.5), (x(2, 3),)),
    "output_is_input": (lambda t: (t, t, t + 1), (x(2, 3),)),
}  # fmt: skip


def check(results: list[np.ndarray], expected: Any, tolerance: float) -> None:
    flat = torch.utils._pytree.tree_leaves(expected)
    assert len(results) == len(flat)
    for result, reference in zip(results, flat, strict=True):
        wanted = reference.detach().numpy()
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        scale = float(np.abs(wanted).max(initial=0, where=np.isfinite(wanted))) if wanted.dtype != bool else 1.0
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=min(tolerance, scale * tolerance))


BATCHES = Batches(CASES)


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's remark on its own copy
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    function, args = CASES[name]
    half = any(arg.dtype == torch.float16 for arg in args)
    check(BATCHES.run(name), function(*args), 5e-3 if half else 2e-5)


# ---- dynamic shapes: lowered once, called with several sizes ------------------------------------------------------

B, S, LONG = Dim("B", min=2, max=32), Dim("S", min=2, max=32), Dim("LONG", min=4, max=32)

DYNAMIC: dict[str, tuple[Callable[..., Any], list[tuple[torch.Tensor, ...]], Any]] = {
    "linear": (module(lambda: nn.Linear(4, 5)), [(x(3, 4),), (x(7, 4),)], [{0: B}]),
    "mlp_3d": (
        nn.Sequential(module(lambda: nn.Linear(4, 5)), nn.GELU(), module(lambda: nn.LayerNorm(5))),
        [(x(3, 6, 4),), (x(7, 2, 4),)],
        [{0: B, 1: S}],
    ),
    "broadcast": (lambda a, b: a + b * 2, [(x(3, 4), x(3, 1)), (x(9, 4), x(9, 1))], [{0: B}, {0: B}]),
    "flatten": (lambda t: t.flatten(1), [(x(3, 4, 5),), (x(9, 4, 5),)], [{0: B}]),
    "view_heads": (
        lambda t: t.view(t.shape[0], t.shape[1], 2, 4).transpose(1, 2),
        [(x(3, 5, 8),), (x(2, 7, 8),)],
        [{0: B, 1: S}],
    ),
    "view_merged": (lambda t: t.reshape(t.shape[0] * t.shape[1], -1), [(x(3, 5, 8),), (x(2, 7, 8),)], [{0: B, 1: S}]),
    "view_back": (
        lambda t: (t.reshape(-1, 8) * 2).view(t.shape[0], t.shape[1], 2, 4),
        [(x(3, 5, 8),), (x(2, 7, 8),)],
        [{0: B, 1: S}],
    ),
    "permuted_view": (
        lambda t: t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1),
        [(x(3, 5, 8),), (x(2, 7, 8),)],
        [{0: B, 1: S}],
    ),
    "encoder_layer": (
        module(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
        [(x(3, 5, 8),), (x(2, 7, 8),)],
        [{0: B, 1: S}],
    ),
    "attention_causal": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        [(x(2, 3, 5, 4),), (x(4, 3, 7, 4),)],
        [{0: B, 2: S}],
    ),
    "attention_causal_3d": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        [(x(3, 5, 4),), (x(3, 7, 4),), (x(3, 2, 4),)],
        [{1: S}],
    ),
    "attention_causal_other_lengths": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True),
        [(x(1, 3, 5, 4), x(1, 3, 7, 4)), (x(1, 3, 6, 4), x(1, 3, 4, 4))],
        [{2: B}, {2: S}],
    ),
    "attention_causal_grouped": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True),
        [(x(1, 4, 5, 4), x(1, 2, 5, 4)), (x(1, 4, 7, 4), x(1, 2, 7, 4))],
        [{2: S}, {2: S}],
    ),
    "attention_mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m[:, None, None, :]),
        [(x(2, 3, 5, 4), torch.ones(2, 5).bool()), (x(4, 3, 7, 4), torch.ones(4, 7).bool())],
        [{0: B, 2: S}, {0: B, 1: S}],
    ),
    "attention_expanded_mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m[:, None, None, :].expand(-1, 1, m.shape[1], -1)),
        [(x(2, 3, 5, 4), torch.ones(2, 5).bool()), (x(4, 3, 7, 4), torch.ones(4, 7).bool())],
        [{0: B, 2: S}, {0: B, 1: S}],
    ),
    "attention_grouped": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        [(x(2, 6, 5, 4), x(2, 3, 5, 4)), (x(4, 6, 7, 4), x(4, 3, 7, 4))],
        [{0: B, 2: S}, {0: B, 2: S}],
    ),
    "conv": (module(lambda: nn.Conv2d(3, 4, 3, padding=1)), [(x(2, 3, 6, 6),), (x(3, 3, 9, 6),)], [{0: B, 2: S}]),
    "pool": (
        lambda t: F.adaptive_avg_pool2d(F.max_pool2d(t, 2), 1),
        [(x(2, 3, 6, 6),), (x(3, 3, 9, 6),)],
        [{0: B, 2: LONG}],
    ),
    "group_norm": (module(lambda: nn.GroupNorm(2, 4)), [(x(2, 4, 5, 5),), (x(3, 4, 9, 5),)], [{0: B, 2: S}]),
    "cat": (lambda a, b: torch.cat([a, b], 1), [(x(3, 4), x(3, 5)), (x(7, 4), x(7, 2))], [{0: B}, {0: B, 1: S}]),
    "expand": (lambda a, b: a.expand(b.shape[0], 4) + b, [(x(1, 4), x(3, 4)), (x(1, 4), x(7, 4))], [None, {0: B}]),
    "slice_end": (lambda t: t[:, 1:-1], [(x(3, 5),), (x(3, 9),)], [{1: LONG}]),
    "slice_to_size": (lambda a, b: a[: b.shape[0]] + b, [(x(32, 4), x(3, 4)), (x(32, 4), x(7, 4))], [None, {0: B}]),
    "positions": (
        lambda t: t + torch.arange(t.shape[1]) * 2,
        [(x(3, 4),), (x(3, 9),)],
        [{1: S}],
    ),
    "causal_mask": (
        lambda t: t.masked_fill(torch.ones(t.shape[1], t.shape[1]).triu(1).bool(), 0.0),
        [(x(4, 4),), (x(9, 9),)],
        [{0: S, 1: S}],
    ),
    "new_zeros": (lambda t: torch.cat([t.new_zeros(t.shape[0], 2), t], 1), [(x(3, 4),), (x(9, 4),)], [{0: B}]),
    "repeat": (lambda t: t.repeat(2, t.shape[0]), [(x(2, 2),), (x(3, 2),)], [{0: B}]),
    "scale_by_size": (lambda t: t.sum(1) / t.shape[1], [(x(3, 4),), (x(3, 9),)], [{1: S}]),
    "mean": (lambda t: t.mean(1), [(x(3, 4),), (x(3, 9),)], [{1: S}]),
    "squeeze": (lambda t: t.unsqueeze(1).squeeze(1) * 2, [(x(3, 4),), (x(5, 9),)], [{0: B, 1: S}]),
    "embedding": (
        module(lambda: nn.Embedding(10, 4)),
        [(whole(2, 3, low=0),), (whole(5, 7, low=0),)],
        [{0: B, 1: S}],
    ),
    "index_two": (
        lambda t, i: t[torch.arange(t.shape[0]), i],
        [(x(3, 5), torch.tensor([0, 4, 2])), (x(2, 5), torch.tensor([1, 1]))],
        [{0: B}, {0: B}],
    ),
    "flip_and_roll": (lambda t: t.flip(0), [(x(3, 5),), (x(4, 5),)], [{0: B}]),
    "lstm": (module(lambda: nn.LSTM(4, 5, batch_first=True)), [(x(2, 3, 4),), (x(5, 3, 4),)], [{0: B}]),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_equals_eager_at_every_size(name: str) -> None:
    function, calls, shapes = DYNAMIC[name]
    program = edge(Function(function), calls[0], (tuple(shapes),))
    assert declined(program) == {}
    lowered = Lowered(program)
    for args in calls:
        check(lowered(*args), function(*args), 2e-5)


# ---- dtypes: whatever a row of the table admits, onnxruntime runs --------------------------------------------------

DTYPES = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)

I = torch.tensor([[1, 0, 2], [2, 2, 0]])  # noqa: E741


def with_itself(name: str) -> Callable[[torch.Tensor], Any]:
    operator = getattr(torch, name)
    return lambda t: operator(t, t)


PAIRWISE = """add sub mul div maximum minimum pow remainder fmod floor_divide logical_and logical_or logical_xor
bitwise_and bitwise_or bitwise_xor"""
REDUCTIONS = ("sum", "prod", "max", "min", "amax", "amin", "mean", "argmax", "argmin", "any", "all", "var", "std")

OF_ANY_DTYPE: dict[str, Callable[[torch.Tensor], Any]] = {
    **{name: getattr(torch, name) for name in UNARY.split()},
    **{name: with_itself(name) for name in (*PAIRWISE.split(), *COMPARISONS)},
    **{name: getattr(torch, name) for name in REDUCTIONS if not name.startswith("am")},
    **{f"{name}_dim": partial(getattr(torch, name), dim=1) for name in (*REDUCTIONS, "cumsum", "logsumexp", "sort")},
    "logical_not": torch.logical_not,
    "bitwise_not": torch.bitwise_not,
    "clamp": lambda t: t.clamp(1, 2),
    "clamp_tensor": lambda t: t.clamp(t, t),
    "where": lambda t: torch.where(I > 0, t, t),
    "masked_fill": lambda t: t.masked_fill(I > 0, 1),
    "topk": lambda t: t.topk(2),
    "softmax": lambda t: t.softmax(1),
    "matmul": lambda t: t @ t.T,
    "linear": lambda t: F.linear(t, t),
    "addmm": lambda t: torch.addmm(t[0, :2], t, t.T),
    "relu": F.relu,
    "hardtanh": F.hardtanh,
    "view": lambda t: t.reshape(3, 2),
    "permute": lambda t: t.permute(1, 0),
    "expand": lambda t: t.expand(4, 2, 3),
    "repeat": lambda t: t.repeat(2, 2),
    "slice": lambda t: t[:, ::2],
    "select": lambda t: t[:, 1],
    "split": lambda t: t.split(2, 1),
    "unbind": lambda t: t.unbind(0),
    "cat": lambda t: torch.cat([t, t]),
    "flip": lambda t: t.flip(0),
    "pad": lambda t: F.pad(t, (1, 1), value=1),
    "pad_reflect": lambda t: F.pad(t[None], (1, 1), mode="reflect"),
    "pad_replicate": lambda t: F.pad(t[None], (1, 1), mode="replicate"),
    "embedding": lambda t: F.embedding(I, t.expand(3, 2, 3)[:, 0]),
    "gather": lambda t: t.gather(1, I),
    "index_select": lambda t: t.index_select(1, I[0]),
    "index": lambda t: t[I.clamp(max=1), I],
    "index_put": lambda t: t.index_put((I[1, 2:],), t[:1] + t[1:]),
    "index_put_accumulate": lambda t: t.index_put((I[1, 2:],), t[:1], accumulate=True),
    "scatter": lambda t: t.scatter(1, torch.tensor([[0], [2]]), t[:, 1:2]),
    "scatter_number": lambda t: t.scatter(1, torch.tensor([[0], [2]]), 1),
    "scatter_add": lambda t: t.scatter_add(1, I, t),
    "slice_scatter": lambda t: torch.slice_scatter(t, t[:, :2], 1, 1, 3),
    "tril": torch.tril,
    "full_like": lambda t: torch.full_like(t, 1),
    "cast_to_float": lambda t: t.float(),
    "cast_to_bool": lambda t: t.bool(),
    "cast_to_int": lambda t: t.int(),
    "max_pool2d": lambda t: F.max_pool2d(t[None], 2, 1),
    "norm": lambda t: torch.linalg.vector_norm(t, dim=1),
}  # fmt: skip


def example(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[1, 3, 2], [2, 1, 3]]).to(dtype)


def torch_has(name: str, dtype: torch.dtype) -> bool:
    """Whether eager knows the operator on this dtype, with results that can be compared."""
    try:
        results = OF_ANY_DTYPE[name](example(dtype))
    except (RuntimeError, NotImplementedError, IndexError):
        return False
    leaves = torch.utils._pytree.tree_leaves(results)
    return all(bool(leaf.isfinite().all()) for leaf in leaves if leaf.is_floating_point())


def of_dtypes(name: str, dtypes: Sequence[torch.dtype]) -> ExportedProgram:
    """The operator on each of these, in one program."""
    function = OF_ANY_DTYPE[name]
    return edge(Function(lambda *args: [function(arg) for arg in args]), tuple(map(example, dtypes)))


@pytest.mark.parametrize("name", OF_ANY_DTYPE)
def test_a_dtype_is_declined_or_runs(name: str) -> None:
    dtypes = [dtype for dtype in DTYPES if torch_has(name, dtype)]
    program = of_dtypes(name, dtypes)
    reasons = declined(program)
    assert all(reasons.values())  # never an empty one
    if reasons:
        left = set[int]().union(*(arguments_of(program, node) for node in reasons))
        dtypes = [dtype for number, dtype in enumerate(dtypes) if number not in left]
        program = of_dtypes(name, dtypes)
        assert declined(program) == {}
    results = iter(Lowered(program)(*map(example, dtypes)) if dtypes else ())
    for dtype in dtypes:
        expected = OF_ANY_DTYPE[name](example(dtype))
        own = list(islice(results, len(torch.utils._pytree.tree_leaves(expected))))
        check(own, expected, 5e-3 if dtype == torch.float16 else 2e-5)
    assert not list(results)
