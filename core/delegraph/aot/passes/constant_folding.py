"""Program -> the same, its constant computations done now: a constant stands where the computation stood.

    %permute = aten.permute_copy.default(%p_weight, [1, 0])         %_folded_permute = constant _folded_permute
    %mm = aten.mm.default(%x, %permute)                       ->    %mm = aten.mm.default(%x, %_folded_permute)

A group of connected constant computations is folded when its results take no more bytes in the file than the weights
that it makes unnecessary, plus about what its instructions take; so folding never inflates a file. A group that
dequantizes has no such allowance: a constant that somebody made small stays small. The same computation in several
places (a weight that is transposed in each step of a loop) is done once. The operators run as they are, on the real
weights.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import Argument, map_aggregate

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.graph.bodies import attributes, referenced
from delegraph.aot.graph.edit import with_graph
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.signature import ResolvedSignature, live_nodes
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["MADE_OF", "ConstantFolding", "constant_folding"]

MADE_OF: Final = "made_of"
"""The key in the `meta` of a constant's node that has the qualified names of the weights which it was computed from."""

ALLOWANCE: Final = 1024
"""Bytes that the results of a group may take beyond the weights it replaces."""

INSTRUCTION_NBYTES: Final = 128
"""About the bytes that an instruction and its values take in a file: each one saved makes room for a result."""

_UNDEFINED_CONTENT: Final = frozenset(
    {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "dim_order_ops::_empty_dim_order"}
)


class ConstantFolding(ExportedProgramPassBase):
    """Puts constants in the place of constant computations, unless that would make the file larger.

    An external constant stays what its `.ptd` says it is.
    """

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Fold; equal computations are done once and share their constant."""
        constants = _constants(program)
        needed = ResolvedSignature.of(program).results
        foldable = _foldable_nodes(program, constants)
        live = live_nodes(program.graph, needed)
        first = _firsts(foldable)
        values: dict[Node, Argument] = {}
        folded: dict[Node, torch.Tensor] = {}
        for group in _groups([node for node in foldable if node in live], constants, needed):
            room = 0 if group.dequantizes else max(ALLOWANCE, INSTRUCTION_NBYTES * len(group.nodes))
            if group.results and group.bytes_after(first) <= group.bytes_before(constants, needed, live) + room:
                _evaluate(group, constants, first, values)
                results = {node: values[node] for node in group.results}
                folded.update({node: value for node, value in results.items() if isinstance(value, torch.Tensor)})
        if not folded:
            return ExportedProgramPassResult(program, False)
        return ExportedProgramPassResult(_replaced(program, folded, first, foldable), True)


def constant_folding() -> ConstantFolding:
    """The pass as pipelines name it; it has no options."""
    return ConstantFolding()


def _constants(program: ExportedProgram) -> dict[Node, torch.Tensor]:
    """The tensors that are known now: nothing changes them, and no other file has them."""
    constants = ResolvedSignature.of(program).constants
    own = {node: stored.tensor for node, stored in constants.items() if external_tag(node) is None}
    attached = {node: referenced(program.graph_module, node) for node in program.graph.find_nodes(op="get_attr")}
    return own | {node: tensor for node, tensor in attached.items() if isinstance(tensor, torch.Tensor)}


def _replaced(
    program: ExportedProgram, folded: Mapping[Node, torch.Tensor], first: Mapping[Node, Node], foldable: Iterable[Node]
) -> ExportedProgram:
    """`program` with constants where `folded` stood, and without the calls that nothing needs now."""
    graph, root = program.graph, attributes(program.graph_module)
    names = {node: stored.name for node, stored in ResolvedSignature.of(program).constants.items()}
    for node, tensor in folded.items():
        name = f"_folded_{first[node].name}"
        root[name] = tensor
        with graph.inserting_before(node):
            constant = graph.create_node("get_attr", name)
        constant.meta = {**node.meta, MADE_OF: tuple(_weights_behind(node, names))}
        node.replace_all_uses_with(constant)
    for node in reversed(list(foldable)):  # users before what they use
        if not node.users:
            graph.erase_node(node)
    return with_graph(program, root, graph)


def _weights_behind(node: Node, names: Mapping[Node, str]) -> Iterator[str]:
    """The qualified names of the weights that `node` is computed from, in the order in which it reads them."""
    seen, left = {node}, [node]
    while left:
        sources = [source for source in left.pop(0).all_input_nodes if source not in seen]
        seen.update(sources)
        left += sources
        yield from (names[source] for source in sources if source in names)


@dataclass(slots=True)
class _Group:
    """Constant computations that are connected through each other or through a weight."""

    nodes: dict[Node, None] = field(default_factory=dict)
    weights: dict[Node, None] = field(default_factory=dict)
    results: dict[Node, None] = field(default_factory=dict)

    @property
    def dequantizes(self) -> bool:
        """Whether a weight that is stored quantized is one of these."""
        return any("::dequantize" in node.target._schema.name for node in self.nodes if hasattr(node.target, "_schema"))

    def bytes_after(self, first: Mapping[Node, Node]) -> int:
        """Bytes of the results, each computation counted once."""
        return sum(_nbytes(node.meta["val"]) for node in {first[node] for node in self.results})

    def bytes_before(self, constants: Mapping[Node, torch.Tensor], needed: Iterable[object], live: set[Node]) -> int:
        """Bytes of the weights that nothing else needs."""
        results = {node for node in needed if isinstance(node, Node)}
        freed = [
            weight
            for weight in self.weights
            if weight not in results and all(user in self.nodes or user not in live for user in weight.users)
        ]
        return sum(constants[weight].nbytes for weight in freed)


def _foldable_nodes(program: ExportedProgram, constants: Mapping[Node, torch.Tensor]) -> dict[Node, None]:
    """Calls that are sure to give the same static tensors in each run, in graph order."""
    foldable: dict[Node, None] = {}
    known: set[Node] = {node for node, tensor in constants.items() if not isinstance(tensor, FakeTensor)}
    for node in program.graph.nodes:
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


def _is_static(value: object) -> bool:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(v, torch.Tensor) and all(isinstance(size, int) for size in v.shape) for v in values)


def _firsts(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Node -> the first of `nodes`, which stand in graph order, that computes the same."""
    first: dict[Node, Node] = {}
    seen: dict[object, Node] = {}
    for node in nodes:
        first[node] = seen.setdefault((node.target, _key(node.args, first), _key(node.kwargs, first)), node)
    return first


