"""Upsampling, grid sampling and pixel shuffling against torch: every dtype, scale and alignment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType

torch.manual_seed(0)

F16, BF16, F32, F64, U8 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8
FLOATS = (F32, F64, F16, BF16)


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    if dtype == U8:
        return torch.randint(0, 256, shape, dtype=U8)
    return torch.randn(shape, dtype=F64).to(dtype)


LINE, IMAGE, VOLUME = rand(2, 3, 7), rand(2, 4, 7, 6), rand(2, 3, 4, 5, 6)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
LAST_3D = VOLUME.contiguous(memory_format=torch.channels_last_3d)
NANS = IMAGE.masked_fill(torch.rand(IMAGE.shape) < 0.1, math.nan)

# sizes, and scales, which need not be their ratio
LINES = [([14], None), ([5], None), ([9], 1.3), ([7], None), ([1], None), ([14], 2.1), ([7], 1.1)]
IMAGES = [([14, 12], None, None), ([5, 9], None, None), ([11, 3], 1.7, 0.6), ([1, 1], None, None), ([7, 6], None, 1.0),
          ([3, 20], None, None), ([14, 6], 2.1, 1.1), ([14, 12], 1.5, None)]  # fmt: skip
VOLUMES = [([8, 10, 12], None, None, None), ([3, 9, 2], None, None, None), ([5, 3, 8], 1.3, 0.7, 1.5),
           ([1, 1, 1], None, None, None), ([8, 5, 12], 2.1, 1.1, 1.5)]  # fmt: skip

CASES: dict[str, list[tuple[Any, ...]]] = {}
for _name in ("upsample_nearest{}d.out", "_upsample_nearest_exact{}d.out"):
    CASES[_name.format(1)] = [(LINE, *case) for case in LINES]
    CASES[_name.format(2)] = [(x, *case) for x in (IMAGE, LAST, NANS) for case in IMAGES]
    CASES[_name.format(3)] = [(x, *case) for x in (VOLUME, LAST_3D) for case in VOLUMES]
    CASES[_name.format(1)] += [(rand(1, 2, 5, dtype=d), [8], None) for d in (*FLOATS, U8)]
    CASES[_name.format(2)] += [(rand(1, 2, 5, 4, dtype=d), [8, 3], None, None) for d in (*FLOATS, U8)]
    CASES[_name.format(2)] += [(rand(0, 2, 5, 4), [8, 3], None, None)]
    CASES[_name.format(1)] += [(rand(1, 1, 2), [41], None)]
    CASES[_name.format(2)] += [(rand(1, 1, 2, 2), [41, 47], None, None)]
    CASES[_name.format(3)] += [(rand(1, 1, 1, 2, 2), [1, 41, 47], None, None, None)]
for _name in ("upsample_bilinear2d.out", "upsample_bicubic2d.out", "_upsample_bilinear2d_aa.out",
              "_upsample_bicubic2d_aa.out", "_upsample_lanczos2d_aa.out"):  # fmt: skip
    CASES[_name] = [
        (x, size, align, *scales)
        for x in (IMAGE, LAST)
        for align in (False, True)
        for size, *scales in IMAGES
        if not (_name.endswith("_aa.out") and scales[0] == 1.5)  # which leads out of the image, as a test below
    ]
    CASES[_name] += [(rand(1, 2, 5, 4, dtype=d), [8, 3], False, None, None) for d in FLOATS]
    CASES[_name] += [(rand(0, 2, 5, 4), [8, 3], False, None, None), (rand(1, 1, 40, 40), [3, 70], False, None, None)]
for _name in ("upsample_bilinear2d.out", "upsample_bicubic2d.out"):
    CASES[_name] += [(NANS, [5, 9], False, None, None)]
CASES["upsample_linear1d.out"] = [(LINE, size, align, *scale) for align in (False, True) for size, *scale in LINES]
CASES["upsample_linear1d.out"] += [(rand(1, 2, 5, dtype=d), [8], False, None) for d in FLOATS]
CASES["upsample_trilinear3d.out"] = [
    (x, size, align, *scales) for x in (VOLUME, LAST_3D) for align in (False, True) for size, *scales in VOLUMES
]
CASES["upsample_trilinear3d.out"] += [
    (rand(1, 2, 3, 4, 5, dtype=d), [4, 3, 8], False, None, None, None) for d in FLOATS
]
CASES["upsample_nearest2d.vec_out"] = [(LAST, [5, 9], None), (LAST, None, [1.7, 0.6])]
CASES["upsample_bilinear2d.vec_out"] = [(LAST, [5, 9], True, None), (LAST, None, False, [1.7, 0.6])]

GRID_2D = torch.cat((rand(2, 3, 5, 2) * 1.5, torch.tensor([math.nan, 0.0]).expand(2, 3, 1, 2)), 2)
GRID_3D = rand(2, 3, 5, 2, 3) * 1.5
NAN_3D = GRID_3D.masked_fill(torch.rand(GRID_3D.shape) < 0.2, math.nan)
MODES = [(mode, padding, align) for mode in (0, 1, 2) for padding in (0, 1, 2) for align in (False, True)]
CASES["grid_sampler_2d.out"] = [
    *((x, GRID_2D[:, :, : 5 if padding == 2 else 6], mode, padding, align)  # torch reflects NaN to anywhere
      for x in (IMAGE, LAST) for mode, padding, align in MODES),
    *((rand(1, 2, 4, 5, dtype=d), (rand(1, 3, 3, 2) / 2).to(d), 0, 0, False) for d in (F32, F64)),
    (rand(0, 2, 4, 5), rand(0, 3, 3, 2), 0, 0, False),
]  # fmt: skip
CASES["grid_sampler_3d.out"] = [
    *((x, GRID_3D, mode, padding, align) for x in (VOLUME, LAST_3D) for mode, padding, align in MODES if mode < 2),
    *((VOLUME, NAN_3D, mode, padding, align) for mode in (0, 1) for padding in (0, 1) for align in (False, True)),
    (rand(1, 2, 1, 1, 1), rand(1, 2, 2, 2, 3), 0, 2, True),
    (rand(1, 2, 3, 4, 5, dtype=F64), rand(1, 2, 2, 2, 3, dtype=F64), 0, 1, False),
    (rand(0, 2, 3, 4, 5), rand(0, 2, 2, 2, 3), 0, 1, False),
]


@pytest.mark.parametrize(
    ("op", "case"), [pytest.param(op, case, id=f"{op}-{i}") for op in CASES for i, case in enumerate(CASES[op])]
)
def test_as_torch(oracle: Oracle, op: str, case: tuple[Any, ...]) -> None:
    oracle.check(f"aten::{op}", *case)


@pytest.mark.parametrize(
    "op", ["upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]
)
@pytest.mark.parametrize("size", [[11, 9], [3, 4], [20, 5]])
def test_bytes_are_rounded(oracle: Oracle, op: str, size: list[int]) -> None:
    """With antialiasing as torch does it, with weights of 16 bits. Without, torch has those for some layouts alone, and
    rounds rows to bytes before columns: 1 apart, and 2 where cubics weigh that more than once. Overshoot saturates."""
    x = torch.cat([torch.randint(0, 2, (1, 3, 8, 7), dtype=U8) * 255, torch.randint(0, 256, (1, 3, 8, 7), dtype=U8)])
    expected = getattr(torch.ops.aten, op)(x, size, False, None, None)
    atol = 0 if op.endswith("_aa") else 2 if op == "upsample_bicubic2d" else 1
    oracle.compare(f"aten::{op}.out", (x, size, False, None, None), {}, [expected], "run", rtol=0, atol=atol)


I = np.zeros((1, 2, 4, 4), np.float32)  # noqa: E741
V = np.zeros((1, 2, 4, 4, 4), np.float32)

# fmt: off
REFUSED: list[tuple[str, list[Any], list[Any], type[Exception], str]] = [
    ("upsample_nearest1d.out", [I, [2], None], [I], InvalidArgument, "argument 'input' must have 3 dimensions"),
    ("upsample_nearest3d.out", [V, [2, 2], None, None, None], [V], InvalidArgument,
     "argument 'output_size' must have 1 or 3 values"),
    ("upsample_bicubic2d.out", [I, [0, 2], False, None, None], [I], InvalidArgument, "cannot be resized to (0, 2)"),
    ("upsample_bicubic2d.out", [I, [2, 2], False, None, None], [I.astype(np.float64)], InvalidType,
     "argument 'out' is float64, but argument 'input' is float32"),
    ("upsample_trilinear3d.out", [V[:, :0], [2, 2, 2], False, None, None, None], [V], InvalidArgument,
     "cannot be resized"),
    ("grid_sampler_3d.out", [V, V[..., :3], 2, 0, False], [V], InvalidArgument,
     "argument 'interpolation_mode' must be one of 0, 1, but is 2"),
    ("grid_sampler_3d.out", [V, V[..., :2], 0, 0, False], [V], InvalidArgument, "does not fit argument 'input'"),
    ("grid_sampler_3d.out", [V, V[..., :3].astype(np.float64), 0, 0, False], [V], InvalidType,
     "argument 'grid' is float64"),
    ("grid_sampler_2d.out", [I.astype(np.int64), I, 0, 0, False], [I], InvalidType,
     "argument 'input' must be floating-point"),
]
# fmt: on


@pytest.mark.parametrize("op", ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"])
@pytest.mark.parametrize("scales", [(0.1, 5.0), (5.0, 0.2), (0.05, 0.05)])
def test_a_scale_that_leads_out_of_the_image(oracle: Oracle, op: str, scales: tuple[float, float]) -> None:
    """It contradicts the sizes: where no place is left to weigh, torch gives 0, times what lies behind the image."""
    args = rand(1, 2, 3, 3), [6, 6], False, *scales
    expected = getattr(torch.ops.aten, op).default(*args).nan_to_num(0)
    for mode in oracle.modes:
        oracle.compare(f"aten::{op}.out", args, {}, [expected], mode)


@pytest.mark.parametrize(("op", "inputs", "outs", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(f"aten::{op}", inputs, outs, fault, message)
