"""`dim_order_ops`: copies and empty tensors whose layout is a dim order instead of a memory format.

The names and schemas are those of ExecuTorch's runtime operators (`exir/passes/dim_order_ops_registry.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from delegraph.aot.edge.shared_operators import register_operators

__all__ = ["BY_DIM_ORDER", "dim_order"]

aten = torch.ops.aten

_TO: Final = (
    "_to_dim_order_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,"
    " bool? pin_memory=None, bool non_blocking=False, int[]? dim_order=None"
)
_CLONE: Final = "_clone_dim_order(Tensor self, *, bool non_blocking=False, int[]? dim_order=None"
_EMPTY: Final = (
    "_empty_dim_order(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,"
    " bool? pin_memory=None, int[]? dim_order=None"
)
_SCHEMAS: Final = (
    f"{_TO}) -> Tensor",
    "_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out)"
    " -> Tensor(a!)",
    f"{_CLONE}) -> Tensor",
    f"_clone_dim_order.out{_CLONE.removeprefix('_clone_dim_order')}, Tensor(a!) out) -> Tensor(a!)",
    f"{_EMPTY}) -> Tensor",
    "_empty_dim_order.out(SymInt[] size, *, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)",
)
"""ExecuTorch's, but for sizes: it has int[], which a fake tensor of dynamic shape cannot be made with."""


def dim_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dims of `tensor` from the outermost in memory to the innermost (ExecuTorch's dim order)."""
    return tuple(tensor.dim_order())


def _empty(
    size: Sequence[int], order: Sequence[int] | None, dtype: torch.dtype | None, device: torch.device | None = None
) -> torch.Tensor:
    """A tensor whose dims lie in this order, which is contiguous by default."""
    strides: list[int] = [0] * len(size)
    step = 1
    for dim in reversed(range(len(size)) if order is None else order):
        strides[dim] = step
        step = step * size[dim]
    return torch.empty_strided(tuple(size), strides, dtype=dtype, device=device)


def _copy(source: torch.Tensor, dtype: torch.dtype, order: Sequence[int] | None) -> torch.Tensor:
    order = dim_order(source) if order is None else order
    return _empty(source.shape, order, dtype=dtype, device=source.device).copy_(source)


def _to_dim_order_copy(
    self: torch.Tensor, *, dtype: torch.dtype | None = None, dim_order: Sequence[int] | None = None, **_: object
) -> torch.Tensor:
    return _copy(self, dtype or self.dtype, dim_order)


def _clone_dim_order(self: torch.Tensor, *, dim_order: Sequence[int] | None = None, **_: object) -> torch.Tensor:
    return _copy(self, self.dtype, dim_order)


def _empty_dim_order(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    dim_order: Sequence[int] | None = None,
    **_: object,
) -> torch.Tensor:
    return _empty(size, dim_order, dtype=dtype, device=device)


def _out(self: torch.Tensor, *, out: torch.Tensor, **_: object) -> torch.Tensor:
    return out.copy_(self)


def _resized(size: Sequence[int], *, out: torch.Tensor, **_: object) -> torch.Tensor:
    return out if list(out.shape) == list(size) else out.resize_(tuple(size))


_LIBRARIES: Final = register_operators(
    _SCHEMAS,
    {
        "_to_dim_order_copy": _to_dim_order_copy,
        "_to_dim_order_copy.out": _out,
        "_clone_dim_order": _clone_dim_order,
        "_clone_dim_order.out": _out,
        "_empty_dim_order": _empty_dim_order,
        "_empty_dim_order.out": _resized,
    },
    "dim_order_ops",
    "executorch.exir.passes.dim_order_ops_registry",
)

_OPS: Final = torch.ops.dim_order_ops
BY_DIM_ORDER: Final = {
    aten._to_copy.default: _OPS._to_dim_order_copy.default,
    aten.clone.default: _OPS._clone_dim_order.default,
    aten.empty.memory_format: _OPS._empty_dim_order.default,
}
"""torch's operator that takes a memory format -> the one that takes a dim order."""
