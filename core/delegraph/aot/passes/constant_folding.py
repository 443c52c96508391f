"""MethodGraph -> the constants that stand for its constant computations: what depends on weights alone is done now.

A group of connected constant computations is folded when its results take no more bytes in the file than the weights
that it makes unnecessary, plus about what its instructions take; so folding never inflates a file. The same computation
in several places (a weight that is turned in each step of a loop) is one. The operators run as they are, on the real
weights.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.fx.node import map_aggregate

from delegraph.aot.graph.signature import Constant, MethodGraph, live_nodes

__all__ = ["fold_constants"]

ALLOWANCE: Final = 1024
"""Bytes that the results of a group may take beyond the weights it replaces."""

INSTRUCTION_NBYTES: Final = 128
"""What an instruction and its values take in a file, about: each one that folding saves makes room for a result."""

_UNDEFINED_CONTENT: Final = frozenset({"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided"})


def fold_constants(method: MethodGraph) -> MethodGraph:
    """`method` with the results of constant computations as further constants."""
    foldable = _foldable_nodes(method)
    live = live_nodes(method.program.graph, [*method.outputs, *(w.source for w in method.write_backs)], {})
    groups = _groups(method, {node: None for node in foldable if node in live})
    first = _firsts(foldable)
    values: dict[Node, Any] = {}
    folded: dict[Node, Constant] = {}
    for group in groups:
        room = max(ALLOWANCE, INSTRUCTION_NBYTES * len(group.nodes))
        if group.results and group.bytes_after(first) <= group.bytes_before(method, live) + room:
            _evaluate(group, method.constants, first, values)
            folded.update({node: Constant(values[node]) for node in group.results})
    return replace(method, constants={**method.constants, **folded})


@dataclass(slots=True)
class _Group:
    """Constant computations that are connected through each other or through a weight."""

    nodes: dict[Node, None] = field(default_factory=dict)
    weights: dict[Node, None] = field(default_factory=dict)
    results: dict[Node, None] = field(default_factory=dict)

    def bytes_after(self, first: Mapping[Node, Node]) -> int:
        """Bytes of the results, each computation counted once."""
        return sum(_nbytes(node.meta["val"]) for node in {first[node] for node in self.results})

    def bytes_before(self, method: MethodGraph, live: set[Node]) -> int:
        """Bytes of the weights that nothing else needs."""
        outputs = {node for node in method.outputs if isinstance(node, Node)}
        outputs |= {write_back.source for write_back in method.write_backs}
        freed = [
            weight
            for weight in self.weights
            if weight not in outputs and all(user in self.nodes or user not in live for user in weight.users)
        ]
        return sum(method.constants[weight].tensor.nbytes for weight in freed)


def _foldable_nodes(method: MethodGraph) -> dict[Node, None]:
    """Calls that are sure to give the same static tensors in each run, in graph order."""
    foldable: dict[Node, None] = {}
    known: set[Node] = {n for n, c in method.constants.items() if not isinstance(c.tensor, FakeTensor)}
    for node in method.program.graph.nodes:
        if node.op == "call_function" and _is_pure(node) and all(n in known for n in node.all_input_nodes):
            known.add(node)
            foldable[node] = None
    return foldable


def _is_pure(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    schema = node.target._schema
    return (
        not schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and schema.name not in _UNDEFINED_CONTENT
        and _is_static(node.meta.get("val"))
    )


def _is_static(value: Any) -> bool:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(v, torch.Tensor) and all(isinstance(size, int) for size in v.shape) for v in values)


def _firsts(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Node -> the first of `nodes`, which stand in graph order, that computes the same."""
    first: dict[Node, Node] = {}
    seen: dict[object, Node] = {}
    for node in nodes:
        first[node] = seen.setdefault((node.target, _key(node.args, first), _key(node.kwargs, first)), node)
    return first


def _key(value: Any, first: Mapping[Node, Node]) -> object:
    """An argument as something to be compared: 1, 1.0 and True are different."""
    if isinstance(value, Node):
        return first.get(value, value)
    if isinstance(value, (list, tuple)):
        return tuple(_key(item, first) for item in value)
    if isinstance(value, Mapping):
        return tuple((name, _key(item, first)) for name, item in value.items())
    return type(value), value


def _groups(method: MethodGraph, nodes: Mapping[Node, None]) -> list[_Group]:
    leader: dict[Node, Node] = {}

    def find(node: Node) -> Node:
        while leader.setdefault(node, node) is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        for source in node.all_input_nodes:
            leader[find(source)] = find(node)
    needed = {n for n in method.outputs if isinstance(n, Node)} | {w.source for w in method.write_backs}
    groups: dict[Node, _Group] = {}
    for node in nodes:
        group = groups.setdefault(find(node), _Group())
        group.nodes[node] = None
        group.weights.update((n, None) for n in node.all_input_nodes if n in method.constants)
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        if is_tensor and (node in needed or any(user not in nodes for user in node.users)):
            group.results[node] = None
    return list(groups.values())


def _evaluate(
    group: _Group, constants: Mapping[Node, Constant], first: Mapping[Node, Node], values: dict[Node, Any]
) -> None:
    """Add the values of the group's nodes to `values`."""
    values.update({node: constants[node].tensor.detach() for node in group.weights})
    with torch.no_grad():
        for node in group.nodes:
            if first[node] in values:
                values[node] = values[first[node]]
                continue
            args, kwargs = map_aggregate(
                (node.args, dict(node.kwargs)), lambda a: values[a] if isinstance(a, Node) else a
            )
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]


def _nbytes(value: Any) -> int:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return sum(v.numel() * v.element_size() for v in values)
