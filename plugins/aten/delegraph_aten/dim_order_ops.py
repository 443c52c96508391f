"""`dim_order_ops::*`: ExecuTorch's copies into a dim order, which torch has no operators for.

The out tensor has its dim order already (`exir/passes/dim_order_ops_registry.py` has the schemas).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch


def _copy(self: torch.Tensor, *, non_blocking: bool, dim_order: Sequence[int] | None, out: torch.Tensor) -> None:
    _check(dim_order, self.dim())
    if out.shape != self.shape:
        out.resize_(self.shape)
    out.copy_(self)


def _empty(size: Sequence[int], *, dim_order: Sequence[int] | None, out: torch.Tensor) -> None:
    _check(dim_order, len(size))
    if list(out.shape) != list(size):
        out.resize_(size)


def _check(dim_order: Sequence[int] | None, rank: int) -> None:
    if dim_order is not None and sorted(dim_order) != list(range(rank)):
        raise ValueError(f"argument 'dim_order' {list(dim_order)} is no order of {rank} dimensions")


_OUT: Final = "int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)"

DIM_ORDER_OPS: Final[dict[str, tuple[str, Callable[..., None]]]] = {
    f"dim_order_ops::{name}.out": (f"dim_order_ops::{name}.out({arguments}{_OUT}", function)
    for name, arguments, function in (
        ("_to_dim_order_copy", "Tensor self, *, bool non_blocking=False, ", _copy),
        ("_clone_dim_order", "Tensor self, *, bool non_blocking=False, ", _copy),
        ("_empty_dim_order", "int[] size, *, ", _empty),
    )
}
"""Name in a program -> schema, and the function."""
