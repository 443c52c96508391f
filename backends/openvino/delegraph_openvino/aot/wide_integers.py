"""int64 values -> whether 32 bits hold them: OpenVINO's CPU device computes int64 as int32, and drops the higher bits.

positions = arange(128) + 2; positions[:, None] <= positions      fits: known from its source
embedding(weight, tokens.view(-1))                                fits: an index into a tensor that is in memory
tokens * 31                                                       does not: nobody knows how large tokens are
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot import lifted_number
from delegraph.aot.authoring import operator_name

__all__ = ["MOVES", "check_int64"]

LARGEST: Final = 2**31 - 1
UNLIMITED: Final = 2**28
"""The size of a dim without a limit: memory has no room for a tensor of more elements."""

_ATEN_MOVES: Final = """
    view_copy.default permute_copy.default transpose_copy.int t_copy.default unsqueeze_copy.default
    squeeze_copy.dims squeeze_copy.dim squeeze_copy.default expand_copy.default slice_copy.Tensor select_copy.int
    cat.default repeat.default flip.default clone.default alias_copy.default split_with_sizes_copy.default
    index_select.default gather.default index.Tensor unbind_copy.int where.self
"""


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


MOVES: Final = _aten(_ATEN_MOVES) | {"dim_order_ops._clone_dim_order.default"}
"""Operators whose results have elements of their operands, and no others."""

_MADE: Final = _aten("arange.start_step full.default full_like.default scalar_tensor.default")
_ZERO_OR_ONE: Final = _aten("zeros.default ones.default zeros_like.default ones_like.default")
_PLACES: Final = _aten("argmax.default argmin.default topk.default sort.default sort.stable max.dim min.dim")
_ZERO_POINTS: Final = frozenset({"quantized_decomposed.choose_qparams.tensor"})
_SUMS: Final = _aten("add.Tensor sub.Tensor")
_REMAINDERS: Final = _aten("fmod.Tensor fmod.Scalar remainder.Tensor remainder.Scalar")
_NO_LARGER: Final = _aten("abs.default neg.default minimum.default maximum.default")
"""Operators whose results are no larger than the larger operand."""
_RUNNING: Final = _aten("cumsum.default")
_PRODUCTS: Final = _aten("mul.Tensor")
_CASTS: Final = frozenset({"dim_order_ops._to_dim_order_copy.default"})


def check_int64(node: Node) -> str | None:
    """None if no int64 value that `node` reads or computes can be wider than 32 bits; else the reason.

    Indices cannot: neither those that `node` reads, nor its result if it is only read as indices.
    """
    if _only_selects(node, set()):
        return None
    selecting = _selecting(node)
    for read in node.all_input_nodes:
        if _is_int64(read) and read not in selecting and not _fits(read) and not _is_cast_of_input(node):
            return f"OpenVINO computes int64 in 32 bits, and {read.name} may be wider"
    if _is_int64(node) and not _fits(node):
        return "OpenVINO computes int64 in 32 bits, and its result may be wider"
    return None


_INDEXES: Final = {
    **{f"aten::{name}_like": 0 for name in ("full", "ones", "zeros")},
    "aten::embedding": 1,
    "aten::index": 1,
    "aten::index_put": 1,
    **{f"aten::{name}": 2 for name in ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce")},
    **{f"aten::{name}": 2 for name in ("index_add", "index_copy", "index_fill")},
}
"""Operator's name without overload -> the position of the argument whose values are indices, or are not read."""


def _selecting(node: Node) -> list[Node]:
    position = _INDEXES.get(operator_name(node).split(".")[0]) if node.op == "call_function" else None
    selecting = [] if position is None else pytree.tree_leaves(node.args[position : position + 1])
    return [argument for argument in selecting if isinstance(argument, Node)]


def _only_selects(node: Node, seen: set[Node]) -> bool:
    """Whether all readers of `node`, except moves of it, read it as indices."""
    if str(node.target) not in MOVES or not node.users:
        return False
    for user in node.users.keys() - seen:
        seen.add(user)
        if node not in _selecting(user) and not _only_selects(user, seen):
            return False
    return True


def _is_cast_of_input(node: Node) -> bool:
    """Whether `node` casts an input of the partition to floats or bools, which OpenVINO reads in 64 bits."""
    if str(node.target) not in _CASTS or node.all_input_nodes[0].op != "placeholder":
        return False
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype.is_floating_point or dtype == torch.bool


