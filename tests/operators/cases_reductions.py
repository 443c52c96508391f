"""Over dims: sums, means, extremes, any, products, variances, cumulative sums, sorting out the largest; products of
matrices and distances."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tests.operators.case import ALL, FLOATS, NUMBERS, Case, by_dtype, call, channels_last, function, special, tensor

aten = torch.ops.aten

X = (2, 3, 4)


def over_dims() -> Iterator[Case]:
    """Reductions whose dims are a list."""
    for name, overload, packet in (
        ("sum.IntList_out", "dim_IntList", aten.sum),
        ("mean.out", "dim", aten.mean),
        ("amax.out", "default", aten.amax),
        ("amin.out", "default", aten.amin),
        ("any.dims_out", "dims", aten.any),
    ):
        operator, target = f"aten::{name}", getattr(packet, overload)
        dtypes = FLOATS if name.startswith("mean") else ALL
        yield from by_dtype(operator, target, dtypes, lambda dtype: (tensor(*X, dtype=dtype), [1]))
        yield call(operator, "dim -1 keepdim", target, tensor(*X), [-1], True)
        yield call(operator, "two dims", target, tensor(*X), [0, -1])
        yield call(operator, "two dims keepdim", target, tensor(*X), [0, 2], True)
        yield call(operator, "all dims", target, tensor(*X), [0, 1, 2])
        yield call(operator, "no dims", target, tensor(*X), [])
        yield call(operator, "0-d", target, tensor(), [0])
        yield call(operator, "empty, dim left", target, tensor(0, 3), [1])
        yield call(operator, "channels_last", target, channels_last(2, 3, 4, 2), [2, 3], True)
        yield call(operator, "special values", target, special().reshape(2, 7), [1])
        yield call(operator, "float16 special values", target, special("float16").reshape(2, 7), [1])
        if not name.startswith("a") or name.startswith("any"):
            yield call(operator, "empty dim", target, tensor(3, 0), [1])
        if name[:3] in ("sum", "mea", "any"):
            yield call(operator, "dims None", target, tensor(*X), None)
    for dtype in ("float64", "int32", "float16"):
        kind = getattr(torch, dtype)
        yield call("aten::sum.IntList_out", f"dtype {dtype}", aten.sum.dim_IntList, tensor(*X), [1], dtype=kind)
    yield call("aten::sum.IntList_out", "bool to int64", aten.sum.dim_IntList, tensor(*X, dtype="bool"), [0, 1])
    yield call("aten::sum.IntList_out", "many float16", aten.sum.dim_IntList, tensor(3, 500, dtype="float16"), [1])
    yield call("aten::mean.out", "dtype", aten.mean.dim, tensor(*X, dtype="int64"), [1], dtype=torch.float32)
    for dtype in FLOATS:
        yield call("aten::mean.dtype_out", dtype, aten.mean.default, tensor(*X, dtype=dtype))
    yield call(
        "aten::mean.dtype_out", "int64 to float32", aten.mean.default, tensor(4, dtype="int64"), dtype=torch.float32
    )
    yield call("aten::mean.dtype_out", "0-d", aten.mean.default, tensor())
    yield call("aten::mean.dtype_out", "empty", aten.mean.default, tensor(0))


def over_one_dim() -> Iterator[Case]:
    """Reductions of one dim or all elements; those that give indices too."""
    for name in ("max", "min"):
        packet = getattr(aten, name)
        one, all_of = f"aten::{name}.dim_{name}", f"aten::{name}.unary_out"
        yield from by_dtype(one, packet.dim, ALL, lambda dtype: (tensor(*X, dtype=dtype), 1))
        yield call(one, "dim -1 keepdim", packet.dim, tensor(*X), -1, True)
        yield call(one, "0-d", packet.dim, tensor(), 0)
        yield call(one, "ties", packet.dim, torch.tensor([[1.0, 2.0, 2.0], [3.0, 1.0, 3.0]]), 1)
        yield call(one, "NaN", packet.dim, special().reshape(2, 7), 1)
        yield call(one, "empty, dim left", packet.dim, tensor(0, 3), 1)
        yield from by_dtype(all_of, packet.default, ALL, lambda dtype: (tensor(*X, dtype=dtype),))
        yield call(all_of, "0-d", packet.default, tensor())
        yield call(all_of, "NaN", packet.default, special())
        yield call(all_of, "infinities", packet.default, torch.tensor([float("-inf"), float("-inf")]))
    for name in ("argmax", "argmin"):
        operator, target = f"aten::{name}.out", getattr(aten, name).default
        yield from by_dtype(operator, target, NUMBERS, lambda dtype: (tensor(*X, dtype=dtype), 1))
        yield call(operator, "dim None", target, tensor(*X))
        yield call(operator, "dim None keepdim", target, tensor(*X), None, True)
        yield call(operator, "dim -1 keepdim", target, tensor(*X), -1, True)
        yield call(operator, "ties", target, torch.tensor([[1.0, 2.0, 2.0], [3.0, 1.0, 1.0]]), 1)
        yield call(operator, "NaN", target, special().reshape(2, 7), 1)
        yield call(operator, "0-d", target, tensor(), 0)
    yield from by_dtype("aten::any.out", aten.any.dim, ALL, lambda dtype: (tensor(*X, dtype=dtype), 1))
    yield call("aten::any.out", "dim -1 keepdim", aten.any.dim, tensor(*X, dtype="bool"), -1, True)
    yield call("aten::any.out", "empty dim", aten.any.dim, tensor(3, 0), 1)
    yield call("aten::any.out", "0-d", aten.any.dim, tensor(), 0)
    yield call("aten::any.out", "NaN", aten.any.dim, special()[:5].reshape(1, 5), 1)
    yield from by_dtype("aten::any.all_out", aten.any.default, ALL, lambda dtype: (tensor(*X, dtype=dtype),))
    yield call("aten::any.all_out", "nothing", aten.any.default, torch.zeros(3))
    yield call("aten::any.all_out", "empty", aten.any.default, tensor(0))
    yield from by_dtype("aten::prod.int_out", aten.prod.dim_int, ALL, lambda dtype: (tensor(*X, dtype=dtype), 1))
    yield call("aten::prod.int_out", "dim -1 keepdim", aten.prod.dim_int, tensor(*X), -1, True)
    yield call("aten::prod.int_out", "empty dim", aten.prod.dim_int, tensor(3, 0), 1)
    yield call("aten::prod.int_out", "dtype", aten.prod.dim_int, tensor(*X), 1, dtype=torch.float64)
    yield from by_dtype("aten::prod.out", aten.prod.default, ALL, lambda dtype: (tensor(2, 3, dtype=dtype),))
    yield call("aten::prod.out", "0-d", aten.prod.default, tensor())
    yield call("aten::prod.out", "empty", aten.prod.default, tensor(0))
    operator, target = "aten::cumsum.out", aten.cumsum.default
    yield from by_dtype(operator, target, ALL, lambda dtype: (tensor(*X, dtype=dtype), 1))
    yield call(operator, "dim -1", target, tensor(*X), -1)
    yield call(operator, "dtype", target, tensor(*X, dtype="int32"), 0, dtype=torch.float32)
    yield call(operator, "0-d", target, tensor(), 0)
    yield call(operator, "empty", target, tensor(0, 3), 0)
    yield call(operator, "NaN", target, special(), 0)
    operator, target = "aten::topk.values", aten.topk.default
    yield from by_dtype(operator, target, NUMBERS, lambda dtype: (_distinct(3, 6, dtype), 2))
    yield call(operator, "smallest", target, _distinct(3, 6), 3, 1, False)
    yield call(operator, "dim 0", target, _distinct(4, 5).T.contiguous(), 2, 0)
    yield call(operator, "all of them", target, _distinct(2, 5), 5)
    yield call(operator, "none of them", target, _distinct(2, 5), 0)
    yield call(operator, "NaN", target, torch.tensor([1.0, float("nan"), 3.0, 2.0]), 2)
    yield function(operator, "unsorted", lambda x: x.topk(3, sorted=False)[0].sum(-1), _distinct(3, 6))


def _distinct(rows: int, columns: int, dtype: str = "float32") -> torch.Tensor:
    """Without ties, whose order torch leaves open."""
    values = torch.stack([torch.randperm(columns, generator=torch.Generator().manual_seed(i)) for i in range(rows)])
    return (values - (0 if dtype == "uint8" else 2)).to(getattr(torch, dtype))


def variances() -> Iterator[Case]:
    operator, target = "aten::var.correction_out", aten.var.correction
    both = "aten::var_mean.correction_out"
    for dtype in FLOATS:
        yield call(operator, dtype, target, tensor(*X, dtype=dtype), [1], correction=1)
        yield call(both, dtype, aten.var_mean.correction, tensor(*X, dtype=dtype), [1], correction=1)
        yield call("aten::var.out", dtype, aten.var.dim, tensor(*X, dtype=dtype), [1])
    for name, one in ((operator, target), (both, aten.var_mean.correction)):
        yield call(name, "correction 0", one, tensor(*X), [0, 2], correction=0)
        yield call(name, "correction 2.5", one, tensor(*X), [-1], correction=2.5)
        yield call(name, "keepdim", one, tensor(*X), [1], correction=1, keepdim=True)
        yield call(name, "all dims", one, tensor(*X))
        yield call(name, "one element", one, tensor(3, 1), [1])
        yield call(name, "empty dim", one, tensor(3, 0), [1])
        yield call(name, "NaN", one, special().reshape(2, 7), [1])
    yield call("aten::var.out", "biased", aten.var.dim, tensor(*X), [1], False)
    yield call("aten::var.out", "biased keepdim", aten.var.dim, tensor(*X), [0, 1], False, True)
    yield call("aten::var.out", "dims None", aten.var.dim, tensor(*X), None)


def matrices() -> Iterator[Case]:
    """Products of matrices, and distances between rows."""
    for dtype in NUMBERS:
        a, b = tensor(3, 4, dtype=dtype), tensor(4, 5, dtype=dtype)
        yield call("aten::mm.out", dtype, aten.mm.default, a, b)
        yield call("aten::bmm.out", dtype, aten.bmm.default, tensor(2, 3, 4, dtype=dtype), tensor(2, 4, 5, dtype=dtype))
        yield call("aten::addmm.out", dtype, aten.addmm.default, tensor(5, dtype=dtype), a, b)
        yield call("aten::linear.out", dtype, aten.linear.default, a, tensor(5, 4, dtype=dtype))
    for dtype in FLOATS:
        weight, bias = tensor(5, 4, dtype=dtype), tensor(5, dtype=dtype)
        yield call("aten::linear.out", f"bias {dtype}", aten.linear.default, tensor(2, 3, 4, dtype=dtype), weight, bias)
    for name, target, first, second in (
        ("aten::mm.out", aten.mm.default, (0, 4), (4, 5)),
        ("aten::bmm.out", aten.bmm.default, (2, 0, 4), (2, 4, 5)),
    ):
        yield call(name, "no rows", target, tensor(*first), tensor(*second))
        inner = (*first[:-2], 3, 0), (*second[:-2], 0, 5)
        yield call(name, "no inner dim", target, tensor(*inner[0]), tensor(*inner[1]))
    yield call("aten::mm.out", "larger", aten.mm.default, tensor(40, 70), tensor(70, 50))
    yield call(
        "aten::mm.out",
        "larger float16",
        aten.mm.default,
        tensor(40, 70, dtype="float16"),
        tensor(70, 50, dtype="float16"),
    )
    yield call("aten::mm.out", "NaN times zero", aten.mm.default, special()[:, None], torch.zeros(1, 2))
    add = aten.addmm.default
    yield call("aten::addmm.out", "alpha and beta", add, tensor(3, 5), tensor(3, 4), tensor(4, 5), beta=0.5, alpha=2.0)
    yield call("aten::addmm.out", "column", add, tensor(3, 1), tensor(3, 4), tensor(4, 5))
    yield call("aten::addmm.out", "0-d", add, tensor(), tensor(3, 4), tensor(4, 5))
    yield call(
        "aten::addmm.out", "beta 0 and NaN", add, torch.full((3, 5), torch.nan), tensor(3, 4), tensor(4, 5), beta=0
    )
    yield call(
        "aten::addmm.out",
        "int64 alpha",
        add,
        tensor(5, dtype="int64"),
        tensor(3, 4, dtype="int64"),
        tensor(4, 5, dtype="int64"),
        alpha=2,
    )
    yield call("aten::linear.out", "one row", aten.linear.default, tensor(4), tensor(5, 4))
    yield call("aten::linear.out", "one row and bias", aten.linear.default, tensor(4), tensor(5, 4), tensor(5))
    yield call("aten::linear.out", "empty", aten.linear.default, tensor(0, 4), tensor(5, 4))
    cdist, pdist = aten._cdist_forward.default, aten._pdist_forward.default
    for dtype in ("float32", "float64"):
        for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
            a, b = tensor(2, 4, 3, dtype=dtype), tensor(2, 5, 3, dtype=dtype)
            yield call("aten::_cdist_forward.out", f"p={p} {dtype}", cdist, a, b, p, None)
            yield call("aten::_pdist_forward.out", f"p={p} {dtype}", pdist, tensor(4, 3, dtype=dtype), p)
    yield call("aten::_cdist_forward.out", "broadcast", cdist, tensor(4, 3), tensor(2, 5, 3), 2.0, None)
    yield call("aten::_cdist_forward.out", "no columns", cdist, tensor(4, 0), tensor(5, 0), 2.0, None)
    yield call("aten::_cdist_forward.out", "no rows", cdist, tensor(0, 3), tensor(5, 3), 2.0, None)
    yield call("aten::_cdist_forward.out", "by matrix product", cdist, tensor(40, 3), tensor(40, 3, seed=1), 2.0, 1)
    yield call("aten::_pdist_forward.out", "one row", pdist, tensor(1, 3), 2.0)


def reduction_cases() -> Iterator[Case]:
    yield from over_dims()
    yield from over_one_dim()
    yield from variances()
    yield from matrices()
