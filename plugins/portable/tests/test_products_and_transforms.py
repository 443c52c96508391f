"""Matrix products, convolutions, columns of patches and Fourier transforms against torch: dtypes and edges."""

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
C64, C128, I8, U8, I32, I64 = torch.complex64, torch.complex128, torch.int8, torch.uint8, torch.int32, torch.int64
FLOATS = (F32, F64, F16, BF16)
NUMBERS = (*FLOATS, C64, C128, I8, U8, torch.int16, I32, I64)


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=F64 if dtype.is_floating_point else C128).to(dtype)
    return torch.randint(0 if dtype == U8 else -9, 10, shape).to(dtype)


NAN = torch.tensor([math.nan, math.inf])
IMAGE = rand(2, 4, 7, 6)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)

# fmt: off
CASES: dict[str, list[tuple[Any, ...]]] = {
    # ---- products and a sum: (arguments…, keywords) ----
    "mm.out": [(rand(3, 4, dtype=d), rand(4, 2, dtype=d), {}) for d in NUMBERS]
      + [(rand(4, 3).T, rand(2, 4).T, {}), (torch.zeros(0, 3), rand(3, 2), {}),
         (torch.zeros(2, 0), torch.zeros(0, 2), {})],
    "bmm.out": [(rand(2, 3, 4, dtype=d), rand(2, 4, 2, dtype=d), {}) for d in NUMBERS]
      + [(torch.zeros(0, 3, 4), torch.zeros(0, 4, 2), {})],
    "addmm.out": [(rand(2, dtype=d), rand(3, 4, dtype=d), rand(4, 2, dtype=d), {"beta": 2, "alpha": 3})
                  for d in NUMBERS]
      + [(rand(2, dtype=C64), rand(3, 4, dtype=C64), rand(4, 2, dtype=C64), {"beta": 1 + 2j, "alpha": 0.5j}),
         (torch.tensor(2.0), rand(3, 4), rand(4, 2), {}),
         (rand(2, dtype=I64), rand(3, 4, dtype=I64), rand(4, 2, dtype=I64), {"beta": 0.6, "alpha": 2.7})],
    "addbmm.out": [(rand(3, 2, dtype=d), rand(5, 3, 4, dtype=d), rand(5, 4, 2, dtype=d), {"beta": 2, "alpha": 3})
                   for d in NUMBERS]
      + [(rand(2), rand(5, 3, 4), rand(5, 4, 2), {}), (NAN, rand(5, 3, 4), rand(5, 4, 2), {"beta": 0}),
         (rand(3, 1), torch.zeros(0, 3, 4), torch.zeros(0, 4, 2), {"beta": 0.5})],
    "baddbmm.out": [(rand(5, 3, 2, dtype=d), rand(5, 3, 4, dtype=d), rand(5, 4, 2, dtype=d), {"beta": 2, "alpha": 3})
                    for d in NUMBERS]
      + [(rand(2), rand(5, 3, 4), rand(5, 4, 2), {}), (NAN, rand(5, 3, 4), rand(5, 4, 2), {"beta": 0}),
         (rand(5, 3, 1), torch.zeros(5, 3, 0), torch.zeros(5, 0, 2), {"beta": 0.5})],
    "addmv.out": [(rand(3, dtype=d), rand(3, 4, dtype=d), rand(4, dtype=d), {"beta": 2, "alpha": 3}) for d in NUMBERS]
      + [(rand(1), rand(3, 4), rand(4), {}), (torch.tensor(math.nan), rand(3, 4), rand(4), {"beta": 0}),
         (rand(3), torch.zeros(3, 0), torch.zeros(0), {"beta": 0.5}), (rand(3), rand(4, 3).T, rand(4), {})],
    "_addmm_activation.out": [
        (rand(2, dtype=d), rand(3, 4, dtype=d), rand(4, 2, dtype=d), {"beta": 0.5, "alpha": 2, "use_gelu": gelu})
        for d in FLOATS for gelu in (False, True)
    ] + [(NAN, rand(3, 4), rand(4, 2), {"beta": 0})],
    "_convolution.out": [
        (IMAGE, rand(6, 2, 3, 2), rand(6), [2, 1], [1, 0], [2, 1], False, [0, 0], 2, False, True, False, True, {}),
        (LAST, rand(4, 3, 3, 2), None, [1, 3], [0, 1], [2, 1], True, [0, 0], 2, False, False, True, False, {}),
    ],
    # ---- columns of patches ----
    "im2col.out": [
        (x, [2, 3], [1, 2], [1, 2], [2, 1], {}) for x in (IMAGE, LAST, IMAGE[0], rand(0, 4, 7, 6))
    ] + [(rand(1, 2, 5, 4, dtype=d), [2, 2], [1, 1], [1, 0], [1, 2], {}) for d in (*FLOATS, C64, C128)]
      + [(rand(1, 2, 5, 4) > 0, [2, 2], [1, 1], [1, 0], [1, 2], {}), (IMAGE, [7, 6], [1, 1], [0, 0], [1, 1], {})],
    "col2im.out": [
        (rand(*n, 24, 24), [7, 6], [2, 3], [1, 2], [1, 2], [2, 1], {}) for n in ((2,), (), (0,))
    ] + [(rand(1, 8, 12, dtype=d), [5, 4], [2, 2], [1, 1], [1, 0], [1, 2], {}) for d in (*FLOATS, C64, C128)],
    # ---- Fourier transforms ----
    "_fft_c2c.out": [
        (rand(3, 8, 5, dtype=d), dims, norm, forward, {}) for d in (C64, C128)
        for dims in ([1], [2, 0], [0, 1, 2], []) for norm in (0, 1, 2) for forward in (False, True)
    ] + [(rand(8, 3, dtype=C64).T, [0, 1], 1, True, {}), (rand(4, dtype=C64), [0], 2, False, {})],
    "_fft_r2c.out": [
        (rand(3, 8, 5, dtype=d), dims, norm, onesided, {"out": c}) for d, c in ((F32, C64), (F64, C128))
        for dims in ([1], [2, 0], [0, 1, 2]) for norm in (0, 1, 2) for onesided in (False, True)
    ] + [(rand(8, 3).T, [0, 1], 1, True, {"out": C64})],
    "_fft_c2r.out": [
        (rand(3, 8, 5, dtype=c), dims, norm, size, {"out": d}) for d, c in ((F32, C64), (F64, C128))
        for dims, size in (([1], 14), ([1], 15), ([2, 0], 5), ([0, 1, 2], 8)) for norm in (0, 1, 2)
    ] + [(rand(3, dtype=C64), [0], 0, 4, {"out": F32})],
}
# fmt: on


