"""Poolings and their gradients against torch: every dtype that torch has, and the edges of sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType

torch.manual_seed(0)

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
FLOATS = (F32, F64, F16, BF16)
I64 = torch.int64


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=F32 if dtype in (F16, BF16) else dtype).to(dtype)
    return torch.randint(-9, 10, shape).to(dtype)


IMAGE = rand(2, 4, 7, 6)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
VOLUME = rand(2, 3, 5, 7, 6)
LAST_3D = VOLUME.contiguous(memory_format=torch.channels_last_3d)
NANS = IMAGE.masked_fill(torch.rand(IMAGE.shape) < 0.2, math.nan)
NANS_3D = VOLUME.masked_fill(torch.rand(VOLUME.shape) < 0.1, math.nan)
LEVELS = torch.randint(0, 3, (2, 3, 6, 5, 7)).float()  # many equal maxima
INFINITE = torch.full((1, 2, 4, 4, 4), -math.inf)


def pair(dtype: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    return dtype, I64


# fmt: off
# operator: (arguments…, out dtype)
CASES: dict[str, list[tuple[Any, ...]]] = {
    # ---- maximum ----
    "max_pool2d_with_indices.out": [
        (x, [3, 2], [2, 1], [1, 1], [1, 2], ceil, pair(F32)) for x in (IMAGE, LAST, NANS, rand(0, 3, 5, 5))
        for ceil in (False, True)
    ] + [(rand(1, 2, 5, 5, dtype=d), [2], [], [1], [1], False, pair(d)) for d in (*FLOATS, I64, torch.uint8)],
    "max_pool3d_with_indices.out": [
        (x, [3, 2, 2], [2, 1, 2], [1, 0, 1], [1, 2, 1], ceil, pair(F32))
        for x in (VOLUME, LAST_3D, NANS_3D, LEVELS, INFINITE, VOLUME[0], rand(0, 3, 5, 5, 5)) for ceil in (False, True)
    ] + [(rand(1, 2, 5, 5, 4, dtype=d), [2], [], [1], [1], False, pair(d)) for d in (*FLOATS, I64)],
    "adaptive_max_pool2d.out": [
        (x, size, pair(F32)) for x in (IMAGE, LAST, NANS, LEVELS[0], IMAGE[0], rand(0, 3, 5, 5), INFINITE[0])
        for size in ([1, 1], [3, 4], [7, 6], [9, 2], [0, 2])
    ] + [(rand(1, 2, 5, 5, dtype=d), [2, 3], pair(d)) for d in FLOATS],
    "adaptive_max_pool3d.out": [
        (x, size, pair(F32)) for x in (VOLUME, LAST_3D, NANS_3D, LEVELS, VOLUME[0], rand(0, 3, 5, 5, 5), INFINITE)
        for size in ([1, 1, 1], [2, 3, 4], [5, 7, 6])
    ] + [(rand(1, 2, 5, 5, 4, dtype=d), [2, 3, 3], pair(d)) for d in FLOATS],
    "fractional_max_pool2d.output": [
        (x, [2, 3], size, torch.rand(2, 4, 2), pair(F32)) for x in (IMAGE, LAST, NANS)
        for size in ([3, 2], [1, 1], [6, 4])
    ] + [(IMAGE[0], [2, 2], [3, 3], torch.rand(1, 4, 2), pair(F32))]
      + [(rand(2, 3, 9, 8, dtype=d), [2, 2], [4, 5], torch.rand(2, 3, 2).to(d), pair(d)) for d in FLOATS],
    "fractional_max_pool3d.output": [
        (x, [2, 3, 2], size, torch.rand(2, 3, 3), pair(F32)) for x in (VOLUME, LAST_3D, NANS_3D)
        for size in ([3, 2, 4], [1, 1, 1])
    ] + [(VOLUME[0], [2, 2, 2], [3, 3, 3], torch.rand(1, 3, 3), pair(F32))],
    # ---- mean ----
    "avg_pool1d.out": [
        (rand(2, 3, 9), [3], [2], [1], ceil, include) for ceil in (False, True) for include in (False, True)
    ] + [(rand(3, 8), [2])],
    "avg_pool2d.out": [
        (x, [3, 2], [2, 2], [1, 1], ceil, include, divisor)
        for x in (IMAGE, LAST, NANS, IMAGE[0], rand(0, 3, 5, 5)) for ceil in (False, True)
        for include, divisor in ((True, None), (False, None), (True, 5), (False, -2))
    ] + [(rand(1, 2, 5, 5, dtype=d), [2], [1], [1], False, True, None) for d in (*FLOATS, I64)],
    "avg_pool3d.out": [
        (x, [3, 2, 2], [2, 2, 1], [1, 0, 1], ceil, include, divisor)
        for x in (VOLUME, LAST_3D, NANS_3D, VOLUME[0], rand(0, 3, 5, 5, 5)) for ceil in (False, True)
        for include, divisor in ((True, None), (False, None), (True, 5))
    ] + [(rand(1, 2, 5, 5, 4, dtype=d), [2], [], [1], False, False, None) for d in (*FLOATS, I64)],
    "adaptive_avg_pool1d.out": [(rand(2, 3, 7), [n]) for n in (1, 3, 7, 9)] + [(rand(3, 6), [2])],
    "_adaptive_avg_pool2d.out": [
        (x, size) for x in (IMAGE, LAST, NANS, IMAGE[0], rand(0, 3, 5, 5))
        for size in ([1, 1], [3, 4], [7, 6], [7, 3], [9, 2], [0, 2])
    ] + [(rand(1, 2, 5, 4, dtype=d), [2, 2]) for d in FLOATS],
    "_adaptive_avg_pool3d.out": [
        (x, size) for x in (VOLUME, LAST_3D, NANS_3D, VOLUME[0], rand(0, 3, 5, 5, 5))
        for size in ([1, 1, 1], [2, 3, 4], [5, 7, 3], [6, 2, 2])
    ] + [(rand(1, 2, 5, 4, 4, dtype=d), [2, 2, 2]) for d in FLOATS],
    "adaptive_avg_pool2d.out": [(IMAGE, [3, 4])],
    "adaptive_avg_pool3d.out": [(VOLUME, [2, 3, 4])],
    # ---- gradients ----
    "avg_pool2d_backward.grad_input": [
        (rand(2, 4, 4, 4), x, [3, 2], [2, 2], [1, 1], ceil, include, divisor)
        for x, ceil in ((IMAGE, False), (LAST, True))
        for include, divisor in ((True, None), (False, None), (True, 5))
    ] + [(rand(1, 2, 2, 2, dtype=d), rand(1, 2, 5, 5, dtype=d), [2], [], [0], False, True, None) for d in FLOATS],
    "avg_pool3d_backward.grad_input": [
        (rand(2, 3, 3, 3, 7), VOLUME, [3, 2, 2], [2, 2, 1], [1, 0, 1], False, include, divisor)
        for include, divisor in ((True, None), (False, None), (True, 5))
    ],
    "_adaptive_avg_pool2d_backward.out": [
        (rand(2, 4, *size), x) for x in (IMAGE, LAST) for size in ((1, 1), (3, 4), (7, 6), (9, 2))
    ] + [(rand(4, 2, 2), IMAGE[0])] + [(rand(1, 2, 2, 3, dtype=d), rand(1, 2, 5, 4, dtype=d)) for d in FLOATS],
    "_adaptive_avg_pool3d_backward.out": [(rand(2, 3, *size), VOLUME) for size in ((1, 1, 1), (2, 3, 4))],
}
# fmt: on


def _of_indices() -> dict[str, list[tuple[Any, ...]]]:
    """The gradients that need indices: those that the pooling itself gives."""
    aten = torch.ops.aten
    two, three = [[3, 3], [2, 2], [1, 1], [1, 1], True], [[3, 2, 2], [2, 1, 2], [1, 0, 1], [1, 2, 1], False]
    samples = torch.rand(2, 4, 2)
    tables: dict[str, list[tuple[Any, ...]]] = {
        "max_pool2d_with_indices_backward.grad_input": [],
        "adaptive_max_pool2d_backward.grad_input": [],
        "fractional_max_pool2d_backward.grad_input": [],
    }
    for x in (IMAGE, LAST):
        y, i = aten.max_pool2d_with_indices(x, *two)
        tables["max_pool2d_with_indices_backward.grad_input"].append((rand(*y.shape), x, *two, i))
        y, i = aten.adaptive_max_pool2d(x, [3, 4])
        tables["adaptive_max_pool2d_backward.grad_input"].append((rand(*y.shape), x, i))
        y, i = aten.fractional_max_pool2d(x, [2, 2], [3, 4], samples)
        tables["fractional_max_pool2d_backward.grad_input"].append((rand(*y.shape), x, [2, 2], [3, 4], i))
    y, i = aten.max_pool3d_with_indices(VOLUME, *three)
    tables["max_pool3d_with_indices_backward.grad_input"] = [(rand(*y.shape), VOLUME, *three, i)]
    y, i = aten.adaptive_max_pool3d(VOLUME, [2, 3, 4])
    tables["adaptive_max_pool3d_backward.grad_input"] = [(rand(*y.shape), VOLUME, i)]
    y, i = aten.fractional_max_pool3d(VOLUME, [2, 2, 2], [3, 4, 2], torch.rand(2, 3, 3))
    tables["fractional_max_pool3d_backward.grad_input"] = [(rand(*y.shape), VOLUME, [2, 2, 2], [3, 4, 2], i)]
    return tables


CASES |= _of_indices()


@pytest.mark.parametrize(
    ("op", "case"), [pytest.param(op, case, id=f"{op}-{i}") for op in CASES for i, case in enumerate(CASES[op])]
)
def test_as_torch(oracle: Oracle, op: str, case: tuple[Any, ...]) -> None:
    *arguments, last = case
    if isinstance(last, torch.dtype | tuple):
        oracle.check(f"aten::{op}", *arguments, out_dtype=last)
    else:
        oracle.check(f"aten::{op}", *case)


V = np.zeros((1, 2, 5, 5, 5), np.float32)
P = V[0]
I = np.zeros((1, 2, 5, 5, 5), np.int64)  # noqa: E741

# fmt: off
REFUSED: list[tuple[str, list[Any], list[Any], type[Exception], str]] = [
    ("max_pool3d_with_indices.out", [V[0, 0], [2], [1], [0], [1], False], [V, I], InvalidArgument,
     r"argument 'self' must have 4 or 5 dimensions, but has shape \(5, 5, 5\)"),
    ("max_pool3d_with_indices.out", [V, [2, 2], [1], [0], [1], False], [V, I], InvalidArgument,
     r"argument 'kernel_size' must have 1 or 3 values, but is \[2, 2\]"),
    ("max_pool3d_with_indices.out", [V, [6], [1], [0], [1], False], [V, I], InvalidArgument,
     r"is smaller than the window \(6, 6, 6\)"),
    ("avg_pool3d.out", [V, [2], [1], [2], False, True, None], [V], InvalidArgument,
     "argument 'padding'"),
    ("avg_pool3d.out", [V, [2], [1], [0], False, True, 0], [V], InvalidArgument,
     "argument 'divisor_override' must not be zero"),
    ("_adaptive_avg_pool3d.out", [V[..., :0], [1, 1, 1]], [V], InvalidArgument, "has nothing to average"),
    ("_adaptive_avg_pool2d.out", [V[0], [-1, 1]], [V], InvalidArgument,
     "argument 'output_size' must not be negative"),
    ("_adaptive_avg_pool2d.out", [I[0], [1, 1]], [I], InvalidType, "argument 'self' must be floating-point"),
    ("adaptive_max_pool2d.out", [I[0], [1, 1]], [I, I], InvalidType, "argument 'self' must be floating-point"),
    ("adaptive_max_pool3d.out", [P[0], [1, 1, 1]], [V, I], InvalidArgument, "must have 4 or 5 dimensions"),
    ("fractional_max_pool2d.output", [P, [2, 2], [5, 5], np.zeros((2, 5, 2), np.float32)], [P, I], InvalidArgument,
     "is too small for 5 windows of 2"),
    ("fractional_max_pool2d.output", [P, [2, 2], [2, 2], np.zeros((2, 5), np.float32)], [P, I], InvalidArgument,
     "argument 'random_samples' must have shape"),
    ("fractional_max_pool2d.output", [P, [2, 2], [2, 2], np.zeros((2, 5, 2))], [P, I], InvalidType,
     "argument 'random_samples' is float64"),
    ("avg_pool2d_backward.grad_input", [P, P, [2, 2], [2, 2], [0, 0], False, True, None], [P], InvalidArgument,
     "argument 'grad_output' must have shape"),
    ("_adaptive_avg_pool2d_backward.out", [P[:1], P], [P], InvalidArgument, "argument 'grad_output' must have shape"),
    ("adaptive_max_pool2d_backward.grad_input", [P, P, I[0] + 25], [P], InvalidArgument,
     "argument 'indices' points outside of planes of 25 elements"),
    ("adaptive_max_pool2d_backward.grad_input", [P, P, I], [P], InvalidArgument,
     "argument 'indices' must have shape"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "outs", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    with pytest.raises(fault, match=message) as caught:
        oracle.kernel(f"aten::{op}", inputs, outs, "run")
    assert str(caught.value).startswith(f"aten::{op}: ")
