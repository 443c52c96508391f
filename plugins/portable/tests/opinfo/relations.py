"""Operators whose results are not determined by their arguments -> what must hold of the results nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from plugins.portable.tests.opinfo.record import Call

__all__ = ["NOT_UNIQUE", "RANDOM", "UNINITIALISED"]

Relation: TypeAlias = Callable[[Call, list[torch.Tensor]], None]
"""Asserts something of (call, the kernel's outputs), whose shapes and dtypes are torch's."""

UNINITIALISED: Final = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
) | {"dim_order_ops::_empty_dim_order"}
"""Only shape and dtype of their results are theirs."""


# ---- random numbers --------------------------------------------------------------------------------


def _argument(call: Call, name: str, default: Any = None) -> Any:
    """The argument `name` of the call."""
    for position, argument in enumerate(call.function._schema.arguments):
        if argument.name == name:
            given = call.args[position] if position < len(call.args) else call.kwargs.get(name)
            return argument.default_value if given is None else given
    return default


def _between(low: float, high: float) -> Relation:
    def relation(call: Call, actual: list[torch.Tensor]) -> None:
        (values,) = actual
        values = torch.view_as_real(values) if values.is_complex() else values.double()
        assert ((values >= low) & (values <= high)).all(), f"not between {low} and {high}: {values}"

    return relation


def _finite(call: Call, actual: list[torch.Tensor]) -> None:
    assert all(torch.isfinite(values).all() for values in actual), actual


def _not_negative(call: Call, actual: list[torch.Tensor]) -> None:
    (values,) = actual
    assert (values >= 0).all(), values


def _uniform(call: Call, actual: list[torch.Tensor]) -> None:
    _between(_argument(call, "from"), _argument(call, "to"))(call, actual)


def _integers(call: Call, actual: list[torch.Tensor]) -> None:
    high = _argument(call, "high")
    high = high.item() if isinstance(high, torch.Tensor) else high
    _between(_argument(call, "low", 0), high - 1)(call, actual)


def _permutation(call: Call, actual: list[torch.Tensor]) -> None:
    (order,) = actual
    assert torch.equal(order.sort().values, torch.arange(len(order), dtype=order.dtype)), order


def _draws(call: Call, actual: list[torch.Tensor]) -> None:
    (chosen,) = actual
    weights, replacement = call.args[0], _argument(call, "replacement")
    assert (weights.gather(-1, chosen) > 0).all() or not replacement, f"impossible outcomes: {chosen}"
    if not replacement:
        assert all(len(row.unique()) == len(row) for row in chosen.reshape(-1, chosen.shape[-1])), chosen


def _dropped(call: Call, actual: list[torch.Tensor]) -> None:
    """Elements are zero, or scaled by 1 / (1 - p) where the mask is true."""
    source, p, train = call.args
    values, mask = actual
    scale = 1.0 if train is False or p == 1 else 1 / (1 - p)
    torch.testing.assert_close(values, torch.where(mask, source * scale, torch.zeros_like(source)), equal_nan=True)


def _bernoulli(call: Call, actual: list[torch.Tensor]) -> None:
    (values,) = actual
    assert ((values == 0) | (values == 1)).all(), values


RANDOM: Final[dict[str, Relation]] = {
    "aten::rand": _between(0, 1),
    "aten::rand_like": _between(0, 1),
    "aten::randn": _finite,
    "aten::randn_like": _finite,
    "aten::normal": _finite,
    "aten::normal_functional": _finite,
    "aten::randint": _integers,
    "aten::randint_like": _integers,
    "aten::randperm": _permutation,
    "aten::uniform": _uniform,
    "aten::exponential": _not_negative,
    "aten::geometric": _not_negative,
    "aten::cauchy": _finite,
    "aten::log_normal": _not_negative,
    "aten::poisson": _not_negative,
    "aten::binomial": _not_negative,
    "aten::bernoulli": _bernoulli,
    "aten::multinomial": _draws,
    "aten::native_dropout": _dropped,
}
"""Operator -> what holds of its draws."""


# ---- results that are not unique -------------------------------------------------------------------


def _chosen(call: Call, actual: list[torch.Tensor]) -> None:
    """Values are torch's; which of equal ones an index names is left open, unless a stable order is asked for."""
    values, indices = actual
    exact(values, call.result[0])
    if _argument(call, "stable", False):
        return exact(indices, call.result[1])
    source, dim = _signed(call.args[0]), _argument(call, "dim", -1)
    if _argument(call, "keepdim") is False and source.dim():
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    exact(source.gather(dim, indices) if source.dim() else source, _signed(values))
    if call.op.startswith(("aten::sort", "aten::topk")) and source.dim():
        order = indices.sort(dim).values
        assert (order.diff(dim=dim) > 0).all(), f"an element is chosen twice: {indices}"
    return None


def _signed(values: torch.Tensor) -> torch.Tensor:
    """Values of the dtypes that torch cannot index, in one that it can."""
    return values.to(torch.int64) if values.dtype in (torch.uint16, torch.uint32, torch.uint64) else values


def exact(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def _near(actual: torch.Tensor, expected: torch.Tensor, matrix: torch.Tensor) -> None:
    """Equal up to the backward error of a factorisation: 10 n eps |A|."""
    n = max(1, *matrix.shape[-2:])
    size = float(torch.linalg.vector_norm(matrix)) if matrix.numel() else 0.0
    torch.testing.assert_close(actual, expected, rtol=0, atol=10 * n * torch.finfo(matrix.dtype).eps * max(size, 1.0))


def _orthonormal(columns: torch.Tensor) -> None:
    product = columns.mH @ columns
    _near(product, torch.eye(product.shape[-1], dtype=product.dtype).expand_as(product), product)


def _singular_values(call: Call, actual: list[torch.Tensor]) -> None:
    matrix, (u, s, vh) = call.args[0], actual
    _near(s, call.result[1], matrix)
    if _argument(call, "compute_uv"):
        k = s.shape[-1]
        _near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], matrix, matrix)
        _orthonormal(u)
        _orthonormal(vh.mH)


