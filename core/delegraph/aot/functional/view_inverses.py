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

Call: TypeAlias = Callable[..., Value]
"""(operator, *args, **kwargs) -> the value of the call, added to the new graph."""

Inverse: TypeAlias = Callable[[Call, Value, Value, tuple[Any, ...], dict[str, Any]], Value]
"""(call, what is viewed, the view's new value, the view's further arguments) -> the new value of what is viewed."""


def _reshaped(call: Call, parent: Value, value: Value, _args: Any, _kwargs: Any) -> Value:
    return call(aten.reshape.default, value, _sizes(call, parent))


def _permuted(call: Call, parent: Value, value: Value, args: Any, _kwargs: Any) -> Value:
    order = [d % parent.meta["val"].dim() for d in args[0]]
    return call(aten.permute.default, value, [order.index(d) for d in range(len(order))])


def _again(op: OpOverload) -> Inverse:
    """The view is its own inverse."""
    return lambda call, _parent, value, args, kwargs: call(op, value, *args, **kwargs)


def _into(op: OpOverload) -> Inverse:
    """`op` puts the view, described by the same arguments, into what it views."""
    return lambda call, parent, value, args, kwargs: call(op, parent, value, *args, **kwargs)


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
    **{op: _again(op) for op in (aten.transpose.int, aten.t.default, aten._conj.default, aten._neg_view.default)},
    aten.view_as_real.default: lambda call, _p, value, _a, _k: call(aten.view_as_complex.default, value),
    aten.view_as_complex.default: lambda call, _p, value, _a, _k: call(aten.view_as_real.default, value),
    aten.view.dtype: lambda call, parent, value, _a, _k: call(aten.view.dtype, value, parent.meta["val"].dtype),
    aten.slice.Tensor: _into(aten.slice_scatter.default),
    aten.narrow.default: lambda call, parent, value, args, _k: call(
        aten.slice_scatter.default, parent, value, args[0], args[1], args[1] + args[2]
    ),
    aten.select.int: _into(aten.select_scatter.default),
    aten.diagonal.default: _into(aten.diagonal_scatter.default),
    aten.as_strided.default: _into(aten.as_strided_scatter.default),
}


def scatter_by_index(
    call: Call, view: OpOverload, parent: Value, value: Value, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Value:
    """`parent` once its view is `value`, whatever the view (unfold, expand …): the same view of the elements' numbers
    says which elements it shows.

        numbers = view(arange(numel).reshape(parent.shape))
        parent' = scatter(parent.reshape(-1), 0, numbers.reshape(-1), value.reshape(-1)).reshape(parent.shape)
    """
    sizes = _sizes(call, parent)
    flat = call(aten.reshape.default, parent, [-1])
    numbers = call(aten.arange.default, _sizes(call, flat)[0], dtype=torch.int64)
    shown = call(view, call(aten.reshape.default, numbers, sizes), *args, **kwargs)
    index, source = (call(aten.reshape.default, one, [-1]) for one in (shown, value))
    return call(aten.reshape.default, call(aten.scatter.src, flat, 0, index, source), sizes)


def _sizes(call: Call, value: Value) -> list[Any]:
    """The shape of `value`; a dynamic size as a value of the graph."""
    shape = value.meta["val"].shape
    return [n if isinstance(n, int) else call(aten.sym_size.int, value, dim) for dim, n in enumerate(shape)]


def scatter_piece(parent: Value, value: Value, pieces: Node, index: int) -> tuple[OpOverload, tuple[Any, ...]]:
    """`parent`, which `pieces` (split, chunk, unbind …) cut up, once piece `index` is `value`."""
    named = {argument.name: argument.default_value for argument in pieces.target._schema.arguments}  # type: ignore[union-attr]
    dim = dict(zip(named, pieces.args, strict=False)).get("dim", pieces.kwargs.get("dim", named["dim"]))
    if pieces.target is aten.unbind.int:
        return aten.select_scatter.default, (parent, value, dim, index)
    sizes = [piece.shape[dim] for piece in pieces.meta["val"]]
    start = sum(sizes[:index])
    return aten.slice_scatter.default, (parent, value, dim, start, start + sizes[index])
