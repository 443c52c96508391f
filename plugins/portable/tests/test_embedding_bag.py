"""Bags of embeddings, the gradient of a table, and reductions of segments against torch."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.test_cases import BF16, F16, F32, F64, I64, inf, nan, of, rand
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType

FLOATS = (F16, BF16, F32, F64)
INDICES, OFFSETS = of(0, 1, 2, 3, 1, 1), of(0, 2, 2, 5)
NOTHING = torch.zeros(0, dtype=I64)
SUM, MEAN, MAX = range(3)


def arguments(**changes: Any) -> list[Any]:
    """The arguments of `_embedding_bag`, in order."""
    default = {
        "weight": rand(4, 3), "indices": INDICES, "offsets": OFFSETS, "scale_grad_by_freq": False, "mode": SUM,
        "sparse": False, "per_sample_weights": None, "include_last_offset": False, "padding_idx": -1,
    }  # fmt: skip
    return list((default | changes).values())


def check_as_planned(oracle: Oracle, op: str, args: list[Any]) -> None:
    """Compare with the functional operator, of halves with its float32 result; outputs have the shapes of its plan."""
    function = getattr(torch.ops.aten, op).default
    dtype = args[0].dtype
    wide = [a.float() if isinstance(a, torch.Tensor) and a.dtype in (F16, BF16) else a for a in args]
    expected = [t.to(dtype) if t.is_floating_point() else t for t in function(*wide)]
    with torch._subclasses.FakeTensorMode() as mode:
        fake = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        shapes = [tuple(t.shape) for t in function(*fake)]
    planned = [_fit(t, shape, args) for t, shape in zip(expected, shapes, strict=True)]
    for mode_name in oracle.modes:
        oracle.compare(f"aten::{op}.out", args, {}, planned, mode_name)


def _fit(result: torch.Tensor, shape: tuple[int, ...], args: list[Any]) -> torch.Tensor:
    """torch computes some of the outputs that nobody reads at other sizes than it plans them: cut, or filled with 0."""
    if tuple(result.shape) == shape:
        return result
    if len(shape) == 1 and shape[0] > result.numel() == 0:
        _, indices, offsets = args[:3]
        lengths = torch.diff(offsets, append=of(indices.numel()).to(offsets.dtype))
        return torch.repeat_interleave(torch.arange(offsets.numel()), lengths).to(result.dtype)[: shape[0]]
    fitted = torch.zeros(shape, dtype=result.dtype)
    size = min(result.numel(), fitted.numel())
    fitted[:size] = result[:size]
    return fitted[: shape[0]] if shape[0] else result[:0]


@pytest.mark.parametrize("op", ["_embedding_bag", "_embedding_bag_forward_only"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
def test_embedding_bag(oracle: Oracle, op: str, dtype: torch.dtype, mode: int) -> None:
    weight = rand(4, 3, dtype=dtype)
    for last, padding in product((False, True), (-1, 1)):
        offsets = of(0, 2, 2, 6) if last else OFFSETS
        check_as_planned(
            oracle,
            op,
            arguments(weight=weight, offsets=offsets, mode=mode, include_last_offset=last, padding_idx=padding),
        )


@pytest.mark.parametrize("op", ["_embedding_bag", "_embedding_bag_forward_only"])
@pytest.mark.parametrize(
    "changes",
    [
        {"per_sample_weights": rand(6)}, {"per_sample_weights": rand(6), "padding_idx": 2},
        {"indices": NOTHING, "offsets": NOTHING}, {"indices": NOTHING, "offsets": of(0, 0), "mode": MAX},
        {"indices": NOTHING, "offsets": of(0, 0), "mode": MEAN},
        {"indices": of(1, 1, 1), "offsets": of(0, 2), "mode": MAX},
        {"indices": INDICES.int(), "offsets": OFFSETS.int(), "mode": MAX},
        {"indices": INDICES.int(), "offsets": OFFSETS.int(), "mode": MEAN},
        {"weight": of([nan, 1.0], [2.0, nan], [-inf, inf], [nan, nan]), "mode": MAX},
        {"weight": of([1.0, 1.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0]), "mode": MAX},
    ],
)  # fmt: skip
def test_embedding_bag_at_edges(oracle: Oracle, op: str, changes: dict[str, Any]) -> None:
    check_as_planned(oracle, op, arguments(**changes))


@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding_dense_backward(oracle: Oracle, dtype: torch.dtype) -> None:
    gradient = rand(2, 3, 5, dtype=dtype)
    for indices, padding, scaled in product(
        (of([0, 1, 1], [2, 1, 3]), of([3, 3, 3], [0, 0, 0]).int()), (-1, 1), (False, True)
    ):
        oracle.check("aten::embedding_dense_backward.out", gradient, indices, 4, padding, scaled)
    oracle.check("aten::embedding_dense_backward.out", rand(5, dtype=dtype), torch.tensor(2), 4, -1, False)
    oracle.check("aten::embedding_dense_backward.out", rand(0, 5, dtype=dtype), NOTHING, 4, -1, False)


# ---- segments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("initial", [None, 2])
def test_segment_reduce(oracle: Oracle, reduce: str, dtype: torch.dtype, initial: float | None) -> None:
    op, options = "aten::segment_reduce.out", {"initial": initial}
    oracle.check(op, rand(6, dtype=dtype), reduce, lengths=of(2, 0, 3, 1), **options)
    oracle.check(op, rand(6, 2, dtype=dtype), reduce, offsets=of(0, 2, 2, 6).int(), **options)
    oracle.check(op, rand(2, 3, 2, dtype=dtype), reduce, lengths=of([1, 2], [0, 3]), axis=1, **options)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce_at_edges(oracle: Oracle, reduce: str) -> None:
    op = "aten::segment_reduce.out"
    oracle.check(op, of(1.0, nan, 3.0), reduce, lengths=of(2, 0, 1))
    oracle.check(op, of(1.0, 5.0, 3.0), reduce, lengths=of(1, 1), unsafe=True)
    oracle.check(op, of(1.0, 5.0, 3.0), reduce, offsets=of(0, 1, 2))
    oracle.check(op, torch.zeros(0), reduce, lengths=of(0, 0))


# ---- refusals ---------------------------------------------------------------------------------------

W, I = np.zeros((4, 3), np.float32), np.array([0, 1, 2])  # noqa: E741
OUTS = [np.zeros((1, 3), np.float32), *(np.zeros(1, np.int64) for _ in range(3))]


@pytest.mark.parametrize(
    ("changes", "fault", "message"),
    [
        ({"indices": I + 2}, InvalidArgument, "argument 'indices' holds 4, but the dimension has size 4"),
        ({"indices": I[None]}, InvalidArgument, "argument 'indices' must have 1 dimensions"),
        ({"indices": W[0]}, InvalidType, "argument 'indices' must hold integers"),
        ({"weight": I[None]}, InvalidType, "argument 'weight' must be floating-point"),
        ({"offsets": I[1:]}, InvalidArgument, "argument 'offsets' must begin with 0, but begins with 1"),
        ({"offsets": I * 2}, InvalidArgument, "argument 'offsets' must ascend to at most 3"),
        ({"offsets": I[[0, 2, 1]]}, InvalidArgument, "argument 'offsets' must ascend to at most 3"),
        ({"mode": 3}, InvalidArgument, "argument 'mode' must be 0 (sum), 1 (mean) or 2 (max), but is 3"),
        ({"mode": 1, "per_sample_weights": W[0]}, InvalidArgument, "argument 'per_sample_weights' is for sums"),
        ({"per_sample_weights": W}, InvalidArgument, "argument 'per_sample_weights' must have shape (3,)"),
        ({"offsets": I[:0], "include_last_offset": True}, InvalidArgument, "argument 'offsets' must not be empty"),
        ({"padding_idx": 4}, InvalidArgument, "argument 'padding_idx' is 4, but 'weight' has 4 rows"),
    ],
)
def test_bags_refused(oracle: Oracle, changes: dict[str, Any], fault: type[Exception], message: str) -> None:
    inputs = arguments(**({"weight": W, "indices": I, "offsets": I[:1]} | changes))
    oracle.assert_refused("aten::_embedding_bag.out", inputs, OUTS, fault, message)


SEGMENTS = "aten::segment_reduce.out"


@pytest.mark.parametrize(
    ("op", "inputs", "fault", "message"),
    [
        ("aten::embedding_dense_backward.out", [W, I, 4, -1, False], InvalidArgument, "has no row for each of"),
        ("aten::embedding_dense_backward.out", [W, np.full(4, 9), 4, -1, False], InvalidArgument, "'indices' holds 9"),
        (SEGMENTS, [W, "sum", I, None, None, 0, False, None], InvalidArgument, "argument 'lengths' must sum to 4"),
        (SEGMENTS, [W, "sum", I * 9, None, None, 0, True, None], InvalidArgument, "argument 'lengths' has segments of"),
        (SEGMENTS, [W, "sum", -I, None, None, 0, True, None], InvalidArgument, "argument 'lengths' has segments of"),
        (SEGMENTS, [W, "sum", I, None, None, 1, False, None], InvalidArgument, "argument 'lengths' of shape (3,)"),
        (SEGMENTS, [W, "sum", None, None, None, 0, False, None], InvalidArgument, "one of the arguments 'lengths' and"),
        (SEGMENTS, [W, "sum", None, I, None, 0, False, None], InvalidArgument, "argument 'indices' must be None"),
        (SEGMENTS, [W, "median", I, None, None, 0, False, None], InvalidArgument, "argument 'reduce' must be one of"),
        (SEGMENTS, [I, "sum", I, None, None, 0, False, None], InvalidType, "argument 'data' must be floating-point"),
    ],
)  # fmt: skip
def test_refused(oracle: Oracle, op: str, inputs: list[Any], fault: type[Exception], message: str) -> None:
    with pytest.raises(fault, match=re.escape(message)) as caught:
        oracle.kernel(op, inputs, [np.zeros((4, 3), np.float32)], "run")
    assert str(caught.value).startswith(f"{op}: ")
