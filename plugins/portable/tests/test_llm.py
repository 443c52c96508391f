"""The operators of ExecuTorch's language models against their formulae in torch.

`plugins/executorch/tests/bridge/test_llm.py` compares with ExecuTorch's own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.kernels.oracle import Oracle, strided, to_numpy, to_torch

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

torch.manual_seed(0)
Tensor = torch.Tensor

BATCH, ROWS, HEADS, GROUPS, SIZE, PLACES = 2, 3, 4, 2, 8, 16
QUERY = torch.randn(BATCH, ROWS, HEADS, SIZE)
KEYS, VALUES = torch.randn(2, BATCH, PLACES, GROUPS, SIZE)
NEW_KEYS, NEW_VALUES = torch.randn(2, BATCH, ROWS, GROUPS, SIZE)


def run(oracle: Oracle, op: str, inputs: list[Any], out: Tensor, mode: str) -> tuple[list[Any], Tensor]:
    """The inputs afterwards, and the result."""
    place = strided if mode == "strided" else np.array
    arrays = [place(to_numpy(i)) if isinstance(i, Tensor) else i for i in inputs]
    (result,) = oracle.kernel(f"llama::{op}.out", arrays, [place(np.ones_like(to_numpy(out)))], mode)
    return arrays, to_torch(result)


def check(oracle: Oracle, op: str, inputs: list[Any], expected: Tensor) -> None:
    for mode in oracle.modes:
        _, result = run(oracle, op, inputs, expected, mode)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Of what is (batch, rows, heads, size); the mask is True, or a number to add, by row and place."""
    q, k, v = (value.transpose(1, 2) for value in (query, keys, values))
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True).transpose(1, 2)


def seen(start: int, causal: bool) -> Tensor:
    place, row = torch.arange(PLACES), torch.arange(ROWS)[:, None]
    return place <= start + row if causal else (place < start + ROWS).expand(ROWS, PLACES)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("start", [0, 5, PLACES - ROWS])
def test_attention_over_what_is_in_the_cache(oracle: Oracle, start: int, causal: bool) -> None:
    expected = attention(QUERY, KEYS, VALUES, seen(start, causal))
    check(oracle, "custom_sdpa", [QUERY, KEYS, VALUES, start, None, 0.0, causal, None], expected)


