"""Which calls only give another shape to the same bytes, so that a program needs no instruction for them."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from delegraph.aot.graph.tensor_spec import TensorSpec

__all__ = ["VIEW_COPY", "shows_same_bytes"]

aten = torch.ops.aten

VIEW_COPY: Final = aten.view_copy.default
"""The one that a runtime can also do for dynamic shapes without a copy (`executorch_prim::et_view`)."""

_KEEP_ORDER: Final = frozenset(
    {
        aten.view_copy.default,
        aten._reshape_copy.default,
        aten.squeeze_copy.default,
        aten.squeeze_copy.dim,
        aten.squeeze_copy.dims,
        aten.unsqueeze_copy.default,
        aten.expand_copy.default,
        aten.slice_copy.Tensor,
        aten.select_copy.int,
        aten.alias_copy.default,
        aten.detach_copy.default,
        aten.lift_fresh_copy.default,
        aten.clone.default,
    }
)
"""Calls whose elements come in the order of the input's; where the number of elements is the same, so are the bytes."""

_PERMUTE: Final = aten.permute_copy.default


def shows_same_bytes(node: Node, old: TensorSpec, new: TensorSpec) -> bool:
    """Whether `node`'s result (`new`) is its first argument (`old`), byte for byte, whatever the data."""
    if not (old.is_static and new.is_static and old.dtype == new.dtype and old.nbytes == new.nbytes):
        return False
    if old.sizes == new.sizes and node.target is aten.clone.default:
        return old.dim_order == new.dim_order
    if not (old.is_contiguous and new.is_contiguous):
        return False
    return node.target in _KEEP_ORDER or (node.target is _PERMUTE and _moves_only_ones(node, old))


def _moves_only_ones(node: Node, old: TensorSpec) -> bool:
    rank = len(old.sizes)
    dims = [dim % rank for dim in node.args[1] if old.sizes[dim] != 1]  # type: ignore[union-attr, operator, index]
    return dims == sorted(dims)