def _key(value: object, first: Mapping[Node, Node]) -> object:
    """An argument as something to be compared: 1, 1.0 and True are different."""
    if isinstance(value, Node):
        return first.get(value, value)
    if isinstance(value, (list, tuple)):
        return tuple(_key(item, first) for item in value)
    if isinstance(value, Mapping):
        return tuple((name, _key(item, first)) for name, item in value.items())
    return type(value), value


def _groups(nodes: Sequence[Node], constants: Mapping[Node, torch.Tensor], needed: Iterable[object]) -> list[_Group]:
    """The connected groups of `nodes`; a result is what the rest of the program, or its caller, reads."""
    leader: dict[Node, Node] = {}

    def find(node: Node) -> Node:  # union-find, with path halving
        while leader.setdefault(node, node) is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        for source in node.all_input_nodes:  # weights too: readers of one weight free it together, or not at all
            leader[find(source)] = find(node)
    inside = set(nodes)
    outputs = {node for node in needed if isinstance(node, Node)}
    groups: dict[Node, _Group] = {}
    for node in nodes:
        group = groups.setdefault(find(node), _Group())
        group.nodes[node] = None
        group.weights.update((n, None) for n in node.all_input_nodes if n in constants)
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        if is_tensor and (node in outputs or any(user not in inside for user in node.users)):
            group.results[node] = None
    return list(groups.values())


def _evaluate(
    group: _Group, constants: Mapping[Node, torch.Tensor], first: Mapping[Node, Node], values: dict[Node, Argument]
) -> None:
    """Add the values of the group's nodes to `values`."""
    values.update({node: constants[node].detach() for node in group.weights})
    with torch.no_grad():
        for node in group.nodes:
            if first[node] in values:
                values[node] = values[first[node]]
                continue
            args, kwargs = map_aggregate(
                (node.args, dict(node.kwargs)), lambda a: values[a] if isinstance(a, Node) else a
            )
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]


def _nbytes(value: Argument) -> int:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))