def test_attention_with_a_mask_sees_all_places(oracle: Oracle) -> None:
    mask = torch.randn(ROWS, PLACES).masked_fill(torch.arange(PLACES) % 3 == 1, -math.inf)
    expected = attention(QUERY, KEYS, VALUES, mask, 0.3)
    check(oracle, "custom_sdpa", [QUERY, KEYS, VALUES, 2, mask, 0.0, False, 0.3], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_of_halves(oracle: Oracle, dtype: torch.dtype) -> None:
    halves = [value.to(dtype) for value in (QUERY, KEYS, VALUES)]
    expected = attention(*(value.float() for value in halves), seen(5, True)).to(dtype)
    for mode in oracle.modes:
        _, result = run(oracle, "custom_sdpa", [*halves, 5, None, 0.0, True, None], expected, mode)
        torch.testing.assert_close(result, expected)


def test_a_cache_is_written(oracle: Oracle) -> None:
    for start in (0, 7, PLACES - ROWS):
        expected = KEYS.clone()
        expected[:, start : start + ROWS] = NEW_KEYS
        for mode in oracle.modes:
            (_, cache, _), _ = run(oracle, "update_cache", [NEW_KEYS, KEYS, start], torch.ones(1), mode)
            torch.testing.assert_close(to_torch(cache), expected)


def test_a_cache_is_written_at_places(oracle: Oracle) -> None:
    places = torch.tensor([[3, -1, 15], [0, 1, 2]])
    expected = KEYS.clone()
    expected[0, [3, 15]], expected[1, :3] = NEW_KEYS[0, [0, 2]], NEW_KEYS[1]
    for mode in oracle.modes:
        (_, cache, *_), _ = run(oracle, "update_cache_with_indices", [NEW_KEYS, KEYS, 0, places], torch.ones(1), mode)
        torch.testing.assert_close(to_torch(cache), expected)


def test_attention_that_writes_the_cache_first(oracle: Oracle) -> None:
    keys, values = KEYS.clone(), VALUES.clone()
    keys[:, 4 : 4 + ROWS], values[:, 4 : 4 + ROWS] = NEW_KEYS, NEW_VALUES
    expected = attention(QUERY, keys, values, seen(4, True))
    inputs = [QUERY, NEW_KEYS, NEW_VALUES, KEYS, VALUES, 4, ROWS, None, 0.0, True, None]
    for mode in oracle.modes:
        after, result = run(oracle, "sdpa_with_kv_cache", inputs, expected, mode)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(to_torch(after[3]), keys)
        torch.testing.assert_close(to_torch(after[4]), values)


@pytest.mark.parametrize("heads_first", [False, True])
def test_attention_of_quantized_values(oracle: Oracle, heads_first: bool) -> None:
    parts, reals = [], []
    for value in (QUERY, KEYS, VALUES):
        scale = value.abs().amax(-1, keepdim=True) / 100
        zero = torch.randint(-20, 20, scale.shape).to(torch.int8)
        integers = ((value / scale).round() + zero).clamp(-128, 127).to(torch.int8)
        reals.append((integers.float() - zero) * scale)
        parts.append([part.transpose(1, 2) if heads_first else part for part in (integers, zero, scale)])
    expected = attention(*reals, seen(5, True))
    values, grids = [integers for integers, *_ in parts], [part for _, *grid in parts for part in grid]
    inputs = [*values, 5, None, 0.0, True, None, *grids, heads_first]
    check(oracle, "custom_quantized_sdpa", inputs, expected.transpose(1, 2) if heads_first else expected)


def hadamard(size: int) -> Tensor:
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


@pytest.mark.parametrize("size", [1, 2, 64])
def test_the_hadamard_transform(oracle: Oracle, size: int) -> None:
    x = torch.randn(3, 2, size)
    check(oracle, "fast_hadamard_transform", [x], x @ hadamard(size) / math.sqrt(size))


def test_the_hadamard_transform_of_28_times_a_power(oracle: Oracle) -> None:
    """Its rows are as long, and at right angles: it is a Hadamard matrix."""
    _, matrix = run(oracle, "fast_hadamard_transform", [torch.eye(56)], torch.empty(56, 56), "contiguous")
    torch.testing.assert_close(matrix @ matrix.T, 28 * torch.eye(56), rtol=1e-5, atol=1e-4)
    assert matrix.abs().allclose(torch.tensor(math.sqrt(0.5)))


CALL = [QUERY, KEYS, VALUES, 0, None, 0.0, True, None]
QUANTIZED = [t.to(torch.int8) for t in (QUERY, KEYS, VALUES)]
FAULTS: list[tuple[str, list[Any], type[RuntimeFault], str]] = [
    ("custom_sdpa", [*CALL[:3], 14, *CALL[4:]], InvalidArgument, "3 rows from 14 on do not fit into a cache of 16"),
    ("custom_sdpa", [*CALL[:3], -1, *CALL[4:]], InvalidArgument, "3 rows from -1 on"),
    ("custom_sdpa", [*CALL[:4], torch.zeros(3, 16), 0.0, True, None], InvalidArgument, "exclude each other"),
    ("custom_sdpa", [*CALL[:4], torch.zeros(3, 3), 0.0, False, None], InvalidArgument, "argument 'attn_mask'"),
    ("custom_sdpa", [*CALL[:5], 0.5, True, None], InvalidArgument, "'drpout_p' is 0.5"),
    ("custom_sdpa", [QUERY[:, :, :3], *CALL[1:]], InvalidArgument, "3 heads of the query do not share 2"),
    ("custom_sdpa", [QUERY[0], *CALL[1:]], InvalidArgument, "argument 'query' has 3 dims, not 4"),
    ("custom_sdpa", [QUERY, KEYS.half(), *CALL[2:]], InvalidType, "argument 'key'"),
    ("update_cache", [NEW_KEYS, KEYS, 15], InvalidArgument, "3 rows from 15 on"),
    ("update_cache", [NEW_KEYS.half(), KEYS, 0], InvalidType, "argument 'value'"),
    ("update_cache", [NEW_KEYS[:1], KEYS, 0], InvalidArgument, "argument 'value'"),
    (
        "update_cache_with_indices",
        [NEW_KEYS, KEYS, 0, torch.full((2, 3), 16)],
        InvalidArgument,
        "holds 16, and the cache has 16",
    ),
    (
        "sdpa_with_kv_cache",
        [QUERY, NEW_KEYS, NEW_VALUES, KEYS, VALUES, 0, 2, None, 0.0, True, None],
        InvalidArgument,
        "argument 'seq_len' is 2, and 'query' has 3 rows",
    ),
    ("custom_quantized_sdpa", [*QUANTIZED, *CALL[3:], *[None] * 6, False], InvalidArgument, "'q_scales'"),
    ("custom_quantized_sdpa", [*CALL, *[None] * 6, False], InvalidType, "'q' must be int8"),
    ("fast_hadamard_transform", [torch.randn(2, 12)], InvalidArgument, "12 columns"),
]


@pytest.mark.parametrize(("op", "inputs", "error", "message"), FAULTS)
def test_what_does_not_fit_is_told(
    oracle: Oracle, op: str, inputs: list[Any], error: type[RuntimeFault], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(oracle, op, inputs, torch.ones(1) if op.startswith("update") else QUERY, "contiguous")
