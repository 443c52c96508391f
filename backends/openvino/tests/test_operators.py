"""Operators against eager, a row each; each is lowered as one delegate, with nothing left over."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from backends.openvino.tests.harness import as_module, check, compare, declined, load, lower
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from delegraph.aot.authoring import as_array
from delegraph.errors import InvalidArgument

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def above_zero(*shape: int) -> torch.Tensor:
    return x(*shape).abs() + 0.1


INTS = torch.tensor([[3, -7, 0], [9, 2, -1]], dtype=torch.int32)
BYTES = torch.arange(256, dtype=torch.uint8)
BOOLS = torch.tensor([[True, False, True], [False, False, True]])

ONE_OPERAND = [
    *(torch.abs, torch.neg, torch.exp, torch.sin, torch.cos, torch.tan, torch.tanh, torch.sinh, torch.cosh),
    *(torch.asin, torch.acos, torch.atan, torch.asinh, torch.atanh, torch.sigmoid, torch.erf, torch.relu),
    *(torch.floor, torch.ceil, torch.round, torch.trunc, torch.sign, torch.expm1, torch.reciprocal, torch.isnan),
    *(F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.selu, F.elu, F.leaky_relu, F.softplus, F.relu6),
]

TABLE: dict[str, Case] = {
    "acosh": (torch.acosh, (above_zero(2, 3) + 1,)),
    "log": (torch.log, (above_zero(2, 3),)),
    "log2": (torch.log2, (above_zero(2, 3),)),
    "log10": (torch.log10, (above_zero(2, 3),)),
    "log1p": (torch.log1p, (above_zero(2, 3),)),
    "sqrt": (torch.sqrt, (above_zero(2, 3),)),
    "rsqrt": (torch.rsqrt, (above_zero(2, 3),)),
    "gelu tanh": (lambda a: F.gelu(a, approximate="tanh"), (x(2, 3),)),
    "elu alpha": (lambda a: F.elu(a, 0.3), (x(2, 3),)),
    "prelu": (torch.nn.PReLU(3), (x(2, 3, 4),)),
    "hardtanh": (lambda a: F.hardtanh(a, -0.3, 0.4), (x(2, 3),)),
    "clamp below": (lambda a: a.clamp(min=0.2), (x(2, 3),)),
    "clamp crossed": (lambda a: a.clamp(0.4, 0.2), (x(2, 3),)),
    "clamp int": (lambda a: a.clamp(-2, 5), (INTS,)),
    "clamp tensors": (torch.clamp, (x(2, 3), -above_zero(3), above_zero(2, 3))),
    "isinf": (torch.isinf, (torch.tensor([1.0, float("inf"), float("nan"), -float("inf")]),)),
    "add": (torch.add, (x(2, 3), x(3))),
    "add alpha": (lambda a, b: torch.add(a, b, alpha=3), (x(2, 3), x(2, 1))),
    "add number": (lambda a: a + 2, (x(2, 3),)),
    "add ints": (torch.add, (INTS, INTS)),
    "sub": (torch.sub, (x(2, 3), x(3))),
    "rsub": (lambda a: 2 - a, (x(2, 3),)),
    "mul": (torch.mul, (x(2, 3), x(3))),
    "mul of int and float": (lambda a, b: a * b, (INTS, x(2, 3))),
    "bitwise and": (lambda a: a & 15, (BYTES,)),
    "bitwise or": (torch.bitwise_or, (INTS, INTS.flip(0))),
    "bitwise xor": (torch.bitwise_xor, (INTS, INTS.flip(0))),
    "bytes divided": (lambda a: torch.div(a, 16, rounding_mode="floor"), (BYTES,)),
    "bytes divided by bytes": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (BYTES, BYTES.flip(0) // 2 + 1)),
    "div": (torch.div, (x(2, 3), above_zero(3))),
    "div ints": (torch.div, (INTS, INTS + 20)),
    "pow": (torch.pow, (above_zero(2, 3), x(2, 3))),
    "pow number": (lambda a: a**3, (x(2, 3),)),
    "maximum": (torch.maximum, (x(2, 3), x(3))),
    "minimum": (torch.minimum, (INTS, INTS.flip(0))),
    "eq": (lambda a: a == 2, (INTS,)),
    "ne": (torch.ne, (INTS, INTS.flip(1))),
    "lt": (torch.lt, (x(2, 3), x(3))),
    "le of two dtypes": (lambda a, b: a <= b, (INTS, x(2, 3))),
    "gt fraction": (lambda a: a > 2.5, (INTS,)),
    "ge bools": (torch.ge, (BOOLS, BOOLS.flip(0))),
    "and": (torch.logical_and, (BOOLS, BOOLS.flip(0))),
    "or": (lambda a, b: a | b, (BOOLS, BOOLS.flip(0))),
    "xor": (torch.logical_xor, (BOOLS, BOOLS.flip(0))),
    "not": (lambda a: ~a, (BOOLS,)),
    "where": (torch.where, (BOOLS, x(2, 3), x(3))),
    "where number": (lambda c, a: torch.where(c, a, 0.5), (BOOLS, x(2, 3))),
    "masked_fill": (lambda a, c: a.masked_fill(c, -1e9), (x(2, 3), BOOLS)),
    "cast to int": (lambda a: a.to(torch.int32), (x(2, 3) * 9,)),
    "cast to bool": (lambda a: a.to(torch.bool), (torch.tensor([0.0, 0.3, -0.2, float("nan"), 2.0]),)),
    "cast to half": (lambda a: a.half(), (x(2, 3),)),
    "cast of wide ints": (lambda a: a.to(torch.bool), (torch.tensor([0, 2**40, 1, -(2**33)]),)),
    # ---- made
    "full": (lambda a: a + torch.full((2, 3), 0.5), (x(2, 3),)),
    "full_like of wide integers": (lambda a: torch.full_like(a, 3) + torch.ones_like(a), (INTS.long(),)),
    "full_like": (lambda a: torch.full_like(a, 3) * a, (x(2, 3),)),
    "ones, zeros": (lambda a: torch.zeros(2, 3) - torch.ones(3) * a, (x(2, 3),)),
    "arange": (lambda a: a * torch.arange(3), (x(2, 3),)),
    "arange of ints": (lambda a: a[:, torch.arange(3) + 1], (x(2, 5),)),
    # ---- moved
    "view": (lambda a: a.view(3, -1), (x(2, 3, 4),)),
    "permute": (lambda a: a.permute(2, 0, -2), (x(2, 3, 4),)),
    "transpose": (lambda a: a.transpose(0, -1), (x(2, 3, 4),)),
    "t": (lambda a: a.t(), (x(2, 3),)),
    "unsqueeze": (lambda a: a.unsqueeze(-1), (x(2, 3),)),
    "squeeze": (lambda a: a.squeeze(1).squeeze(), (x(2, 1, 3, 1),)),
    "expand": (lambda a: a.expand(4, -1, 3), (x(2, 1),)),
    "repeat": (lambda a: a.repeat(2, 1, 3), (x(2, 3),)),
    "cat": (lambda a, b: torch.cat([a, b, a], -1), (x(2, 3), x(2, 1))),
    "stack": (lambda a, b: torch.stack([a, b], 1), (x(2, 3), x(2, 3))),
    "slice": (lambda a: a[1:, 5:-1:2, -2:], (x(3, 9, 4),)),
    "select": (lambda a: a[:, -1], (x(2, 3, 4),)),
    "split": (lambda a: torch.split(a, [1, 2], -1)[::-1], (x(2, 3),)),
    "chunk": (lambda a: a.chunk(3, 1), (x(2, 9),)),
    "unbind": (lambda a: torch.unbind(a, 1), (x(2, 3),)),
    "flip": (lambda a: a.flip(0, -1), (x(2, 3, 4),)),
    "roll": (lambda a: torch.roll(a, 2, 1), (x(2, 5),)),
    "pad": (lambda a: F.pad(a, (1, 2, 0, 1), value=0.5), (x(2, 3, 4),)),
    "pad negative": (lambda a: F.pad(a, (-1, 2)), (x(2, 3, 4),)),
    "pad reflect": (lambda a: F.pad(a, (1, 2, 2, 1), "reflect"), (x(1, 2, 3, 4),)),
    "pad replicate": (lambda a: F.pad(a, (1, 2, 2, 1), "replicate"), (x(1, 2, 3, 4),)),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), (x(1, 8, 3, 4),)),
    "pixel_unshuffle": (lambda a: F.pixel_unshuffle(a, 2), (x(1, 2, 4, 6),)),
    "channel_shuffle": (lambda a: F.channel_shuffle(a, 2), (x(1, 6, 2, 2),)),
    "tril": (lambda a: torch.tril(a, -1), (x(3, 4),)),
    "triu": (lambda a: torch.triu(a, 1), (x(2, 3, 4),)),
    "bool moves": (lambda a: a.t().reshape(2, 3), (BOOLS,)),
    # ---- picked
    "embedding": (torch.nn.Embedding(9, 4), (torch.tensor([[1, 8], [0, 3]]),)),
    "embedding of moved": (lambda i, w: F.embedding(i.view(-1)[1:], w), (torch.tensor([[1, 8], [0, 3]]), x(9, 4))),
    "index_select": (lambda a: torch.index_select(a, 1, torch.tensor([2, 0])), (x(2, 3),)),
    "gather": (lambda a, i: torch.gather(a, 1, i), (x(3, 4), torch.tensor([[0, 3], [1, 1]]))),
    "index": (lambda a, i: a[i], (x(5, 3), torch.tensor([[4, -1], [0, 2]]))),
    "index behind": (lambda a, i: a[:, i], (x(2, 5, 3), torch.tensor([4, 0, -5]))),
    "index by two": (lambda a, i, j: a[i, j], (x(4, 5, 3), torch.tensor([[3], [-1]]), torch.tensor([0, 2]))),
    "index by two behind": (lambda a, i, j: a[:, i, j], (x(2, 4, 5, 3), torch.tensor([3, 0]), torch.tensor([0, -2]))),
    # ---- reduced
    "sum": (lambda a: a.sum(), (x(2, 3),)),
    "sum dims": (lambda a: a.sum((0, -1), keepdim=True), (x(2, 3, 4),)),
    "sum of bools": (lambda a: a.sum(1, dtype=torch.int32), (BOOLS,)),
    "mean": (lambda a: a.mean((0, 2)), (x(2, 3, 4),)),
    "mean of a scalar": (lambda a: a.mean(0), (torch.tensor(2.5),)),
    "a scalar, flipped": (lambda a: a.flip(0) * 2, (torch.tensor(2.5),)),
    "mean of all": (lambda a: a.mean(), (x(2, 3, 4),)),
    "prod": (lambda a: a.prod(1), (x(2, 3),)),
    "amax": (lambda a: a.amax((0, 2)), (x(2, 3, 4),)),
    "amin": (lambda a: a.amin(1, keepdim=True), (INTS,)),
    "max": (lambda a: a.max(), (x(2, 3),)),
    "max dim": (lambda a: a.max(1), (x(2, 3),)),
    "min dim": (lambda a: a.min(0, keepdim=True), (x(2, 3),)),
    "any": (lambda a: a.any(1), (BOOLS,)),
    "all": (lambda a: a.all(), (x(2, 3),)),
    "var": (lambda a: a.var((0, 2)), (x(2, 3, 4),)),
    "var of all of them": (lambda a: a.var(1, correction=0, keepdim=True), (x(2, 3),)),
    "std": (lambda a: a.std(1), (x(2, 5),)),
    "cumsum": (lambda a: a.cumsum(1), (x(2, 3),)),
    "argmax": (lambda a: a.argmax(1), (x(2, 3),)),
    "argmax of equals": (lambda a: a.argmax(1, keepdim=True), (torch.tensor([[1.0, 2.0, 2.0], [5.0, 5.0, 5.0]]),)),
    "argmin of all": (lambda a: a.argmin(), (x(2, 3),)),
    "topk": (lambda a: a.topk(3, 1), (x(2, 7),)),
    "topk smallest": (lambda a: a.topk(2, 0, largest=False), (x(5, 3),)),
    "sort": (lambda a: a.sort(1, descending=True), (x(2, 7),)),
    "softmax": (lambda a: a.softmax(-1), (x(2, 7),)),
    "log_softmax": (lambda a: a.log_softmax(0), (x(2, 7),)),
    # ---- products
    "mm": (torch.mm, (x(2, 3), x(3, 4))),
    "bmm": (torch.bmm, (x(2, 3, 4), x(2, 4, 5))),
    "matmul": (torch.matmul, (x(2, 1, 3, 4), x(5, 4, 2))),
    "mv": (torch.mv, (x(3, 4), x(4))),
    "dot": (torch.dot, (x(4), x(4) + 1)),
    "addmm": (lambda b, p, q: torch.addmm(b, p, q, beta=0.5, alpha=2), (x(4), x(2, 3), x(3, 4))),
    "linear": (torch.nn.Linear(30, 40), (x(2, 3, 30),)),
    "linear without bias": (torch.nn.Linear(3, 4, bias=False), (x(3),)),
    "attention": (F.scaled_dot_product_attention, (x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 4))),
    "attention causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (x(2, 3, 5, 8), x(2, 3, 5, 8) + 1, x(2, 3, 5, 8)),
    ),
    "attention scaled and masked": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.2),
        (x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8), x(2, 1, 5, 7)),
    ),
    "attention masked by bools": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > -1),
        (x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8), x(2, 1, 5, 7)),
    ),
    "attention with blind rows": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, (m > -1) & (torch.arange(5) != 2)[:, None]),
        (x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8), x(2, 1, 5, 7)),
    ),
    "attention with blind rows of floats": (
        lambda q, k, v, m: F.scaled_dot_product_attention(
            q, k, v, torch.where((torch.arange(5) != 2)[:, None], m, float("-inf"))
        ),
        (x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8), x(2, 1, 5, 7)),
    ),
    "attention that sees everything": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.arange(5)[:, None] + torch.arange(7) >= 0),
        (x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 8)),
    ),
    "attention causal without a batch": (
        lambda q, k: F.scaled_dot_product_attention(q, k, q, is_causal=True, scale=0.3),
        (x(5, 8), x(5, 8) + 1),
    ),
    "attention over long rows without a batch": (
        lambda q, m: F.scaled_dot_product_attention(q, q + 1, q, m > 0),
        (x(1030, 4), x(1030, 1030)),
    ),
    "attention over long rows": (
        lambda q, m: F.scaled_dot_product_attention(q, q + 1, q, m > 0),
        (x(1, 1, 1030, 4), x(1030, 1030)),
    ),
    # ---- images
    "conv1d": (torch.nn.Conv1d(3, 4, 3, stride=2, padding=1), (x(2, 3, 9),)),
    "conv2d": (torch.nn.Conv2d(3, 4, (3, 2), (2, 1), (1, 0), dilation=(1, 2)), (x(2, 3, 9, 8),)),
    "conv2d groups": (torch.nn.Conv2d(4, 8, 3, groups=2), (x(1, 4, 6, 6),)),
    "conv2d depthwise": (torch.nn.Conv2d(6, 6, 3, groups=6, bias=False), (x(1, 6, 6, 6),)),
    "conv2d same": (torch.nn.Conv2d(3, 4, (3, 5), padding="same"), (x(1, 3, 9, 8),)),
    "conv3d": (torch.nn.Conv3d(2, 3, 2), (x(1, 2, 4, 5, 6),)),
    "conv_transpose1d": (torch.nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1), (x(2, 3, 5),)),
    "conv_transpose2d": (torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), (x(1, 4, 5, 4),)),
    "batch_norm": (torch.nn.BatchNorm2d(3), (x(2, 3, 4, 5),)),
    "batch_norm plain": (torch.nn.BatchNorm1d(3, affine=False), (x(2, 3),)),
    "layer_norm": (torch.nn.LayerNorm((3, 40)), (x(2, 3, 40),)),
    "layer_norm plain": (torch.nn.LayerNorm(4, elementwise_affine=False), (x(2, 3, 4),)),
    "group_norm": (torch.nn.GroupNorm(2, 6), (x(2, 6, 3, 3),)),
    "instance_norm": (torch.nn.InstanceNorm2d(3), (x(2, 3, 4, 5),)),
    "rms_norm": (torch.nn.RMSNorm(7), (x(2, 7),)),
    "max_pool1d": (torch.nn.MaxPool1d(2), (x(1, 2, 7),)),
    "max_pool2d": (torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True), (x(1, 2, 8, 7),)),
    "max_pool2d dilated": (torch.nn.MaxPool2d(2, 1, dilation=2), (x(1, 2, 8, 7),)),
    "avg_pool2d": (torch.nn.AvgPool2d(3, 2, 1), (x(1, 2, 8, 7),)),
    "avg_pool2d uncounted": (torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (x(1, 2, 8, 7),)),
    "adaptive_avg_pool2d": (torch.nn.AdaptiveAvgPool2d((2, 3)), (x(1, 2, 8, 7),)),
    "global average": (torch.nn.AdaptiveAvgPool2d(1), (x(1, 2, 8, 7),)),
    "upsample nearest": (torch.nn.Upsample(scale_factor=2), (x(1, 2, 3, 4),)),
    "upsample nearest to a size": (torch.nn.Upsample((5, 7)), (x(1, 2, 3, 4),)),
    "upsample bilinear": (torch.nn.Upsample(scale_factor=1.5, mode="bilinear"), (x(1, 2, 4, 6),)),
    "upsample by corners": (torch.nn.Upsample((5, 7), mode="bilinear", align_corners=True), (x(1, 2, 3, 4),)),
    "upsample bicubic": (torch.nn.Upsample(scale_factor=1.7, mode="bicubic"), (x(1, 2, 5, 4),)),
    "upsample bicubic by corners": (torch.nn.Upsample((3, 9), mode="bicubic", align_corners=True), (x(1, 2, 5, 4),)),
    "upsample trilinear": (torch.nn.Upsample(scale_factor=1.7, mode="trilinear"), (x(1, 2, 3, 4, 5),)),
    "upsample nearest by a border": (torch.nn.Upsample(scale_factor=2.4), (torch.arange(31.0).view(1, 1, 31),)),
    "upsample nearest-exact by a border": (
        torch.nn.Upsample(scale_factor=2.3, mode="nearest-exact"),
        (torch.arange(24.0).view(1, 1, 1, 24),),
    ),
    # ---- recurrent
    "lstm": (torch.nn.LSTM(3, 5, 2, batch_first=True), (x(2, 4, 3),)),
    "lstm both ways": (torch.nn.LSTM(3, 5, bidirectional=True), (x(4, 2, 3),)),
    "lstm without bias": (torch.nn.LSTM(3, 5, bias=False), (x(4, 2, 3),)),
    "gru": (torch.nn.GRU(3, 5, 2, batch_first=True), (x(2, 4, 3),)),
}


@pytest.mark.parametrize("function", ONE_OPERAND, ids=lambda function: function.__name__)
def test_one_operand(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([-0.9, -0.5, 0.0, 0.3, 0.5, 0.99]))


@pytest.mark.parametrize("name", TABLE)
def test_operator(name: str) -> None:
    function, args = TABLE[name]
    check(function, *args, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_an_lstm_that_projects_its_state_is_taken_in_parts() -> None:
    check(torch.nn.LSTM(3, 5, proj_size=2), x(4, 2, 3))


NARROW_TOO = [name for name, (_, args) in TABLE.items() if any(arg.is_floating_point() for arg in args)]
NOT_NARROW = {
    "masked_fill": "its number is none of float16",
    "cast to half": "nothing is left to compute",
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [*NARROW_TOO, *(function.__name__ for function in ONE_OPERAND)])
def test_operator_of_narrow_floats(name: str, dtype: torch.dtype) -> None:
    """One delegate, results of the dtype, and near to what is computed in float32 from the same numbers."""
    if name in NOT_NARROW and dtype == torch.float16:
        pytest.skip(NOT_NARROW[name])
    functions: dict[str, Case] = {function.__name__: (function, (x(2, 3),)) for function in ONE_OPERAND}
    function, wide = (TABLE | functions)[name]
    args = tuple(arg.to(dtype) if arg.is_floating_point() else arg for arg in wide)
    narrow = copy.deepcopy(as_module(function)).to(dtype)
    lowered = lower(narrow, args)
    assert declined(lowered) == {}
    results = pytree.tree_leaves(load(lowered)(*map(as_array, args)))
    same = copy.deepcopy(narrow).float()
    wanted = same(*(arg.float() if arg.is_floating_point() else arg for arg in args))
    for result, own, expected in zip(results, *map(pytree.tree_leaves, (narrow(*args), wanted)), strict=True):
        assert str(result.dtype) == str(own.dtype).removeprefix("torch.")
        number, reference = result.astype(np.float64), expected.detach().double().numpy()
        size = np.abs(reference[np.isfinite(reference)]).max(initial=1)
        assert np.nanmax(np.abs(number - reference), initial=0) <= 8 * torch.finfo(dtype).eps * size


@pytest.mark.parametrize("wrong", [-1, 8, 2**40])
def test_a_token_that_the_table_has_not_is_an_error(wrong: int) -> None:
    weight, tokens = torch.randn(8, 4), torch.arange(6).view(2, 3)
    program = load(lower(lambda t: F.embedding(t.view(-1), weight), (tokens,)))
    for _ in range(2):  # bound from the second run on
        compare(program(tokens.numpy()), F.embedding(tokens.view(-1), weight))
        told = f"holds {wrong}, but .* has no place {wrong}: it has 8 places, 0 to 7$"
        with pytest.raises(InvalidArgument, match=told):
            program(np.where(tokens.numpy() == 4, wrong, tokens.numpy()))


PAIRS = torch.complex(x(3, 8), x(8, 3).t())
COMPLEX: dict[str, Case] = {
    "fft": (torch.fft.fft, (PAIRS,)),
    "rfft": (torch.fft.rfft, (x(3, 8),)),
    "irfft": (torch.fft.irfft, (PAIRS,)),
    "abs, angle": (lambda a: (a.abs(), a.angle()), (PAIRS,)),
    "arithmetic": (lambda a: a * a.conj() + 1, (PAIRS,)),
    "polar": (lambda a: torch.polar(a.abs(), a), (x(3, 8),)),
    "views": (lambda a: a.clone().view(-1)[3:], (PAIRS,)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_cross_the_border_as_pairs(name: str) -> None:
    function, args = COMPLEX[name]
    check(function, *args, rtol=1e-4)


def test_complex_numbers_of_sizes_of_the_run() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    check(torch.fft.fft, PAIRS, dynamic_shapes=({0: rows},), others=[(torch.cat([PAIRS, PAIRS]),)], rtol=1e-4)
