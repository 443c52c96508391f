"""Operators whose results are not determined by their arguments -> what must hold of the results nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from tests.kernels.factorizations import (
    assert_eigenvalues,
    assert_exponential,
    assert_hermitian_eigenvalues,
    assert_ldl,
    assert_lu,
    assert_near,
    assert_qr,
    assert_reflections,
    assert_singular_values,
)
from tests.kernels.opinfo.record import Call

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


def _singular_values(call: Call, actual: list[torch.Tensor]) -> None:
    matrix, (u, s, vh) = call.args[0], actual
    assert_near(s, call.result[1], matrix)
    if _argument(call, "compute_uv"):
        assert_singular_values(matrix, u, s, vh)


def _hermitian_eigenvalues(call: Call, actual: list[torch.Tensor]) -> None:
    matrix, (values, vectors) = call.args[0], actual
    assert_near(values, call.result[0], matrix)
    if _argument(call, "compute_v"):
        wanted = call.result[1]
        assert_hermitian_eigenvalues(wanted * call.result[0][..., None, :] @ wanted.mH, values, vectors)


def _eigenvalues(call: Call, actual: list[torch.Tensor]) -> None:
    assert_eigenvalues(call.args[0], *actual)


def _exponential(call: Call, actual: list[torch.Tensor]) -> None:
    assert_exponential(call.args[0], *actual)


def _orthogonal(call: Call, actual: list[torch.Tensor]) -> None:
    assert_qr(call.args[0], *actual)


def _reflections(call: Call, actual: list[torch.Tensor]) -> None:
    assert_reflections(call.args[0], *actual)


def _lu_factors(call: Call, actual: list[torch.Tensor]) -> None:
    lu, pivots, info = actual
    exact(info, call.result[2])
    assert_lu(call.args[0], lu, pivots)


def _lu(call: Call, actual: list[torch.Tensor]) -> None:
    p, lower, upper = actual
    exact(p.mT @ p, torch.eye(p.shape[-1], dtype=p.dtype).expand_as(p))
    exact(lower, lower.tril())
    exact(upper, upper.triu())
    assert_near(p @ lower @ upper, call.args[0], call.args[0])


def _ldl_factors(call: Call, actual: list[torch.Tensor]) -> None:
    ld, pivots, info = actual
    exact(info, call.result[2])
    if not info.any():
        assert_ldl(call.args[0], ld, pivots, bool(_argument(call, "hermitian")))


def _solution(call: Call, actual: list[torch.Tensor]) -> None:
    """The solution, and the factors of the matrix or its transpose."""
    x, lu, pivots, info = actual
    exact(info, call.result[3])
    torch.testing.assert_close(x, call.result[0], **_of_solutions(x))
    _assert_lu_of_either(call.args[0], lu, pivots)


def _determinant(call: Call, actual: list[torch.Tensor]) -> None:
    for value, expected in zip(actual[:-2], call.result[:-2], strict=True):
        torch.testing.assert_close(value, expected, **_of_solutions(value))
    _assert_lu_of_either(call.args[0], *actual[-2:])


def _of_solutions(values: torch.Tensor) -> dict[str, float]:
    """Tolerances where the condition of the matrix counts."""
    return {"rtol": 1e-4 if values.element_size() <= 4 * (1 + values.is_complex()) else 1e-7, "atol": 1e-5}


def _assert_lu_of_either(matrix: torch.Tensor, lu: torch.Tensor, pivots: torch.Tensor) -> None:
    """torch factorises the matrix or its transpose, as it lies in memory."""
    try:
        assert_lu(matrix, lu, pivots)
    except AssertionError:
        assert_lu(matrix.mT, lu, pivots)


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
    "aten::linalg_matrix_exp": _exponential,
    "aten::linalg_qr": _orthogonal,
    "aten::geqrf": _reflections,
    "aten::linalg_lu_factor_ex": _lu_factors,
    "aten::linalg_lu": _lu,
    "aten::linalg_ldl_factor_ex": _ldl_factors,
    "aten::_linalg_solve_ex": _solution,
    "aten::_linalg_det": _determinant,
    "aten::_linalg_slogdet": _determinant,
}
"""Operator, or kernel -> what holds of its results."""
