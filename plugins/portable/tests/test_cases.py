"""Kernels against torch on hand-picked cases: what the operator database leaves out or does not reach.

An output is given in the dtype that lowering plans for it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle, to_numpy

torch.manual_seed(0)

inf, nan = math.inf, math.nan
BOOL, U8, I8, I32, I64 = torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64
F16, BF16, F32, F64, C64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Normal floats, or integers from -9 to 9."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=F32 if dtype in (F16, BF16) else dtype).to(dtype)
    return torch.randint(-9 if dtype != U8 else 0, 10, shape).to(dtype)


def of(*values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


X, Y = rand(3, 4), rand(3, 4)
INTS = of(-7, -3, 0, 2, 9)
SPECIAL = of(nan, inf, -inf, 0.0, -0.0, 1.5, -2.5, 0.5, 2.5, 1e38, -1e38, 1e-40)
EMPTY = torch.zeros(0, 3)
MASK = of(True, False, True, False).expand(3, 4)
IMAGE = rand(2, 4, 7, 6)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
GRID = torch.cat((rand(2, 3, 5, 2), of(nan, 0.0).expand(2, 3, 1, 2)), 2)

# fmt: off
CASES: dict[str, list[tuple[Any, ...]]] = {
    # (arguments…) or (arguments…, out dtype); the out dtype is otherwise the first tensor's
    # ---- type promotion -------------------------------------------------------------------------
    "aten::add.out": [
        (X, of(2, 3, 4, 5), F32),
        (INTS, of(1.5), F32),
        (INTS, torch.tensor(1.5), F32),  # a 0-d float outranks integers with dims
        (rand(3, dtype=F16), torch.tensor(1.5), F16),  # but not floats with dims
        (rand(3, dtype=F16), rand(3, dtype=BF16), F32),
        (of(200, 100, dtype=U8), of(-1, 100, dtype=I8), torch.int16),
        (of(True, True), of(True, False), BOOL),
        (of(True, False), INTS[:2], I64),
        (of(250, dtype=U8), of(10, dtype=U8), U8),  # wraps around
        (X, torch.zeros(4), F64),
        (EMPTY, rand(1, 3)),
        (torch.zeros(0), torch.zeros(1)),
        (torch.tensor(2.0), torch.tensor(3)),
        (rand(2, 1, 3), rand(4, 1)),
        (rand(3, dtype=C64), rand(3), C64),
    ],
    "aten::add.Scalar_out": [
        (X, 2), (X, 1.5, 2), (INTS, 2, I64), (INTS, 1.5, F32), (of(True), 1, I64), (of(5, dtype=U8), -6, U8),
    ],
    "aten::sub.Scalar_out": [(X, 2), (INTS, 3, 2, I64), (INTS, 0.5, F32), (rand(3, dtype=F16), 0.1)],
    "aten::rsub.Scalar_out": [(X, 2), (X, 1.5, 3), (INTS, 4, 2, I64), (INTS, 0.5, F32)],
    "aten::mul.Scalar_out": [(X, 3), (INTS, 0.5, F32), (of(True, False), 2, I64), (of(True, False), True, BOOL)],
    "aten::mul.out": [
        (of(True, True), of(True, False), BOOL), (rand(3, dtype=BF16), rand(3, dtype=BF16)), (EMPTY, EMPTY),
    ],
    "aten::div.out": [
        (INTS, of(2, 3, -2, 5, 4), F32), (of(1, 0, -1), of(0, 0, 0), F32), (of(True), of(True), F32), (X, X),
    ],
    "aten::div.Scalar_out": [(INTS, 2, F32), (INTS, 2.5, F32), (rand(4, dtype=F16), 3), (X, 0)],
    "aten::div.Scalar_mode_out": [
        *((x, other, {"rounding_mode": mode}, dtype)
          for mode in ("floor", "trunc")
          for x, other, dtype in ((INTS, 2, I64), (INTS, -2, I64), (INTS, 2.5, F32), (SPECIAL, 0.5, F32), (X, 0, F32))),
        (INTS, 2, {"rounding_mode": None}, F32),
    ],
    "aten::div.out_mode": [
        (INTS, of(-2, 2, -3, 3, -4), {"rounding_mode": "trunc"}, I64),
        (INTS, of(-2, 2, -3, 3, -4), {"rounding_mode": "floor"}, I64),
        (of(-128, dtype=I8), of(-1, dtype=I8), {"rounding_mode": "floor"}, I8),
    ],
    "aten::floor_divide.out": [(INTS, of(2, -2, 3, -3, 4), I64), (SPECIAL, torch.tensor(0.5)), (X, torch.tensor(0.0))],
    "aten::remainder.Scalar_out": [
        *((INTS, 3, I64), (INTS, -3, I64), (INTS[:0], 0, I64), (SPECIAL, 2.0), (SPECIAL, -inf), (INTS, 2.5, F32)),
    ],
    "aten::remainder.Tensor_out": [(INTS, of(2, -2, 3, -3, 4), I64), (SPECIAL, torch.tensor(0.0))],
    "aten::fmod.Scalar_out": [(INTS, 3, I64), (INTS, -3, I64), (SPECIAL, 2.0), (INTS, 2.5, F32)],
    "aten::fmod.Tensor_out": [(INTS, of(2, -2, 3, -3, 4), I64), (INTS[:0], torch.tensor(0), I64)],
    "aten::pow.Tensor_Scalar_out": [
        *((x, p) for x in (X.abs(), SPECIAL) for p in (2, 3, 0.5, -1, -0.5, 0, 1, 2.5)),
        (INTS, 3, I64),
        (INTS, 0.5, F32),
        (INTS, 2, I64),
        (rand(4, dtype=F16).abs(), 1.5),
        (rand(4, dtype=BF16), 2),
    ],
    "aten::pow.Scalar_out": [
        (2.0, X), (2, INTS.abs(), I64), (2, X, F32), (0, of(0.0, 1.0, -1.0)), (1, INTS, I64), (-1, INTS, I64),
    ],
    "aten::pow.Tensor_Tensor_out": [
        (INTS, of(0, 1, 2, 3, -1), I64),
        (of(1, -1, -1, 2, 0), of(-3, -3, -2, -1, 0), I64),
        (of(2, 3), of(0.5, 2.0), F32),
    ],
    "aten::maximum.out": [(SPECIAL, SPECIAL.flip(0)), (INTS, of(True, False, True, False, True), I64)],
    "aten::clamp.out": [
        (SPECIAL, -1, 1),
        (SPECIAL, None, 0.5),
        (SPECIAL, 2, None),
        (X, 1, -1),  # crossed bounds: max
        (INTS, -2.5, 2.5, F32),
        (INTS, 0, 5, I64),
        (rand(5, dtype=F16), -0.5, 0.5),
        (of(3, 200, dtype=U8), 5, 100, U8),
    ],
    "aten::clamp.Tensor_out": [(X, rand(4), None), (X, rand(3, 1), rand(4)), (INTS, of(0.5), None, F32)],
    "aten::atan2.out": [(SPECIAL, SPECIAL.flip(0)), (INTS, of(1, -1, 0, 0, 2), F32)],
    # ---- comparisons ----------------------------------------------------------------------------
    **{
        f"aten::{op}.Scalar_out": [
            (X, 0, BOOL), (INTS, 1.5, BOOL), (INTS, 2, BOOL), (SPECIAL, inf, BOOL), (MASK, 1, BOOL),
            (rand(4, dtype=BF16), 0.3, BOOL),
        ]
        for op in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "aten::eq.Tensor_out": [(SPECIAL, SPECIAL, BOOL), (INTS, INTS.float(), BOOL), (of(16777217), of(16777216.0), BOOL)],
    **{f"aten::bitwise_{op}.Scalar_out": [(INTS, 6, I64), (of(True, False), True, BOOL), (of(200, dtype=U8), 15, U8)]
       for op in ("and", "or", "xor")},
    **{f"aten::bitwise_{op}_shift.Tensor_Scalar_out": [(INTS, 2, I64), (INTS, 63, I64), (of(200, dtype=U8), 3, U8)]
       for op in ("left", "right")},
    "aten::bitwise_right_shift.Tensor_out": [(INTS, of(0, 1, 64, 100, 3), I64)],
    "aten::logical_and.out": [(SPECIAL, SPECIAL.flip(0), BOOL), (INTS, of(0.0, 1.0, nan, 2.0, 0.0), BOOL)],
    "aten::logical_not.out": [(SPECIAL, BOOL), (INTS, BOOL), (INTS, F32)],
    "aten::isnan.out": [(SPECIAL, BOOL), (INTS, BOOL), (SPECIAL.to(BF16), BOOL), (SPECIAL.half(), BOOL)],
    "aten::isinf.out": [(SPECIAL, BOOL), (INTS, BOOL), (SPECIAL.to(BF16), BOOL), (SPECIAL.half(), BOOL)],
    "aten::where.self_out": [
        (MASK, X, Y, F32),
        (MASK, X, torch.tensor(1.0, dtype=F64), F32),
        (MASK, INTS[:4], torch.tensor(0.5), F32),
        (of(True, False)[:, None], of(1, 2), of(3, 4, 5)[:2], I64),
    ],
    "aten::masked_fill.Scalar_out": [
        (X, MASK, -inf), (X, MASK, 2), (INTS[:4], MASK, 7, I64), (rand(4, dtype=F16), MASK[0], 0.1),
    ],
    "aten::masked_select.out": [(X, MASK), (X, X > 0), (rand(4), MASK), (X, torch.tensor(True)), (EMPTY, EMPTY > 0)],
    "aten::masked_scatter.out": [(X, MASK, rand(12)), (rand(4), MASK, rand(20))],
    "aten::tril.out": [
        (rand(3, 5), 1), (rand(2, 4, 4), -1), (rand(3, 3) > 0, 0, BOOL), (of(nan, nan)[None].expand(2, 2), 0),
    ],
    # ---- functions of one tensor ----------------------------------------------------------------
    **{f"aten::{op}.out": [(SPECIAL,), (SPECIAL.half(),), (SPECIAL.to(BF16),), (torch.tensor(0.3),), (torch.zeros(0),)]
       for op in ("abs", "ceil", "floor", "neg", "relu", "round", "sign", "trunc")},
    **{
        f"aten::{op}.out": [
            (SPECIAL,), (INTS, F32), (MASK, F32), (SPECIAL.half(),), (torch.tensor(0.3),), (torch.zeros(0),),
        ]
        for op in (
            "acos", "asin", "atan", "cos", "erf", "exp", "expm1", "log", "log1p", "reciprocal", "rsqrt", "sigmoid",
            "sin", "sqrt", "tanh",
        )
    },
    "aten::_conj_physical.out": [(rand(3, dtype=C64), C64), (X,)],
    "aten::view_as_real_copy.out": [(rand(3, 2, dtype=C64), F32), (rand(2, dtype=torch.complex128), F64)],
    # ---- activations ----------------------------------------------------------------------------
    "aten::gelu.out": [
        (SPECIAL[2:], {"approximate": "none"}),  # of inf torch makes inf or, in its vectorised part, nan
        (SPECIAL, {"approximate": "tanh"}),
        (torch.linspace(-9, 9, 999),),
        (rand(5, dtype=F64),),
    ],
    "aten::hardtanh.out": [
        (SPECIAL,), (X, 0, 6), (of(-3, 3, 200, dtype=I32), 0, 6, I32), (rand(4, dtype=F16), -0.5, 0.5),
    ],
    "aten::elu.out": [(SPECIAL,), (X, 0.5, 1.5, 2.0), (rand(4, dtype=BF16),)],
    "aten::leaky_relu.out": [(SPECIAL,), (X, -0.5), (rand(4, dtype=F16),)],
    "aten::glu.out": [(rand(3, 4),), (rand(4, 3), 0), (rand(4, dtype=F16),)],
    "aten::logit.out": [(of(0.0, 0.2, 1.0, 1.5, nan),), (of(0.0, 0.2, 1.0, 1.5, nan), 0.1), (of(True, False), F32)],
    "aten::_softmax.out": [
        (of(inf, 1.0, nan), 0, False),
        (of(-inf, 1.0, 2.0), 0, False),
        (of(-inf, -inf), 0, False),
        (torch.tensor(3.0), -1, False),
        (EMPTY, 1, False),
        (rand(2, 3, 4), 1, False),
        (rand(5, 8) * 100, 1, False),
        (rand(5, 8, dtype=F16), 0, False),
    ],
    "aten::_log_softmax.out": [(rand(5, 8) * 100, 1, False), (torch.tensor(3.0), 0, False), (of(-inf, 1.0), 0, False)],
    # ---- matrix products ------------------------------------------------------------------------
    "aten::mm.out": [(torch.zeros(3, 0), torch.zeros(0, 2)), (rand(3, 4, dtype=I64), rand(4, 2, dtype=I64), I64)],
    "aten::addmm.out": [
        (rand(2), rand(3, 4), rand(4, 2)),
        (of(nan, inf), rand(3, 4), rand(4, 2), {"beta": 0}),
        (rand(3, 1), rand(3, 4), rand(4, 2), {"beta": 0.5, "alpha": 2}),
        (rand(2), torch.zeros(3, 0), torch.zeros(0, 2)),
    ],
    "aten::linear.out": [
        (rand(5, 3), rand(4, 3), rand(4)),
        (rand(2, 5, 3), rand(4, 3), None),
        (rand(2, 5, 3).transpose(0, 1), rand(4, 3), rand(4)),
        (rand(3), rand(4, 3), rand(4)),
        (torch.zeros(0, 3), rand(4, 3), rand(4)),
    ],
    # ---- convolutions ---------------------------------------------------------------------------
    "aten::convolution.out": [
        (IMAGE, rand(5, 4, 3, 3), rand(5), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (IMAGE, rand(5, 4, 1, 1), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        (IMAGE, rand(5, 4, 1, 1), rand(5), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
        (IMAGE, rand(6, 2, 3, 2), rand(6), [2, 1], [1, 0], [2, 1], False, [0, 0], 2),
        (IMAGE, rand(4, 1, 3, 3), rand(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
        (IMAGE, rand(4, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 4),
        (IMAGE, rand(8, 1, 5, 3), rand(8), [2, 1], [2, 1], [1, 2], False, [0, 0], 4),
        (rand(1, 4, 20, 30), rand(4, 1, 3, 3), None, [1, 1], [0, 2], [1, 1], False, [0, 0], 4),
        (rand(1, 64, 5, 5), rand(64, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 64),
        (LAST, rand(5, 4, 3, 3), rand(5), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (IMAGE, rand(4, 3, 3, 3), rand(3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
        (IMAGE, rand(4, 3, 3, 2), rand(6), [1, 3], [0, 1], [2, 1], True, [0, 0], 2),
        (IMAGE, rand(4, 1, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 4),
        (rand(2, 3, 9), rand(4, 3, 3), rand(4), [2], [1], [1], False, [0], 1),
        (rand(2, 4, 9), rand(4, 1, 3), rand(4), [1], [1], [2], False, [0], 4),
        (rand(1, 2, 4, 5, 6), rand(3, 2, 2, 3, 2), rand(3), [1, 2, 1], [1, 0, 1], [1, 1, 2], False, [0, 0, 0], 1),
        (rand(1, 2, 3, 3, 3), rand(2, 2, 2, 2, 2), None, [2, 2, 2], [0, 0, 0], [1, 1, 1], True, [1, 0, 0], 1),
        (torch.zeros(0, 4, 7, 6), rand(5, 4, 3, 3), rand(5), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ],
    "aten::convolution_backward.out": [
        (grad, x, w, [bias], [2, 1], [1, 0], [1, 2], transposed, [0, 0], groups, [True, True, True], (F32, F32, F32))
        for x, w, bias, transposed, groups, grad in (
            (IMAGE, rand(5, 4, 3, 2), 5, False, 1, rand(2, 5, 4, 4)),
            (IMAGE, rand(6, 2, 3, 2), 6, False, 2, rand(2, 6, 4, 4)),
            (IMAGE, rand(4, 1, 3, 2), 4, False, 4, rand(2, 4, 4, 4)),
            (IMAGE, rand(4, 3, 3, 2), 3, True, 1, rand(2, 3, 13, 8)),
            (IMAGE, rand(4, 3, 3, 2), 6, True, 2, rand(2, 6, 13, 8)),
        )
    ],
    # ---- pooling --------------------------------------------------------------------------------
    "aten::max_pool2d_with_indices.out": [
        (IMAGE, [3, 3], [2, 2], [1, 1], [1, 1], False, (F32, I64)),
        (IMAGE, [2, 3], [], [1, 0], [2, 1], True, (F32, I64)),
        (rand(3, 6, 5), [2], [2], [0], [1], True, (F32, I64)),
        (torch.full((1, 1, 3, 3), -inf), [2, 2], [1, 1], [1, 1], [1, 1], False, (F32, I64)),
        (of(1.0, nan, 2.0, nan, 3.0, 4.0).reshape(1, 2, 3), [2, 2], [1, 1], [0, 0], [1, 1], False, (F32, I64)),
        (torch.ones(1, 1, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False, (F32, I64)),
        (rand(1, 1, 4, 4, dtype=I32), [2, 2], [1, 1], [1, 1], [1, 1], False, (I32, I64)),
    ],
    "aten::avg_pool2d.out": [
        (IMAGE, [3, 3], [2, 2], [1, 1], ceil_mode, include, divisor)
        for ceil_mode in (False, True)
        for include, divisor in ((True, None), (False, None), (True, 4))
    ] + [
        (rand(3, 6, 5), [2, 3]),
        (rand(1, 1, 4, 4, dtype=I64), [2, 2], I64),
        (rand(1, 1, 4, 4, dtype=F16), [3, 3], [1, 1], [1, 1]),
    ],
    "aten::_adaptive_avg_pool2d.out": [
        (IMAGE, [1, 1]), (IMAGE, [3, 4]), (IMAGE, [7, 6]), (rand(3, 5, 5), [2, 7]),
        (rand(1, 2, 3, 3, dtype=F16), [2, 2]),
    ],
    # ---- normalization --------------------------------------------------------------------------
    "aten::_native_batch_norm_legit_no_training.out": [
        (x, rand(4).to(x.dtype), rand(4).to(x.dtype), rand(4).to(x.dtype), rand(4).abs().to(x.dtype), 0.1, 1e-5)
        for x in (IMAGE, rand(3, 4), rand(2, 4, 5), LAST)
    ] + [(IMAGE, None, None, rand(4), rand(4).abs(), 0.1, 1e-5)],
    "aten::_native_batch_norm_legit.no_stats_out": [
        (IMAGE, rand(4), rand(4), True, 0.1, 1e-5), (rand(5, 4), None, None, True, 0.1, 1e-3),
    ],
    "aten::native_layer_norm.out": [
        (rand(2, 3, 8), [8], rand(8), rand(8), 1e-5),
        (rand(2, 3, 8), [3, 8], rand(3, 8), None, 1e-5),
        (rand(2, 8).expand(3, 2, 8), [8], None, None, 1e-5),
        (torch.zeros(0, 8), [8], rand(8), rand(8), 1e-5),
    ],
    "aten::native_group_norm.out": [
        (IMAGE, rand(4), rand(4), 2, 4, 42, 2, 1e-5), (IMAGE, None, None, 2, 4, 42, 4, 1e-5),
    ],
    # ---- reductions -----------------------------------------------------------------------------
    "aten::sum.IntList_out": [
        (INTS, None, I64), (of(True, True), None, I64), (X, [0], True), (X, [-1, 0]), (X, []), (EMPTY, [0]),
        (EMPTY, None),
        (rand(64, 300, dtype=F16), [1]), (INTS, None, {"dtype": F32}, F32), (torch.tensor(2.0), [0]),
        (of(100, 100, dtype=I8), None, I64),
    ],
    "aten::mean.out": [
        (X, [1]), (X, None), (X, [0, 1], True), (INTS, None, {"dtype": F32}, F32), (EMPTY, [0]),
        (rand(9, 9, dtype=BF16), [0]),
    ],
    "aten::mean.dtype_out": [(X,), (INTS, {"dtype": F32}, F32)],
    "aten::prod.out": [(X,), (INTS, I64), (torch.zeros(0),)],
    "aten::cumsum.out": [
        (X, 0), (X, -1), (INTS, 0, I64), (of(True, True), 0, I64), (torch.tensor(2.0), 0), (rand(300, dtype=F16), 0),
    ],
    "aten::var.out": [
        (X, [1]), (X, [1], False, True), (X, None, True), (rand(4, 4, dtype=F16), [0]), (rand(1, 3), [0]),
    ],
    "aten::var.correction_out": [
        (X, [0], {"correction": 0}), (X, None, {"correction": 2, "keepdim": True}), (X, [1], {"correction": 4}),
    ],
    "aten::var_mean.correction_out": [(X, [1], {"correction": 1}, (F32, F32))],
    "aten::amax.out": [(X, [0]), (X, []), (of(1.0, nan), [0], True), (INTS, [0], I64), (rand(3, 4, dtype=BF16), [1])],
    "aten::max.dim_max": [
        (X, 1, (F32, I64)), (of(1.0, nan, nan), 0, (F32, I64)), (of(3, 3, 1), 0, True, (I64, I64)),
        (torch.tensor(1.0), 0, (F32, I64)),
    ],
    "aten::min.dim_min": [(X, 0, (F32, I64)), (of(True, False), 0, (BOOL, I64))],
    "aten::argmax.out": [
        (X, I64), (X, 1, True, I64), (of(1.0, nan, 2.0), 0, I64), (of(2, 2, 1), 0, I64),
        (torch.tensor(1.0), None, I64),
    ],
    "aten::any.dims_out": [(X > 1, [0, 1], BOOL), (X, [1], True, BOOL), (X > 9, None, BOOL), (EMPTY, [0], BOOL)],
    "aten::any.out": [(of(nan, 0.0), 0, BOOL), (X, -1, True, BOOL)],
    "aten::topk.values": [
        (torch.randperm(40).float().reshape(2, 20), k, dim, largest, True, (F32, I64))
        for k, dim, largest in ((2, 1, True), (2, 1, False), (7, -1, True), (1, 0, False))
    ] + [
        (of(1.0, nan, inf, -inf), 3, 0, True, True, (F32, I64)),
        (of(1.0, nan, inf, -inf), 3, 0, False, True, (F32, I64)),
        (torch.randperm(99), 5, 0, True, True, (I64, I64)),
        (torch.randperm(99), 5, 0, False, True, (I64, I64)),
        (torch.tensor(4.0), 1, -1, True, True, (F32, I64)),
        (X, 0, 1, True, True, (F32, I64)),
    ],
    # ---- copies ---------------------------------------------------------------------------------
    "aten::_to_copy.out": [
        (SPECIAL[3:], F16), (SPECIAL[3:], BF16), (INTS, F32), (INTS, BOOL), (X, F64), (of(1.7, -1.7, 0.0), I64),
        (of(True), F32),
    ],
    "aten::copy.out": [(X, rand(4)), (X, INTS[:4]), (rand(4, dtype=F16), rand(1))],
    "aten::fill.Tensor_out": [(X, torch.tensor(3)), (INTS, torch.tensor(2.0), I64)],
    "aten::full.out": [
        ([2, 3], 1.5, F32), ([2], 3, I64), ([], True, BOOL), ([0, 2], nan, F32), ([2], -1, I32), ([2], 0.1, F16),
    ],
    "aten::scalar_tensor.out": [(1.5, F32), (3, I64), (True, BOOL), (inf, F32), (0.1, BF16)],
    "aten::arange.start_out": [
        (0, 5, I64), (1, 7, 2, F32), (5, 0, -2, I64), (0, 1, 0.1, F32), (0.5, 3, 1, F32), (3, 3, I64),
    ],
    "aten::slice_copy.Tensor_out": [
        (X, 1, 1, 3), (X, 0, -2, None), (X, 1, 0, 99, 2), (X, 1, 3, 1), (X, -1, None, -1), (X, 0, 5, 9),
    ],
    "aten::select_copy.int_out": [(X, 0, -1), (X, 1, 2), (INTS, 0, 1, I64)],
    "aten::expand_copy.out": [(rand(3, 1), [2, 3, 4]), (rand(3, 1), [-1, 5]), (torch.tensor(2.0), [3])],
    "aten::view_copy.out": [
        (X, [-1]), (X, [2, 6]), (torch.tensor(1.0), [1, 1]), (EMPTY, [3, 0]),
        (LAST, [2, -1]),
    ],
    "aten::as_strided_copy.out": [(X, [0, 2], [1, 1])],
    "aten::permute_copy.out": [(IMAGE, [0, 2, 3, 1]), (IMAGE, [-1, 0, 1, 2]), (torch.tensor(1.0), [])],
    "aten::detach_copy.out": [(X,)],
    "aten::lift_fresh_copy.out": [(X,), (INTS, I64)],
    "aten::unfold_copy.out": [(rand(7), 0, 3, 2), (rand(3, 6), 1, 2, 2), (torch.tensor(1.0), 0, 1, 1)],
    "aten::cat.out": [
        ([X, Y],), ([X, Y], 1), ([torch.zeros(0), X], 0), ([X], -1), ([INTS, of(0.5)], 0, F32), ([torch.zeros(0)],),
        ([rand(2, dtype=F16), rand(2)], 0, F32), ([EMPTY, X[:, :3]],),
    ],
    "aten::stack.out": [([X, Y],), ([X, Y], 1), ([X, Y], -1), ([torch.tensor(1.0)],), ([INTS, INTS.float()], 0, F32)],
    "aten::repeat.out": [(X, [2, 1]), (X, [2, 1, 3]), (torch.tensor(1.0), [3]), (X, [0, 2]), (X, [1, 1])],
    "aten::flip.out": [(X, [0]), (X, [-1, 0]), (X, []), (torch.tensor(1.0), [])],
    "aten::roll.out": [(X, [1]), (X, [1, -2], [0, 1]), (X, [5], [-1]), (torch.tensor(1.0), [2])],
    "aten::pixel_shuffle.out": [(rand(2, 8, 3, 2), 2), (rand(9, 2, 2), 3)],
    # ---- indices --------------------------------------------------------------------------------
    "aten::index.Tensor_out": [
        (X, [of(0, 2, -1)]), (X, [None, of(1, 3)]), (X, [of(0, 1), of(2, 3)]), (X, [of(0, 1)[:, None], of(2, 3, 0)]),
        (rand(3, 4, 5), [of(0, 1), None, of(2, 3)]), (rand(3, 4, 5), [None, of(0, 1), of(2, 3)]), (X, [X > 0]),
        (X, [of(True, False, True)]),
        (X, [of(True, False, True), of(1, 2)]), (X, [of(0, 1, dtype=I32)]), (X, [torch.tensor(1)]),
        (X, [torch.zeros(0, dtype=I64)]),
        (rand(2, 3, 4), [None, None, of(1)]),
    ],
    "aten::index_put.out": [
        (X, [of(0, 2)], rand(2, 4)), (X, [None, of(1)], torch.tensor(9.0)), (X, [of(0, 0, 1)], rand(3, 4), True),
        (X, [MASK], torch.tensor(1.0)),
        (X, [of(0, 1), of(2, -1)], rand(2)), (INTS, [of(0, 0)], of(5, 6), True, I64),
        (X, [of(True, False, True)], rand(4)),
    ],
    "aten::scatter.value_out": [(X, 1, of([0, 1], [2, 3]), 1.5), (INTS, 0, of(0, 4), 7, I64)],
    "aten::scatter.src_out": [
        (X, 0, of([0, 2, 1, 0]), rand(3, 4)), (torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(2.0)),
    ],
    "aten::scatter_add.out": [
        (X, 1, torch.zeros(0, 2, dtype=I64), rand(3, 4)), (X, 1, of([0, 0, 1]), rand(3, 4)),
        (INTS, 0, of(0, 0, 0), of(1, 2, 3), I64),
    ],
    "aten::gather.out": [
        (X, 1, of([0, 0], [3, 1])), (X, 0, of([2, 1, 0, 0])), (torch.tensor(1.0), 0, torch.tensor(0)),
        (X, 1, torch.zeros(0, 2, dtype=I64)),
    ],
    "aten::index_select.out": [
        (X, 0, of(2, 0, 2)), (X, -1, of(1, dtype=I32)), (torch.tensor(1.0), 0, of(0)),
        (rand(3, dtype=F16), 0, of(0, 1)),
    ],
    "aten::embedding.out": [
        (rand(5, 3), of([0, 4], [1, 1])), (rand(5, 3), torch.tensor(2)), (rand(5, 3), of(1, dtype=I32), 0),
    ],
    "aten::nonzero.out": [(X > 0, I64), (SPECIAL, I64), (torch.tensor(1.0), I64), (torch.tensor(0), I64), (EMPTY, I64)],
    # ---- padding and resampling -----------------------------------------------------------------
    "aten::constant_pad_nd.out": [
        (X, [1, 2]), (X, [1, -1, -1, 2], 5), (X, [0, 0], nan), (INTS, [2, 0], 3, I64), (EMPTY, [1, 1]),
    ],
    "aten::reflection_pad3d.out": [(rand(1, 2, 3, 4, 3), [1, 2, 3, 0, 2, 1])],
    "aten::replication_pad3d.out": [(rand(1, 2, 3, 4, 3), [1, 2, 3, 0, 2, 5]), (rand(2, 3, 4, 3), [0, 0, 1, 1, -1, 1])],
    "aten::upsample_nearest2d.vec_out": [
        (IMAGE, [14, 12], None), (IMAGE, [5, 9], None), (IMAGE, None, [2.0, 2.0]), (IMAGE, None, [1.7, 0.6]),
        (IMAGE, [7, 6], None),
        (rand(1, 1, 3, 3, dtype=U8), [5, 5], None, U8),
    ],
    "aten::upsample_bilinear2d.vec_out": [
        (IMAGE, size, align, factors)
        for size, factors in (([14, 12], None), ([5, 9], None), (None, [2.0, 2.0]), (None, [1.7, 0.6]), ([1, 1], None))
        for align in (False, True)
    ],
    "aten::grid_sampler_2d.out": [
        (rand(1, 2, 1, 1), rand(1, 2, 2, 2), 0, 2, True),
        *((IMAGE, GRID[:, :, : 5 if padding == 2 else 6], mode, padding, align)  # torch reflects NaN to anywhere
          for mode in (0, 1, 2) for padding in (0, 1, 2) for align in (False, True)),
    ],
    # ---- others ---------------------------------------------------------------------------------
    "aten::_cdist_forward.out": [(rand(3, 4), rand(5, 4), p, None) for p in (0.0, 1.0, 2.0, 3.5, inf)],
    "aten::_fft_r2c.out": [
        *((rand(3, 8), [1], n, onesided, C64) for n in (0, 1, 2) for onesided in (True, False)),
        (rand(3, 8), [0, 1], 0, True, C64),
    ],
    "aten::_fft_c2r.out": [(rand(3, 5, dtype=C64), [1], n, size, F32) for n in (0, 1, 2) for size in (8, 9)],
}
# fmt: on


def _split(case: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any], Any]:
    """(positional arguments, keyword arguments, out dtype or None)."""
    *rest, last = case
    dtypes = last if isinstance(last, torch.dtype | tuple) else None
    arguments = rest if dtypes is not None else list(case)
    keywords = arguments.pop() if isinstance(arguments[-1], dict) else {}
    return arguments, keywords, dtypes


@pytest.mark.parametrize(
    ("op", "case"), [pytest.param(op, case, id=f"{op}-{i}") for op in CASES for i, case in enumerate(CASES[op])]
)
def test_case(oracle: Oracle, op: str, case: tuple[Any, ...]) -> None:
    arguments, keywords, dtypes = _split(case)
    oracle.check(op, *arguments, out_dtype=dtypes, **keywords)


# ---- what has no out overload in torch ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["run", "bind", "constant"])
@pytest.mark.parametrize("source", [rand(3, 4), rand(4), torch.tensor(2), INTS[:4]])
def test_copy_in_place(oracle: Oracle, source: torch.Tensor, mode: str) -> None:
    target = to_numpy(X)
    oracle.kernel("aten::copy_", [target, to_numpy(source), False], [], mode)
    torch.testing.assert_close(torch.from_numpy(target), X.clone().copy_(source))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("indices", [[of(0, 2)], [None, of(1, 3)], [X > 0], [of(0, 1), of(2, 2)]])
def test_index_put_in_place(oracle: Oracle, indices: list[torch.Tensor | None], accumulate: bool) -> None:
    values = torch.tensor(5.0)
    expected = torch.ops.aten.index_put_(X.clone(), indices, values, accumulate)
    target = to_numpy(X)
    arrays = [None if index is None else to_numpy(index) for index in indices]
    oracle.kernel("aten::index_put_", [target, arrays, to_numpy(values), accumulate], [], "run")
    torch.testing.assert_close(torch.from_numpy(target), expected)


@pytest.mark.parametrize("op", ["dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_clone_dim_order.out"])
@pytest.mark.parametrize(("source", "target"), [([0, 1, 2, 3], [0, 2, 3, 1]), ([0, 2, 3, 1], [0, 1, 2, 3])])
def test_dim_order_copy(oracle: Oracle, op: str, source: list[int], target: list[int]) -> None:
    values = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    out = _in_dim_order(np.zeros_like(values), target)
    strides = out.strides
    oracle.kernel(op, [_in_dim_order(values, source), False, target], [out], "bind")
    assert np.array_equal(out, values)
    assert out.strides == strides


def _in_dim_order(array: np.ndarray[Any, Any], dim_order: list[int]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array.transpose(dim_order)).transpose(np.argsort(dim_order))


@pytest.mark.parametrize(
    ("op", "options"), [("aten::empty.out", [None]), ("dim_order_ops::_empty_dim_order.out", [[0, 1]])]
)
def test_empty_only_resizes(oracle: Oracle, op: str, options: list[Any]) -> None:
    (out,) = oracle.kernel(op, [[2, 3], *options], [np.zeros((4, 4))], "run")
    assert out.shape == (2, 3)


def test_gradients_of_an_empty_batch_are_empty_or_zero(oracle: Oracle) -> None:
    empty, weight = np.zeros((0, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32)
    inputs = [np.zeros((0, 3, 2, 2), np.float32), empty, weight, [3], [1], [0], [1], False, [0], 1, [True] * 3]
    outs = [np.ones_like(empty), np.ones_like(weight), np.ones(3, np.float32)]
    _, of_weight, of_bias = oracle.kernel("aten::convolution_backward.out", inputs, outs, "run")
    assert not of_weight.any()
    assert not of_bias.any()


# ---- random ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rand_is_uniform_below_one(oracle: Oracle, dtype: type[np.floating[Any]]) -> None:
    (out,) = oracle.kernel("aten::rand.out", [[100, 100]], [np.zeros((100, 100), dtype)], "run")
    assert out.min() >= 0
    assert out.max() < 1
    assert abs(out.astype(np.float64).mean() - 0.5) < 0.02  # 7 standard deviations


def test_randn_is_normal(oracle: Oracle) -> None:
    (out,) = oracle.kernel("aten::randn.out", [[100, 100]], [np.zeros((100, 100), np.float32)], "run")
    assert abs(out.mean()) < 0.07
    assert abs(out.std() - 1) < 0.05


def test_dropout_zeroes_a_share_and_scales_the_rest(oracle: Oracle) -> None:
    ones = np.ones((100, 100), np.float32)
    outs = [np.zeros_like(ones), np.zeros(ones.shape, np.bool_)]
    result, mask = oracle.kernel("aten::native_dropout.out", [ones, 0.25, True], outs, "run")
    assert np.allclose(result, mask / 0.75)
    assert abs(mask.mean() - 0.75) < 0.03


def test_dropout_does_nothing_unless_training(oracle: Oracle) -> None:
    outs = [np.zeros((3, 4), np.float32), np.zeros((3, 4), np.bool_)]
    result, mask = oracle.kernel("aten::native_dropout.out", [to_numpy(X), 0.25, False], outs, "run")
    assert np.array_equal(result, X.numpy())
    assert mask.all()


# ---- precision ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 4e-7), (np.float64, 1e-15)])
def test_erf_is_accurate(oracle: Oracle, dtype: type[np.floating[Any]], limit: float) -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), np.geomspace(1e-30, 1e-2, 500), [1e30, -1e30]]).astype(dtype)
    (out,) = oracle.kernel("aten::erf.out", [x], [np.zeros_like(x)], "run")
    exact = np.array([math.erf(float(v)) for v in x])
    error = np.abs(out - exact) / np.maximum(np.abs(exact), np.finfo(dtype).tiny)
    assert error.max() < limit


@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_stay_accurate(oracle: Oracle, axis: int) -> None:
    x = np.random.default_rng(0).random((20_000, 4) if axis == 0 else (4, 20_000), np.float32)
    (out,) = oracle.kernel("aten::sum.IntList_out", [x, [axis], False, None], [np.zeros(4, np.float32)], "run")
    assert np.allclose(out, x.sum(axis, dtype=np.float64), rtol=1.3e-6)


def test_layer_norm_beside_a_large_mean_is_accurate(oracle: Oracle) -> None:
    x = rand(16, 8) + 1000  # torch's own is off by 6e-5 here
    exact = torch.nn.functional.layer_norm(x.double(), [8])
    outs = [np.zeros((16, 8), np.float32), *(np.zeros((16, 1), np.float32) for _ in range(2))]
    result, *_ = oracle.kernel("aten::native_layer_norm.out", [to_numpy(x), [8], None, None, 1e-5], outs, "run")
    torch.testing.assert_close(torch.from_numpy(result), exact.float())
