"""A view and a new value of it -> the call that gives the tensor it views its new value.

What torch calls view inverses (`aten/src/ATen/FunctionalInverses.cpp`), for the views that a program can write
through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Node

__all__ = ["VIEW_INVERSES", "scatter_piece"]

aten = torch.ops.aten

Value: TypeAlias = Any
"""A graph value of the new graph."""

Inverse: TypeAlias = Callable[[Value, Any, Value, tuple[Any, ...], dict[str, Any]], tuple[OpOverload, tuple[Any, ...]]]


def _reshaped(_parent: Value, val: Any, value: Value, _args: Any, _kwargs: Any) -> tuple[OpOverload, tuple[Any, ...]]:
    return aten.reshape.default, (value, list(val.shape))


def _permuted(_parent: Value, val: Any, value: Value, args: Any, _kwargs: Any) -> tuple[OpOverload, tuple[Any, ...]]:
    order = [d % val.dim() for d in args[0]]
    return aten.permute.default, (value, [order.index(d) for d in range(len(order))])


VIEW_INVERSES: Final[dict[Any, Inverse]] = {
    **dict.fromkeys(
        (
            aten.view.default,
            aten.reshape.default,
            aten._unsafe_view.default,
            aten.flatten.using_ints,
            aten.unflatten.int,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.unsqueeze.default,
        ),
        _reshaped,
    ),
    aten.permute.default: _permuted,
    aten.transpose.int: lambda _p, _v, value, args, _k: (aten.transpose.int, (value, *args)),
    aten.t.default: lambda _p, _v, value, _a, _k: (aten.t.default, (value,)),
    aten.slice.Tensor: lambda parent, _v, value, args, _k: (aten.slice_scatter.default, (parent, value, *args)),
    aten.narrow.default: lambda parent, _v, value, args, _k: (
        aten.slice_scatter.default,
        (parent, value, args[0], args[1], args[1] + args[2]),
    ),
    aten.select.int: lambda parent, _v, value, args, _k: (aten.select_scatter.default, (parent, value, *args)),
    aten.diagonal.default: lambda parent, _v, value, args, _k: (aten.diagonal_scatter.default, (parent, value, *args)),
    aten.as_strided.default: lambda parent, _v, value, args, _k: (
        aten.as_strided_scatter.default,
        (parent, value, *args),
    ),
}


def scatter_piece(parent: Value, value: Value, pieces: Node, index: int) -> tuple[OpOverload, tuple[Any, ...]]:
    """`parent`, which `pieces` (split, chunk, unbind …) cut up, once piece `index` is `value`."""
    named = {argument.name: argument.default_value for argument in pieces.target._schema.arguments}  # type: ignore[union-attr]
    dim = dict(zip(named, pieces.args, strict=False)).get("dim", pieces.kwargs.get("dim", named["dim"]))
    if pieces.target is aten.unbind.int:
        return aten.select_scatter.default, (parent, value, dim, index)
    sizes = [piece.shape[dim] for piece in pieces.meta["val"]]
    start = sum(sizes[:index])
    return aten.slice_scatter.default, (parent, value, dim, start, start + sizes[index])
