"""The view operators, one row each: the form that copies, what a write through the view does, whether bytes stay.

    y = x.select(0, 1)                      view      aten.select.int
    y = aten.select_copy.int(x, 0, 1)       copy      the edge dialect has no aliases
    y.add_(1)  ->  x = aten.select_scatter.default(x, aten.add.Tensor(y, 1), 0, 1)     inverse
    one element selected of one: y has the bytes of x                                  keeps_order

Inverses are what torch calls view inverses (`aten/src/ATen/FunctionalInverses.cpp`), for the views that a program can
write through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.graph.fake_values import Args, Kwargs, fake_tensor

__all__ = [
    "COPY_TO_VIEW",
    "KEEP_ORDER",
    "VIEW_INVERSES",
    "VIEW_OPERATORS",
    "VIEW_TO_COPY",
    "ViewOperator",
    "scatter_by_index",
    "scatter_piece",
    "scatter_shown",
    "sizes_of",
]

aten = torch.ops.aten

Call: TypeAlias = Callable[..., Argument]
"""(operator, *args, **kwargs) -> the value of the call, added to the new graph."""

Inverse: TypeAlias = Callable[[Call, Argument, Argument, Sequence[Any], Kwargs], Argument]
"""(call, what is viewed, the view's new value, the view's further arguments) -> the new value of what is viewed."""


def _reshaped(call: Call, parent: Argument, value: Argument, _args: Args, _kwargs: Kwargs) -> Argument:
    return call(aten.reshape.default, value, sizes_of(call, parent))


def _permuted(call: Call, parent: Argument, value: Argument, args: Sequence[Any], _kwargs: Kwargs) -> Argument:
    order = [d % fake_tensor(parent).dim() for d in args[0]]  # the inverse permutation: where each dim came from
    return call(aten.permute.default, value, [order.index(d) for d in range(len(order))])


def _again(op: OpOverload) -> Inverse:
    """The view is its own inverse."""
    return lambda call, _parent, value, args, kwargs: call(op, value, *args, **kwargs)


def _into(op: OpOverload) -> Inverse:
    """`op` puts the view, described by the same arguments, into what it views."""
    return lambda call, parent, value, args, kwargs: call(op, parent, value, *args, **kwargs)


def _narrowed(call: Call, parent: Argument, value: Argument, args: Sequence[Any], _kwargs: Kwargs) -> Argument:
    return call(aten.slice_scatter.default, parent, value, args[0], args[1], args[1] + args[2])


def _of_dtype(call: Call, parent: Argument, value: Argument, _args: Args, _kwargs: Kwargs) -> Argument:
    return call(aten.view.dtype, value, fake_tensor(parent).dtype)


def _by(op: OpOverload) -> Inverse:
    """`op` of the view alone."""
    return lambda call, _parent, value, _args, _kwargs: call(op, value)


@dataclass(frozen=True, slots=True)
class ViewOperator:
    """`copy` is the operator that gives the same elements in new memory (None: core ATen has no such view).

    `inverse` makes the calls that give the viewed tensor its new value (None: `scatter_by_index`, `scatter_piece` do).
    `keeps_order`: the elements come in the order of the input's, so that where their number is the same, so are the
    bytes.
    """

    view: OpOverload
    copy: OpOverload | None = None
    inverse: Inverse | None = None
    keeps_order: bool = False


VIEW_OPERATORS: Final = (
    ViewOperator(aten.view.default, aten.view_copy.default, _reshaped, True),
    ViewOperator(aten._unsafe_view.default, aten.view_copy.default, _reshaped, True),
    ViewOperator(aten.reshape.default, aten.view_copy.default, _reshaped, True),
    ViewOperator(aten._reshape_copy.default, aten.view_copy.default, None, True),
    ViewOperator(aten.flatten.using_ints, None, _reshaped, True),
    ViewOperator(aten.unflatten.int, None, _reshaped, True),
    ViewOperator(aten.squeeze.default, aten.squeeze_copy.default, _reshaped, True),
    ViewOperator(aten.squeeze.dim, aten.squeeze_copy.dim, _reshaped, True),
    ViewOperator(aten.squeeze.dims, aten.squeeze_copy.dims, _reshaped, True),
    ViewOperator(aten.unsqueeze.default, aten.unsqueeze_copy.default, _reshaped, True),
    ViewOperator(aten.permute.default, aten.permute_copy.default, _permuted),
    ViewOperator(aten.transpose.int, None, _again(aten.transpose.int)),
    ViewOperator(aten.t.default, None, _again(aten.t.default)),
    ViewOperator(aten._conj.default, None, _again(aten._conj.default)),
    ViewOperator(aten._neg_view.default, None, _again(aten._neg_view.default)),
    ViewOperator(aten.expand.default, aten.expand_copy.default, None, True),
    ViewOperator(aten.slice.Tensor, aten.slice_copy.Tensor, _into(aten.slice_scatter.default), True),
    ViewOperator(aten.narrow.default, aten.narrow_copy.default, _narrowed, True),
    ViewOperator(aten.select.int, aten.select_copy.int, _into(aten.select_scatter.default), True),
    ViewOperator(aten.diagonal.default, aten.diagonal_copy.default, _into(aten.diagonal_scatter.default)),
    ViewOperator(aten.as_strided.default, aten.as_strided_copy.default, _into(aten.as_strided_scatter.default)),
    ViewOperator(aten.unfold.default, aten.unfold_copy.default),
    ViewOperator(aten.split.Tensor, aten.split_copy.Tensor),
    ViewOperator(aten.split_with_sizes.default, aten.split_with_sizes_copy.default),
    ViewOperator(aten.unbind.int, aten.unbind_copy.int),
    ViewOperator(aten.view_as_real.default, aten.view_as_real_copy.default, _by(aten.view_as_complex.default)),
    ViewOperator(aten.view_as_complex.default, aten.view_as_complex_copy.default, _by(aten.view_as_real.default)),
    ViewOperator(aten.view.dtype, aten.view_copy.dtype, _of_dtype),
    ViewOperator(aten.alias.default, aten.alias_copy.default, None, True),
    ViewOperator(aten.detach.default, aten.detach_copy.default, None, True),
    ViewOperator(aten.lift_fresh.default, aten.lift_fresh_copy.default, None, True),
)

VIEW_TO_COPY: Final = {row.view: row.copy for row in VIEW_OPERATORS if row.copy is not None}
"""The alias-free twin of each view operator that functional core ATen may hold."""

COPY_TO_VIEW: Final = {row.copy: row.view for row in VIEW_OPERATORS if row.copy is not None and row.view.is_view}
"""A view operator of each twin: of fake tensors with symbolic sizes most twins give nothing, for they want numbers."""

VIEW_INVERSES: Final[dict[object, Inverse]] = {
    row.view: row.inverse for row in VIEW_OPERATORS if row.inverse is not None
}

KEEP_ORDER: Final = frozenset(row.copy for row in VIEW_OPERATORS if row.keeps_order and row.copy)
"""Copies of views whose elements come in the order of the input's."""


