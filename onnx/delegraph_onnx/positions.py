"""Integer nodes -> places that count up along one dim, as attention masks and caches have them.

arange(0, n) + start            start + (0, 1, …) along dim -1
unsqueeze(…, -1)                the same along dim -2
a tensor of one element         a start
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph_onnx.node_facts import COPIES, aten, in_words, rank_of, shape_of

__all__ = ["Constants", "Positions", "positions_of", "same_value"]

Constants = Mapping[Node, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Positions:
    """`start` + `offset`, and + (0, 1, …) along `dim`, counted from the last (-1). Without a start: 0."""

    start: Node | None = None
    offset: int = 0
    dim: int | None = None

    def begins_like(self, other: Positions) -> bool:
        """Whether the first place is the same."""
        return self.offset == other.offset and same_value(self.start, other.start)


def same_value(a: Node | None, b: Node | None) -> bool:
    """Whether two nodes are one number or tensor, or calls of the same operator with the same arguments."""
    if a is None or b is None:
        return a is b
    a, b = _origin(a), _origin(b)
    if a is b or (a.op, b.op) != ("call_function", "call_function"):
        return a is b
    of_a, of_b = _arguments(a), _arguments(b)
    return a.target == b.target and len(of_a) == len(of_b) and all(map(_alike, of_a, of_b))


def _origin(node: Node) -> Node:
    """The source of a number or an integer tensor that was made a tensor, a number or a copy."""
    while node.target in _SAME and not _is_float(node):
        source = node.args[0]
        if not isinstance(source, Node) or _is_float(source):
            break
        node = source
    return node


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return value.is_floating_point() if isinstance(value, torch.Tensor) else isinstance(value, float | torch.SymFloat)


def _arguments(node: Node) -> tuple[object, ...]:
    """The arguments of a call; of a select from a single element without the index, which must be that element's."""
    source = node.args[0] if node.args else None
    if node.target in _SELECTS and isinstance(source, Node) and source.meta["val"].numel() == 1:
        return (source, *node.args[1:2])
    return (*node.args, *node.kwargs.items())


def _alike(a: object, b: object) -> bool:
    return same_value(a, b) if isinstance(a, Node) and isinstance(b, Node) else a == b


_SAME: Final = COPIES | {aten("scalar_tensor"), aten("_local_scalar_dense")}
_SELECTS: Final = frozenset({aten("select.int"), aten("select_copy.int")})


# ---- places -------------------------------------------------------------------------------------------------------


def positions_of(node: object, constants: Constants) -> Positions | None:
    """The places that `node` holds, or None if they are not known. A single number of unknown value is a start."""
    if isinstance(node, int):
        return Positions(offset=node)
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node in constants:
        tensor = constants[node]
        return Positions(offset=int(tensor)) if tensor.numel() == 1 and not tensor.is_floating_point() else None
    rule = _RULES.get(node.target) if node.op == "call_function" else None
    known = None if rule is None else rule(node, constants)
    if known is None and {*in_words(shape_of(node))} <= {1} and not node.meta["val"].is_floating_point():
        return Positions(start=node)
    return known


def _arange(node: Node, constants: Constants) -> Positions | None:
    start, _, step, *_ = schema_arguments(node)
    return Positions(offset=start, dim=-1) if isinstance(start, int) and step == 1 else None


def _sum(node: Node, constants: Constants) -> Positions | None:
    left, right, alpha = schema_arguments(node)
    a, b = positions_of(left, constants), positions_of(right, constants)
    sign = alpha if node.target == aten("add.Tensor") else -alpha
    if a is None or b is None or (sign != 1 and (sign != -1 or b.start is not None or b.dim is not None)):
        return None
    if (a.start is not None and b.start is not None) or (a.dim is not None and b.dim is not None):
        return None
    return Positions(a.start or b.start, a.offset + sign * b.offset, b.dim if a.dim is None else a.dim)


def _unsqueezed(node: Node, constants: Constants) -> Positions | None:
    source, dim = schema_arguments(node)
    known = positions_of(source, constants)
    if known is None or known.dim is None:
        return known
    inserted = dim if dim < 0 else dim - rank_of(node)
    return known if known.dim > inserted else replace(known, dim=known.dim - 1)


def _viewed(node: Node, constants: Constants) -> Positions | None:
    """A view: its shape must have at most one dim of more than one element, the one of its source."""
    known = positions_of(node.args[0], constants)
    if known is None or known.dim is None:
        return known
    source, sizes = node.args[0], in_words(shape_of(node))
    assert isinstance(source, Node)
    longer = [dim - rank_of(node) for dim, size in enumerate(sizes) if size != 1]
    if [size for size in in_words(shape_of(source)) if size != 1] != [sizes[dim] for dim in longer] or len(longer) > 1:
        return None
    return replace(known, dim=longer[0] if longer else None)


def _copied(node: Node, constants: Constants) -> Positions | None:
    return None if node.meta["val"].is_floating_point() else positions_of(node.args[0], constants)


_RULES: Final[dict[object, Callable[[Node, Constants], Positions | None]]] = {
    aten("arange.start_step"): _arange,
    aten("add.Tensor"): _sum,
    aten("sub.Tensor"): _sum,
    aten("unsqueeze"): _unsqueezed,
    aten("unsqueeze_copy"): _unsqueezed,
    aten("view"): _viewed,
    aten("view_copy"): _viewed,
    aten("expand"): _copied,
    aten("expand_copy"): _copied,
    **dict.fromkeys(COPIES, _copied),
}
