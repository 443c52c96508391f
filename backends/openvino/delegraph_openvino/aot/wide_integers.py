"""int64 values -> whether 32 bits hold them: OpenVINO's CPU device computes int64 as int32, and cuts what is wider.

positions = arange(128) + 2; positions[:, None] <= positions      fits: known from where it comes
embedding(weight, tokens.view(-1))                                fits: an index into something that is in memory
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
"""Places along a dim without a limit: a tensor of more has no room where this runs."""

_ATEN_MOVES: Final = """
    view_copy.default permute_copy.default transpose_copy.int t_copy.default unsqueeze_copy.default
    squeeze_copy.dims squeeze_copy.dim squeeze_copy.default expand_copy.default slice_copy.Tensor select_copy.int
    cat.default repeat.default flip.default clone.default alias_copy.default split_with_sizes_copy.default
    index_select.default gather.default index.Tensor unbind_copy.int where.self
"""


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


MOVES: Final = _aten(_ATEN_MOVES) | {"dim_order_ops._clone_dim_order.default"}
"""What gives elements of its operands, and no others."""

_MADE: Final = _aten("arange.start_step full.default full_like.default scalar_tensor.default")
_ZERO_OR_ONE: Final = _aten("zeros.default ones.default zeros_like.default ones_like.default")
_PLACES: Final = _aten("argmax.default argmin.default topk.default sort.default sort.stable max.dim min.dim")
_ZERO_POINTS: Final = frozenset({"quantized_decomposed.choose_qparams.tensor"})
_SUMS: Final = _aten("add.Tensor sub.Tensor")
_REMAINDERS: Final = _aten("fmod.Tensor fmod.Scalar remainder.Tensor remainder.Scalar")
_NO_LARGER: Final = _aten("abs.default neg.default minimum.default maximum.default")
"""Than the larger operand."""
_RUNNING: Final = _aten("cumsum.default")
_PRODUCTS: Final = _aten("mul.Tensor")
_CASTS: Final = frozenset({"dim_order_ops._to_dim_order_copy.default"})


def check_int64(node: Node) -> str | None:
    """None if no int64 value that `node` reads or gives can be wider than 32 bits; else the reason.

    The places of elements cannot: not those that `node` reads, nor what it gives if it is read as such alone.
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
"""The position of the argument whose values are places of elements, or are not read, by an operator's name without
overload."""


def _selecting(node: Node) -> list[Node]:
    position = _INDEXES.get(operator_name(node).split(".")[0]) if node.op == "call_function" else None
    selecting = [] if position is None else pytree.tree_leaves(node.args[position : position + 1])
    return [argument for argument in selecting if isinstance(argument, Node)]


def _only_selects(node: Node, seen: set[Node]) -> bool:
    """Whether everything that reads `node`, moves of it aside, takes it for the places of elements."""
    if str(node.target) not in MOVES or not node.users:
        return False
    for user in node.users.keys() - seen:
        seen.add(user)
        if node not in _selecting(user) and not _only_selects(user, seen):
            return False
    return True


def _is_cast_of_input(node: Node) -> bool:
    """Whether `node` makes floats or truths of a value that comes from outside, which OpenVINO reads as it is."""
    if str(node.target) not in _CASTS or node.all_input_nodes[0].op != "placeholder":
        return False
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype.is_floating_point or dtype == torch.bool


def _fits(node: Node) -> bool:
    largest = _magnitude(node, {})
    return largest is not None and largest <= LARGEST


_LARGEST: Final = "delegraph_openvino_largest"
"""Metadata: what was found out of a value, which its placeholder has once a partition that reads it was cut out."""


def _magnitude(node: Node, known: dict[Node, int | None]) -> int | None:
    """No value of `node` is further from zero; None: not known."""
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
        return LARGEST  # a place in memory
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
    """The numbers that a tensor is made of."""
    told = node.args[str(node.target) == "aten.full_like.default" :]  # whose operand says the shape alone
    return [argument for argument in (*told, *node.kwargs.values()) if isinstance(argument, int | Node)]


def _size_along(node: Node) -> int:
    """Of the dim that a running sum goes along."""
    sizes = node.meta["val"].shape
    size = sizes[node.args[1]] if sizes else 1
    return size if isinstance(size, int) else _largest_size(size)


def _largest_size(size: object) -> int:
    """Of what is computed from sizes; without a limit, more places than memory has."""
    if not isinstance(size, torch.SymInt):
        return LARGEST
    limits = size.node.shape_env.bound_sympy(size.node.expr)
    return max(abs(int(end)) if end.is_Integer else UNLIMITED for end in (limits.lower, limits.upper))


def _elements(node: Node) -> list[Any]:
    """What `node` moves; the last argument of `where` is one as well, an index is not."""
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
"""Operator -> the operands of which its largest value is made."""


def _largest(values: Iterable[Any], known: dict[Node, int | None]) -> int | None:
    found = [_magnitude(v, known) if isinstance(v, Node) else abs(v) if isinstance(v, int) else None for v in values]
    return None if None in found or not found else max(n for n in found if n is not None)


def _is_int64(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64