def _fits(node: Node) -> bool:
    largest = _magnitude(node, {})
    return largest is not None and largest <= LARGEST


_LARGEST: Final = "delegraph_openvino_largest"
"""The metadata key of a value's magnitude, which placeholders keep when a partition that reads the value is cut out."""


def _magnitude(node: Node, known: dict[Node, int | None]) -> int | None:
    """The largest absolute value that `node` may have; None: not known."""
    if node not in known:
        known[node] = node.meta[_LARGEST] = _magnitude_of(node, known)
    return known[node]


def _magnitude_of(node: Node, known: dict[Node, int | None]) -> int | None:
    value, name = node.meta.get("val"), str(node.target)
    if node.op == "placeholder" and node.meta.get(_LARGEST) is not None:
        return int(node.meta[_LARGEST])
    number = lifted_number(node)
    if isinstance(number, bool | int):
        return abs(number)
    if not isinstance(value, torch.Tensor | tuple | list):
        return _largest_size(value)
    if isinstance(value, torch.Tensor) and value.dtype != torch.int64:
        bounds = {torch.bool: 1, torch.uint8: 255, torch.int8: 128, torch.int16: 2**15, torch.int32: LARGEST}
        return bounds.get(value.dtype)
    if name in _ZERO_OR_ONE:
        return 1
    if name in _PLACES:
        return LARGEST  # an index of an element in memory
    if node.target is operator.getitem:
        source = node.args[0]
        if isinstance(source, Node) and str(source.target) in _PLACES | _ZERO_POINTS and node.args[1]:
            return LARGEST  # or among the integers of a quantized value
        return _largest(_elements(node), known)
    if name in _SUMS:
        both = [_largest([operand], known) for operand in node.args[:2]]
        return None if None in both or node.kwargs.get("alpha", 1) != 1 else sum(n for n in both if n is not None)
    if name not in _OPERANDS:
        return None
    largest = _largest(_OPERANDS[name](node), known)
    if largest is None:
        return None
    return largest * _size_along(node) if name in _RUNNING else largest**2 if name in _PRODUCTS else largest


def _told(node: Node) -> list[Any]:
    """The numbers that fill a tensor."""
    told = node.args[str(node.target) == "aten.full_like.default" :]  # its operand only has the shape
    return [argument for argument in (*told, *node.kwargs.values()) if isinstance(argument, int | Node)]


def _size_along(node: Node) -> int:
    """The size of the dim of a running sum."""
    sizes = node.meta["val"].shape
    size = sizes[node.args[1]] if sizes else 1
    return size if isinstance(size, int) else _largest_size(size)


def _largest_size(size: object) -> int:
    """The largest value of an expression of sizes; without a limit, more elements than memory has."""
    if not isinstance(size, torch.SymInt):
        return LARGEST
    limits = size.node.shape_env.bound_sympy(size.node.expr)
    return max(abs(int(end)) if end.is_Integer else UNLIMITED for end in (limits.lower, limits.upper))


def _elements(node: Node) -> list[Any]:
    """The operands whose elements `node` moves; the last argument of `where` is one of them, an index is not."""
    first = node.args[1:3] if str(node.target) == "aten.where.self" else node.args[:1]
    return [a for argument in first for a in (argument if isinstance(argument, list | tuple) else [argument])]


_OPERANDS: Final[dict[str, Callable[[Node], Iterable[Any]]]] = {
    **dict.fromkeys(_MADE, _told),
    **dict.fromkeys(MOVES, _elements),
    **dict.fromkeys(_NO_LARGER | _PRODUCTS, lambda node: node.args[:2]),
    **dict.fromkeys(_RUNNING, lambda node: node.args[:1]),
    **dict.fromkeys(_REMAINDERS, lambda node: node.args[1:2]),
    **dict.fromkeys(_CASTS, lambda node: node.all_input_nodes),
}
"""Operator -> the operands that bound its largest value."""


def _largest(values: Iterable[Any], known: dict[Node, int | None]) -> int | None:
    bounds = [_magnitude(v, known) if isinstance(v, Node) else abs(v) if isinstance(v, int) else None for v in values]
    return None if None in bounds or not bounds else max(n for n in bounds if n is not None)


def _is_int64(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64