@pytest.mark.parametrize(
    ("op", "case"), [pytest.param(op, case, id=f"{op}-{i}") for op in CASES for i, case in enumerate(CASES[op])]
)
def test_as_torch(oracle: Oracle, op: str, case: tuple[Any, ...]) -> None:
    *arguments, keywords = case
    keywords = dict(keywords)
    oracle.check(f"aten::{op}", *arguments, out_dtype=keywords.pop("out", None), **keywords)


@pytest.mark.parametrize("left", [I8, U8])
@pytest.mark.parametrize("inner", [0, 7, 2000])
def test_products_of_bytes_are_exact(oracle: Oracle, left: torch.dtype, inner: int) -> None:
    info = torch.iinfo(left)
    a = torch.randint(info.min, info.max + 1, (3, inner)).to(left)
    b = torch.randint(-128, 128, (inner, 4)).to(I8)
    expected = (a.long() @ b.long()).int()
    for mode in oracle.modes:
        oracle.compare("aten::_int_mm.out", (a, b), {}, [expected], mode)
    assert torch.equal(torch.ops.aten._int_mm(a.contiguous(), b), expected) or inner == 0


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("wide", [False, True])
def test_products_of_halves_as_float32(oracle: Oracle, dtype: torch.dtype, wide: bool) -> None:
    """torch has these overloads on a GPU only; in float32 they are the product of the halves."""
    out = F32 if wide else dtype
    a, b, c = rand(3, 4, dtype=dtype), rand(4, 2, dtype=dtype), rand(2, dtype=dtype)
    product = a.float() @ b.float()
    for mode in oracle.modes:
        oracle.compare("aten::mm.dtype_out", (a, b, out), {}, [product.to(out)], mode)
        oracle.compare("aten::bmm.dtype_out", (a[None], b[None], out), {}, [product[None].to(out)], mode)
        expected = [(2 * c.float() + 3 * product).to(out)]
        oracle.compare("aten::addmm.dtype_out", (c, a, b, out), {"beta": 2, "alpha": 3}, expected, mode)


A = np.zeros((2, 3), np.float32)
B = np.zeros((2, 2, 3), np.float32)
H = A.astype(np.float16)
Q = A.astype(np.int8)
C = A.astype(np.complex64)

# fmt: off
REFUSED: list[tuple[str, list[Any], list[Any], type[Exception], str]] = [
    ("addbmm.out", [A, B, B, 1, 1], [A], InvalidArgument,
     "arguments 'batch1' (2, 2, 3) and 'batch2' (2, 2, 3) cannot be multiplied"),
    ("addmv.out", [A[0], A, A[:, 0], 1, 1], [A], InvalidArgument,
     "arguments 'mat' (2, 3) and 'vec' (2,) cannot be multiplied"),
    ("addmv.out", [A, A, A[0], 1, 1], [A], InvalidArgument,
     "argument 'self' of shape (2, 3) does not broadcast to (2,)"),
    ("addmm.out", [Q, Q.T @ Q, Q.T @ Q, 0.5, 1], [Q], InvalidArgument, "argument 'self'"),
    ("_int_mm.out", [Q, A.T], [A.astype(np.int32)], InvalidType, "argument 'mat2' is float32, but must be int8"),
    ("_int_mm.out", [Q, Q], [A.astype(np.int32)], InvalidArgument, "cannot be multiplied"),
    ("mm.dtype_out", [A, A.T, 7], [A], InvalidType, "argument 'out_dtype' is float64"),
    ("mm.dtype_out", [H, H.T, 6], [H], InvalidType, "argument 'out' is float16"),
    ("im2col.out", [B, [3, 3], [1, 1], [0, 0], [1, 1]], [B], InvalidArgument, "is smaller than"),
    ("im2col.out", [B, [1, 1], [0, 1], [0, 0], [1, 1]], [B], InvalidArgument, "must be positive"),
    ("im2col.out", [B[:, :0], [1, 1], [1, 1], [0, 0], [1, 1]], [B], InvalidArgument, "has no pixels"),
    ("col2im.out", [B, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]], [B], InvalidArgument, "does not hold (3, 3) patches"),
    ("_fft_c2c.out", [A, [0], 0, True], [C], InvalidType, "argument 'self' must be complex, but is float32"),
    ("_fft_c2c.out", [C, [0, 0], 0, True], [C], InvalidArgument, "argument 'dim' names a dimension twice"),
    ("_fft_c2c.out", [C, [0], 3, True], [C], InvalidArgument, "argument 'normalization' must be one of 0, 1, 2"),
    ("_fft_c2c.out", [C, [0], 0, True], [A], InvalidArgument, "argument 'out' must be complex"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "outs", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(f"aten::{op}", inputs, outs, fault, message)