def scatter_by_index(
    call: Call, view: OpOverload, parent: Argument, value: Argument, args: Args, kwargs: Kwargs
) -> Argument:
    """`parent` once its view is `value`, whatever the view (unfold, split …)."""
    return scatter_shown(call, lambda numbers: call(view, numbers, *args, **kwargs), parent, value)


def scatter_shown(call: Call, shown: Callable[[Argument], Argument], parent: Argument, value: Argument) -> Argument:
    """`parent` once `shown`, some view of it, is `value`: the same view of the elements' numbers says which it shows.

    numbers = shown(arange(numel).reshape(parent.shape))
    parent' = scatter(parent.reshape(-1), 0, numbers.reshape(-1), value.reshape(-1)).reshape(parent.shape)
    """
    sizes = sizes_of(call, parent)
    flat = call(aten.reshape.default, parent, [-1])
    numbers = call(aten.arange.default, sizes_of(call, flat)[0], dtype=torch.int64)
    places = shown(call(aten.reshape.default, numbers, sizes))
    index, source = (call(aten.reshape.default, each, [-1]) for each in (places, value))
    return call(aten.reshape.default, call(aten.scatter.src, flat, 0, index, source), sizes)


def sizes_of(call: Call, value: Argument) -> list[Argument]:
    """The shape of `value`; a dynamic size as a value of the graph."""
    shape = fake_tensor(value).shape
    return [n if isinstance(n, int) else call(aten.sym_size.int, value, dim) for dim, n in enumerate(shape)]


def scatter_piece(
    parent: Argument, value: Argument, pieces: Node, index: int
) -> tuple[OpOverload, tuple[Argument, ...]]:
    """`parent`, which `pieces` (split, chunk, unbind …) cut up, once piece `index` is `value`."""
    named = {argument.name: argument.default_value for argument in pieces.target._schema.arguments}  # type: ignore[union-attr]
    dim = dict(zip(named, pieces.args, strict=False)).get("dim", pieces.kwargs.get("dim", named["dim"]))
    if pieces.target == aten.unbind.int:
        return aten.select_scatter.default, (parent, value, dim, index)
    sizes = [piece.shape[dim] for piece in pieces.meta["val"]]
    start = sum(sizes[:index])
    return aten.slice_scatter.default, (parent, value, dim, start, start + sizes[index])
