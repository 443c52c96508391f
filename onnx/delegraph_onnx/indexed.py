"""A partition -> which of its inputs are places in a tensor of a known size, so that wrong places can be refused.

keys.index_copy_(2, position, rows)     "position" is in "keys", which has 16
embedding(table, tokens)                "tokens" is in "table", which has 32000
keys[:, start + arange(3)] = rows       "start" is, and the two behind it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature, schema_arguments
from delegraph.interfaces import PlacesInfo
from delegraph_onnx.dtypes import INDICES
from delegraph_onnx.node_facts import COPIES, aten, dtype_of, rank_of, shape_of
from delegraph_onnx.positions import positions_of

__all__ = ["indexed_inputs"]


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """`index` are places along a dim of `tensor`, each the first of `rows`; `from_end`: below 0 from the end."""

    tensor: Node
    dim: int
    index: object
    rows: object = 1
    from_end: bool = False


def indexed_inputs(graph: Graph, signature: ResolvedSignature) -> tuple[PlacesInfo, ...]:
    """The known places that the graph's inputs hold, each once."""
    constants = {node: constant.tensor for node, constant in signature.constants.items()}
    names = {node: tensor.name for node, tensor in (*signature.constants.items(), *signature.states.items())}
    uses = (use for node in graph.nodes for use in _uses(node))
    known = (_places(use, signature, constants, names) for use in uses)
    return tuple(dict.fromkeys(places for places in known if places is not None))


def _places(
    use: _Use, signature: ResolvedSignature, constants: Mapping[Node, torch.Tensor], names: Mapping[Node, str]
) -> PlacesInfo | None:
    source, first, rows = _behind(use.index), 0, use.rows
    known = positions_of(use.index, constants)
    if known is not None and known.start is not None and isinstance(use.index, Node):
        source, first = _behind(known.start), known.offset
        rows = 1 if known.dim is None else shape_of(use.index)[known.dim]
    if source not in signature.inputs or dtype_of(source) not in INDICES or not rank_of(use.tensor):
        return None
    size = shape_of(use.tensor)[use.dim]
    if not isinstance(size, int):
        return None
    last = first + (rows - 1 if isinstance(rows, int) else 0)
    return PlacesInfo(source.name, names.get(_written(use.tensor), ""), size, first, last, use.from_end)


def _behind(node: Any) -> Any:
    """The node whose numbers `node` has too, perhaps in other dims."""
    while isinstance(node, Node) and (node.target in _SAME or _selects_all(node)):
        node = node.args[0]
    return node


def _selects_all(node: Node) -> bool:
    source = node.args[0] if node.target in _SELECTS else None
    return isinstance(source, Node) and source.meta["val"].numel() == 1


def _written(node: Node) -> Node:
    """The source of `node` before elements of it were replaced."""
    while node.target in COPIES | _PUTS.keys():
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    return node


# ---- operators ----------------------------------------------------------------------------------------------------


def _uses(node: Node) -> Iterator[_Use]:
    if _operator_name(node) == "llama::update_cache":
        value, cache, start = (node.kwargs[name] for name in ("value", "cache", "start_pos"))
        yield _Use(cache, 1, start, shape_of(value)[1])  # type: ignore[arg-type]
        return
    rule = (_PUTS | _READS).get(node.target) if node.op == "call_function" else None
    yield from () if rule is None else rule(*schema_arguments(node))


def _operator_name(node: Node) -> str:
    """The operator's name; a functional call of one that changes its arguments has that one's name."""
    called = node.args[0] if isinstance(node.target, torch._ops.HigherOrderOperator) and node.args else None
    return called.name() if isinstance(called, torch._ops.OpOverload) else ""


def _along_a_dim(tensor: Node, dim: int, index: Node, *_: object) -> Iterator[_Use]:
    yield _Use(tensor, dim, index)


def _of_rows(tensor: Node, index: Node, *_: object) -> Iterator[_Use]:
    yield _Use(tensor, 0, index)


def _several(tensor: Node, indices: list[Node | None], *_: object) -> Iterator[_Use]:
    places = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if all(dtype_of(index) in INDICES for _, index in places):  # a mask may stand for several dims
        yield from (_Use(tensor, dim, index, from_end=True) for dim, index in places)


_Rule = Callable[..., Iterator[_Use]]
_PUTS: Final[dict[Any, _Rule]] = {
    aten("index_put"): _several,
    **{aten(f"scatter.{of}"): _along_a_dim for of in ("src", "value", "reduce", "value_reduce")},
    **{aten(name): _along_a_dim for name in ("scatter_add", "scatter_reduce.two", "index_add", "index_copy")},
}
_READS: Final[dict[Any, _Rule]] = {
    aten("index.Tensor"): _several,
    aten("index_select"): _along_a_dim,
    aten("gather"): _along_a_dim,
    aten("embedding"): _of_rows,
}
_SELECTS: Final = frozenset({aten("select.int"), aten("select_copy.int")})
_SAME: Final = COPIES | {
    *map(aten, ("_local_scalar_dense", "view_copy", "unsqueeze_copy", "squeeze_copy.dims", "expand_copy")),
    aten("permute_copy"),
}
