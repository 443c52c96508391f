"""torch's `auto_functionalized_v2` -> the same call as `auto_functionalized` has it.

That is how `ExportedProgram.run_decompositions` writes a custom operator that changes its arguments: with the tensors
that the arguments are views of, and how to view them. Here the views become calls, and what the operator wrote into
them is put back into those tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.graph.fake_values import Args, Kwargs, fake_tensor
from delegraph.aot.graph.mutating_calls import auto_functionalized, first_copy, may_share_memory
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.torch_internals import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized_v2,
    get_mutable_args,
    read_view_information_from_args,
)
from delegraph.errors import LoweringError

__all__ = ["auto_functionalized_v2", "call_on_bases"]

aten = torch.ops.aten

Emit: TypeAlias = Callable[[Callable[..., object], Args, Kwargs], Node]
"""(function, args, kwargs) -> the new node."""


def call_on_bases(
    node: Node, emit: Emit, element: Callable[[Argument, int], Argument], kwargs: Kwargs
) -> list[Argument]:
    """Emit the call of `node` on up-to-date `kwargs`; its results (or None), then the new values of the base tensors.

    `element` gives an element of a node's tuple. Raises `LoweringError` where two arguments show the same memory.
    """
    op, all_bases = node.args[0], kwargs["_all_bases"]
    assert isinstance(op, OpOverload) and isinstance(all_bases, (list, tuple))
    rest = {name: value for name, value in kwargs.items() if name not in ("_all_bases", "_only_clone_these_bases")}
    bases = list(all_bases)
    info = read_view_information_from_args(*get_mutable_args(op), rest, bases)
    views = {name: _each(lambda view: _view(emit, bases[view.base_index], view), of) for name, of in info.items()}
    _check_apart(node, info, views)
    call = emit(auto_functionalized, (op,), {**rest, **views})
    start = first_copy(op)
    for position, of in enumerate(info.values(), start):
        changed = element(call, position)
        for index, view in enumerate(of if isinstance(of, list) else [of]):
            if view is not None:
                new = element(changed, index) if isinstance(of, list) else changed
                # one after the other: two arguments may be parts of one base
                bases[view.base_index] = _put_back(emit, bases[view.base_index], new, view)
    return [*(element(call, i) if op._schema.returns else None for i in range(start)), *bases]


def _each(make: Callable[[Any], Argument], of: object) -> Argument:
    """One or several views, or None."""
    if isinstance(of, list):
        return [_each(make, item) for item in of]
    return None if of is None else make(of)


def _view(emit: Emit, base: Argument, view: object) -> Argument:
    if isinstance(view, SliceViewInfo):
        return emit(aten.slice.Tensor, (base, view.dim, view.start, view.end), {})
    if isinstance(view, AsStridedViewInfo):
        return emit(aten.as_strided.default, (base, view.size, view.stride, view.storage_offset), {})
    return base


def _put_back(emit: Emit, base: Argument, new: Argument, view: object) -> Argument:
    if isinstance(view, SliceViewInfo):
        return emit(aten.slice_scatter.default, (base, new, view.dim, view.start, view.end), {})
    if isinstance(view, AsStridedViewInfo):
        return emit(aten.as_strided_scatter.default, (base, new, view.size, view.stride, view.storage_offset), {})
    return new


def _check_apart(call: Node, info: Mapping[str, Any], views: Kwargs) -> None:
    shown: list[tuple[str, int, Argument]] = []
    for name, of in info.items():
        shows = views[name]
        several = zip(of, shows, strict=True) if isinstance(shows, list) else [(of, shows)]
        shown += [(name, view.base_index, node) for view, node in several if view is not None]
    for (name, base, left), (other_name, other_base, right) in combinations(shown, 2):
        if base == other_base and may_share_memory(fake_tensor(left), fake_tensor(right)):
            raise LoweringError(
                f"{call.args[0]} changes {name} and {other_name}, which show the same memory; give it a copy of one",
                node=call.name,
                location=user_location(call),
            )
