"""The experts' product of transformers against a loop over its groups."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle, strided, to_numpy, to_torch

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

OPERATOR = "transformers::grouped_mm_fallback.out"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("ends", [[2, 2, 5], [0, 0, 7], [7, 7, 7], [1, 3, 4]], ids=str)
def test_each_group_has_its_own_matrix(oracle: Oracle, dtype: torch.dtype, ends: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 4, generator=generator).to(dtype)
    weight = torch.randn(3, 4, 5, generator=generator).to(dtype)
    groups = [rows[start:end] @ weight[group] for group, (start, end) in enumerate(pairwise([0, *ends]))]
    expected = torch.cat([*groups, torch.zeros(7 - ends[-1], 5, dtype=dtype)])
    for offs in (torch.tensor(ends), torch.tensor(ends, dtype=torch.int32)):
        for mode in oracle.modes:
            place = strided if mode == "strided" else np.array
            inputs = [place(to_numpy(tensor)) for tensor in (rows, weight, offs)]
            (got,) = oracle.kernel(OPERATOR, inputs, [place(np.ones_like(to_numpy(expected)))], mode)
            torch.testing.assert_close(to_torch(got), expected)


ROWS, WEIGHT, OFFS = np.zeros((7, 4), np.float32), np.zeros((3, 4, 5), np.float32), np.array([1, 2, 3])


@pytest.mark.parametrize(
    ("inputs", "fault", "message"),
    [
        ([ROWS[0], WEIGHT, OFFS], InvalidArgument, "argument 'input' must have 2 dimensions, but has shape (4,)"),
        ([ROWS, WEIGHT.astype(float), OFFS], InvalidType, "argument 'input' is float32, but argument 'weight' is"),
        ([ROWS, WEIGHT, ROWS[0, :3]], InvalidType, "argument 'offs' must hold integers, but is float32"),
        ([ROWS, WEIGHT[:, :3], OFFS], InvalidArgument, "(7, 4) and 'weight' (3, 3, 5) cannot be multiplied"),
        ([ROWS, WEIGHT, OFFS[:2]], InvalidArgument, "argument 'offs' has 2 groups, but argument 'weight' 3"),
        ([ROWS, WEIGHT, OFFS[::-1].copy()], InvalidArgument, "must ascend to at most 7, but is [3, 2, 1]"),
        ([ROWS, WEIGHT, OFFS + 5], InvalidArgument, "must ascend to at most 7, but is [6, 7, 8]"),
    ],
)
def test_refusals(oracle: Oracle, inputs: list[np.ndarray], fault: type[RuntimeFault], message: str) -> None:
    oracle.assert_refused(OPERATOR, inputs, [np.zeros((7, 5), np.float32)], fault, message)
