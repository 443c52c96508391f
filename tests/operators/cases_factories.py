"""Tensors from nothing: ranges, constants, uninitialised and random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.operators.case import ALL, FLOATS, NUMBERS, Case, call, function, tensor

aten = torch.ops.aten


def factory_cases() -> Iterator[Case]:
    for dtype in ALL:
        kind: Any = getattr(torch, dtype)
        yield call("aten::full.out", dtype, aten.full.default, [2, 3], 1, dtype=kind)
        yield call("aten::full_like.out", dtype, aten.full_like.default, tensor(2, 3, dtype=dtype), 1)
        yield call("aten::ones.out", dtype, aten.ones.default, [2, 3], dtype=kind)
        yield call("aten::zeros.out", dtype, aten.zeros.default, [2, 3], dtype=kind)
        yield call("aten::scalar_tensor.out", dtype, aten.scalar_tensor.default, 1, dtype=kind)
        yield call("aten::fill.Scalar_out", dtype, aten.fill.Scalar, tensor(2, 3, dtype=dtype), 1)
        yield call("aten::fill.Tensor_out", dtype, aten.fill.Tensor, tensor(2, 3, dtype=dtype), tensor(dtype=dtype))
        yield _filled(dtype, kind)
        yield _filled_in_channels_last(dtype, kind)
    for dtype in NUMBERS:
        kind = getattr(torch, dtype)
        yield call("aten::arange.out", dtype, aten.arange.default, 5, dtype=kind)
        yield call("aten::arange.start_out", dtype, aten.arange.start_step, 1, 9, 2, dtype=kind)
    yield call("aten::arange.out", "float end", aten.arange.default, 4.5)
    yield call("aten::arange.out", "nothing", aten.arange.default, 0)
    yield call("aten::arange.start_out", "downwards", aten.arange.start_step, 5, -3, -2)
    yield call("aten::arange.start_out", "float step", aten.arange.start_step, 0.5, 2.6, 0.3)
    yield call("aten::arange.start_out", "nothing", aten.arange.start_step, 3, 3, 1)
    for number in (2.7, float("inf"), float("nan"), True):
        yield call("aten::full.out", f"{number} in float32", aten.full.default, [3], number, dtype=torch.float32)
        yield call("aten::full_like.out", f"{number} in float32", aten.full_like.default, tensor(3), number)
    yield call("aten::full.out", "0-d", aten.full.default, [], 2.5)
    yield call("aten::full.out", "empty", aten.full.default, [0, 2], 2.5)
    yield call("aten::full_like.out", "dtype", aten.full_like.default, tensor(3), 2, dtype=torch.int64)
    yield call("aten::fill.Scalar_out", "2.7 in int64", aten.fill.Scalar, tensor(3, dtype="int64"), 2.7)
    yield call("aten::fill.Tensor_out", "float32 in int32", aten.fill.Tensor, tensor(3, dtype="int32"), tensor(seed=3))
    yield call("aten::scalar_tensor.out", "-inf", aten.scalar_tensor.default, float("-inf"), dtype=torch.float32)
    yield call("aten::zeros.out", "0-d", aten.zeros.default, [])
    yield call("aten::ones.out", "empty", aten.ones.default, [2, 0])
    for dtype in FLOATS:
        kind = getattr(torch, dtype)
        count = 100_000 if dtype in ("float16", "bfloat16") else 64  # halves: enough for some that would round to 1
        yield _random("aten::rand.out", dtype, lambda k=kind, n=count: _from_0_to_1(aten.rand.default([n], dtype=k)))
        yield _random("aten::randn.out", dtype, lambda k=kind: _about_normal(aten.randn.default([4096], dtype=k)))


def _filled(variant: str, dtype: torch.dtype) -> Case:
    """What uninitialised memory holds nobody knows: it is overwritten."""

    def body() -> torch.Tensor:
        filled: torch.Tensor = aten.fill.Scalar(aten.empty.memory_format([2, 3], dtype=dtype), 1)
        return filled

    return function("aten::empty.out", variant, body, keep=[aten.empty.memory_format, aten.fill.Scalar])


def _filled_in_channels_last(variant: str, dtype: torch.dtype) -> Case:
    def body() -> torch.Tensor:
        empty = aten.empty.memory_format([2, 3, 4, 2], dtype=dtype, memory_format=torch.channels_last)
        filled: torch.Tensor = aten.fill.Scalar(empty, 1)
        return filled

    return function(
        "dim_order_ops::_empty_dim_order.out", variant, body, keep=[aten.empty.memory_format, aten.fill.Scalar]
    )


def _random(operator: str, dtype: str, body: Callable[[], Any]) -> Case:
    return function(operator, dtype, body)


def _from_0_to_1(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Random values differ from run to run: all lie in [0, 1), and they are not all the same."""
    return ((x < 0) | (x >= 1)).any(), (x != x[0]).any()


def _about_normal(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of 4096 normal numbers is within 0.2 of 0, and their variance within 0.3 of 1, but for one in 10^20."""
    x = x.float()
    return x.mean().abs() < 0.2, (x.var() - 1).abs() < 0.3
