"""A small pattern of operators -> its occurrences in a graph, each node in one match at most.

pattern = op(aten.relu, op(aten.add.Tensor, Capture("x"), Capture("y")))
pattern = Pattern.traced(lambda x, y: torch.relu(x + y), (torch.empty(2), torch.empty(2)))
[match] = find_matches([pattern], program.graph)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import DependencyCycle, condensed_order, edge_program, lifted_number
from delegraph.aot.authoring import ANY, Bindings, Capture, Op, matches, op
from delegraph.interfaces import CompileSpec
from delegraph_partitioners.capability import CapabilityBasedPartitioner
from delegraph_partitioners.propose_partitions import Unit

__all__ = ["ANY", "Capture", "Match", "Op", "Pattern", "PatternPartitioner", "find_matches", "op"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: its `outputs` may be read from outside of a match, all other nodes only from within."""

    outputs: tuple[Op, ...]

    @classmethod
    def traced(cls, function: Callable[..., Any], example_inputs: Sequence[Any], literals: bool = True) -> Pattern:
        """The pattern of `function` (or a module), in the edge dialect.

        Its tensor inputs and a module's weights are captured under their placeholders' names. Arguments that are no
        tensors must be equal; without `literals` they may be anything.
        """
        module = function if isinstance(function, torch.nn.Module) else _Function(function)
        with torch.no_grad():
            program = edge_program(torch.export.export(module, tuple(example_inputs)))
        return cls(tuple(_as_ops(program, literals)))


@dataclass(frozen=True, slots=True)
class Match:
    """An occurrence: its nodes in graph order, the nodes of the pattern's outputs, and the captures."""

    pattern: Pattern
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]
    captures: Mapping[str, Any]


def find_matches(patterns: Sequence[Pattern | Op], graph: Graph) -> list[Match]:
    """The occurrences of the patterns, in graph order; no two matches share a node.

    Where matches overlap, the pattern that stands first wins, then the one whose last node comes first. Matches that
    would wait for each other, or for a node between their own, are left out.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    occurrences: list[Match] = []
    owner: dict[Node, int] = {}
    for pattern in (p if isinstance(p, Pattern) else Pattern((p,)) for p in patterns):
        for anchor in graph.nodes:
            match = _match_at(pattern, anchor, owner, position)
            if match is not None:
                owner.update(dict.fromkeys(match.nodes, len(occurrences)))
                occurrences.append(match)
    occurrences = [occurrences[i] for i in _schedulable(graph, owner, occurrences)]
    return sorted(occurrences, key=lambda match: position[match.nodes[-1]])


def _schedulable(graph: Graph, owner: dict[Node, int], occurrences: Sequence[Match]) -> list[int]:
    """The matches that can each run as one; only a match with several outputs can be in the way."""
    kept = dict.fromkeys(range(len(occurrences)))
    while any(len(occurrences[i].outputs) > 1 for i in kept):
        try:
            condensed_order(graph, lambda node: owner.get(node, node))
            break
        except DependencyCycle as cycle:
            waiting = [key for key, _ in cycle.groups if isinstance(key, int)]
            dropped = next((i for i in waiting if len(occurrences[i].outputs) > 1), waiting[0])
            del kept[dropped]
            for node in occurrences[dropped].nodes:
                del owner[node]
    return list(kept)


def _match_at(pattern: Pattern, anchor: Node, taken: Container[Node], position: Mapping[Node, int]) -> Match | None:
    """The match in which `anchor` is the first output, without nodes that are `taken`."""
    for bindings in _together(pattern, anchor):
        outputs = tuple(bindings.calls[output] for output in pattern.outputs)
        inside = bindings.nodes
        closed = all(node in outputs or inside.issuperset(node.users) for node in inside)
        if closed and not any(node in taken for node in inside):
            return Match(pattern, tuple(sorted(inside, key=position.__getitem__)), outputs, bindings.captures)
    return None


def _together(pattern: Pattern, anchor: Node) -> Iterator[Bindings]:
    """`anchor` as the first output, and the other outputs among readers of matched values."""
    candidates = list(matches(pattern.outputs[0], anchor))
    for output in pattern.outputs[1:]:
        candidates = [longer for bindings in candidates for longer in _with_output(bindings, output)]
    yield from candidates


def _with_output(bindings: Bindings, output: Op) -> Iterator[Bindings]:
    """`bindings` with one more output, for each place where it fits."""
    known = [node for node in (*bindings.calls.values(), *bindings.captures.values()) if isinstance(node, Node)]
    for candidate in _readers(known, depth=_depth(output)):
        yield from matches(output, candidate, bindings)


def _readers(nodes: Iterable[Node], depth: int) -> Iterable[Node]:
    """Nodes that read one of `nodes` over at most `depth` edges."""
    reached = dict.fromkeys(nodes)
    for _ in range(depth):
        reached.update(dict.fromkeys(user for node in list(reached) for user in node.users))
    return reached


def _depth(pattern: Any) -> int:
    if isinstance(pattern, Op):
        return 1 + max(map(_depth, pattern.args), default=0)
    return max(map(_depth, pattern), default=0) if isinstance(pattern, (list, tuple)) else 0


# ---- patterns from functions -----------------------------------------------------------------------


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _as_ops(program: ExportedProgram, literals: bool) -> Iterator[Op]:
    converted: dict[Node, Any] = {}

    def convert(value: Any) -> Any:
        if isinstance(value, Node):
            return converted[value]
        if isinstance(value, (list, tuple)) and any(isinstance(item, Node) for item in value):
            return tuple(map(convert, value))
        return value if literals else ANY

    for node in program.graph.nodes:
        if node.op == "placeholder":
            number = lifted_number(node)
            converted[node] = Capture(node.name) if number is None else convert(number)
        elif node.op == "call_function":
            arguments = tuple(convert(value) for value in node.args)
            converted[node] = Op((node.target,), arguments, {name: convert(v) for name, v in node.kwargs.items()})
    for value in program.graph.output_node().args[0]:
        if not isinstance(converted.get(value), Op):
            raise ValueError(f"the pattern gives back {value}, which no operator of it computes")
        yield converted[value]


# ---- partitioning by patterns ----------------------------------------------------------------------


class PatternPartitioner(CapabilityBasedPartitioner):
    """Delegates matches of `patterns`, each as a whole. Other parameters as its base class."""

    def __init__(
        self,
        backend_id: str,
        patterns: Sequence[Pattern | Op],
        compile_specs: Sequence[CompileSpec] = (),
        **options: Any,
    ) -> None:
        options = {"allow_trivial": True, "take_scalars": True, **options}  # the patterns decide what is taken
        super().__init__(backend_id, self._reason_by_match, compile_specs, **options)
        self.patterns = list(patterns)
        self._matched: set[Node] = set()

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """`keep_whole`, everywhere: matches are known only later."""
        return self.keep_whole, None

    def units(self, graph: Graph) -> Sequence[Unit]:
        """The matches, and every other call by itself."""
        match_of = {node: i for i, match in enumerate(find_matches(self.patterns, graph)) for node in match.nodes}
        self._matched = set(match_of)
        return [nodes for _, nodes in condensed_order(graph, lambda node: match_of.get(node, node))]

    def _reason_by_match(self, node: Node) -> str | None:
        return None if node in self._matched else f"is in no match of {self.delegation_spec.backend_id}'s patterns"