def _hermitian_eigenvalues(call: Call, actual: list[torch.Tensor]) -> None:
    matrix, (values, vectors) = call.args[0], actual
    _near(values, call.result[0], matrix)
    if _argument(call, "compute_v"):
        wanted = call.result[1]
        expected = wanted * call.result[0][..., None, :] @ wanted.mH
        _near(vectors * values[..., None, :] @ vectors.mH, expected, matrix)
        _orthonormal(vectors)


def _eigenvalues(call: Call, actual: list[torch.Tensor]) -> None:
    values, vectors = actual
    matrix = call.args[0].to(values.dtype)
    _near(matrix @ vectors, vectors * values[..., None, :], matrix)
    _near(vectors.norm(dim=-2), torch.ones(values.shape, dtype=values.real.dtype), matrix)
    _near(values.sum(-1), matrix.diagonal(dim1=-2, dim2=-1).sum(-1), matrix)


def _determinant(call: Call, actual: list[torch.Tensor]) -> None:
    """torch factorises the matrix or its transpose, as it lies in memory."""
    matrix, (lu, pivots) = call.args[0], actual[-2:]
    for value, expected in zip(actual[:-2], call.result[:-2], strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-4 if value.element_size() <= 8 else 1e-7, atol=1e-5)
    p, lower, upper = torch.lu_unpack(lu, pivots)
    product = p @ lower @ upper
    try:
        _near(product, matrix, matrix)
    except AssertionError:
        _near(product, matrix.mT, matrix)


NOT_UNIQUE: Final[dict[str, Relation]] = {
    "aten::sort": _chosen,
    "aten::topk": _chosen,
    "aten::kthvalue": _chosen,
    "aten::mode": _chosen,
    "aten::median.dim_values": _chosen,
    "aten::nanmedian.dim_values": _chosen,
    "aten::_linalg_svd": _singular_values,
    "aten::_linalg_eigh": _hermitian_eigenvalues,
    "aten::linalg_eig": _eigenvalues,
    "aten::_linalg_det": _determinant,
    "aten::_linalg_slogdet": _determinant,
}
"""Operator, or kernel -> what holds of its results."""
