"""A node of a partition's graph -> facts about its value for converters: dtype, shape, whether sizes are the same; and
the operators that copy, whose result is their input, of another dtype or layout at most.

Sizes may be dynamic: comparing them would make them numbers. So their text is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import torch
from torch.fx import Node

from delegraph.aot import exir_ops
from delegraph_onnx.dtypes import COMPLEX, computed_in

__all__ = [
    "CASTS",
    "COPIES",
    "Dim",
    "are_known",
    "aten",
    "common_sizes",
    "dtype_of",
    "in_words",
    "inner_shape_of",
    "outer_dtype_of",
    "rank_of",
    "same_sizes",
    "shape_of",
]

Dim: TypeAlias = "int | str | torch.SymInt"


_aten = torch.ops.aten

CASTS: Final = frozenset(
    {
        *(_aten._to_copy.default, _aten.to.dtype, _aten.to.dtype_layout, _aten.to.device, _aten.type_as.default),
        exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
        exir_ops.edge.dim_order_ops._clone_dim_order.default,
    }
)
"""Operators that may cast. Layouts do not exist within a delegate: they are onnxruntime's business."""

COPIES: Final = CASTS | {_aten.clone.default, _aten.alias.default, _aten.alias_copy.default}


def aten(name: str) -> torch._ops.OpOverload:
    """The overload `aten.<name>`; without a dot, the default one."""
    packet, _, overload = name.partition(".")
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operator


def dtype_of(node: Node) -> torch.dtype:
    """The dtype that a node's tensor has within the delegate; a SymInt counts as int64."""
    return computed_in(outer_dtype_of(node))


def outer_dtype_of(node: Node) -> torch.dtype:
    """The dtype of a node's tensor in the program."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return value.dtype
    return {bool: torch.bool, float: torch.float64, torch.SymBool: torch.bool, torch.SymFloat: torch.float64}.get(
        type(value), torch.int64
    )


def inner_shape_of(node: Node) -> tuple[Dim, ...]:
    """The shape that a node's tensor has within the delegate; () for a number."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return ()
    return (*value.shape, 2) if value.dtype in COMPLEX else tuple(value.shape)


def shape_of(node: Node) -> tuple[int | torch.SymInt, ...]:
    """The shape of a node's tensor."""
    return tuple(node.meta["val"].shape)


def rank_of(node: Node) -> int:
    """The number of dims of a node's tensor."""
    return len(node.meta["val"].shape)


def in_words(sizes: Iterable[Dim]) -> tuple[int | str, ...]:
    """Numbers as they are, symbolic sizes as text."""
    return tuple(size if isinstance(size, int) else str(size) for size in sizes)


def common_sizes(shapes: Iterable[Sequence[Dim]]) -> list[torch.SymInt]:
    """The dynamic sizes that all of `shapes` have: where one of them is 0, there are no elements anywhere."""
    first, *others = shapes
    words = [in_words(shape) for shape in others]
    return [size for size in first if isinstance(size, torch.SymInt) and all(str(size) in shape for shape in words)]


def same_sizes(a: Iterable[Dim], b: Iterable[Dim]) -> bool:
    """Whether the shapes are the same in every run."""
    return in_words(a) == in_words(b)


def are_known(*sizes: object) -> bool:
    """Whether all of them are numbers ahead of time."""
    return all(isinstance(size, int) for size in sizes)
