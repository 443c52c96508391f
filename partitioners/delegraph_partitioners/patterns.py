"""A small pattern of operators -> where it occurs in a graph, each node in one match at most.

pattern = op(aten.relu, op(aten.add.Tensor, Capture("x"), Capture("y")))
pattern = Pattern.traced(lambda x, y: torch.relu(x + y), (torch.empty(2), torch.empty(2)))
[match] = find_matches([pattern], program.graph)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import DependencyCycle, condensed_order, edge_program, lifted_number, number_overload
from delegraph.interfaces import CompileSpec
from delegraph_partitioners.capability import CapabilityBasedPartitioner
from delegraph_partitioners.propose_partitions import Unit

__all__ = ["ANY", "Capture", "Match", "Op", "Pattern", "PatternPartitioner", "find_matches", "op"]

Operator: TypeAlias = Any
"""`torch.ops.aten.add` for every overload, `torch.ops.aten.add.Tensor` for one."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Stands for any argument, and the same one wherever the same name stands."""

    name: str


ANY: Any = Capture("")
"""Stands for any argument, another one each time."""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A call of one of `operators`. One `Op` used twice is one node.

    Arguments are `Op`s, `Capture`s, lists of them, or values to be equal to; a number equals the constant that edge
    programs have in its place. Arguments of the graph's node beyond `args`, and keyword arguments that `kwargs` does
    not name, may be anything.
    """

    operators: tuple[Operator, ...]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def calls(self, node: Node) -> bool:
        """Whether `node` calls one of the operators; with a number for operand, its overload for numbers counts too."""
        names = [node.target, getattr(node.target, "overloadpacket", None)]
        if isinstance(node.target, OpOverload) and any(
            lifted_number(read) is not None for read in node.all_input_nodes
        ):
            names.append(number_overload(node.target))
        return node.op == "call_function" and any(o in names for o in self.operators)


def op(operators: Operator | tuple[Operator, ...], *args: Any, **kwargs: Any) -> Op:
    """An `Op`, written as a call."""
    return Op(operators if isinstance(operators, tuple) else (operators,), args, kwargs)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to look for: `outputs` may be read from outside of a match, all other nodes of it only from within.

    Arguments are compared in order; for `a + b` or `b + a` give two patterns.
    """

    outputs: tuple[Op, ...]

    @classmethod
    def traced(cls, function: Callable[..., Any], example_inputs: Sequence[Any], literals: bool = True) -> Pattern:
        """The pattern that `function` (or a module) is, in the edge dialect.

        Its tensor inputs and a module's weights are captured under their placeholders' names. Arguments that are no
        tensors have to be equal, unless not `literals`: then they may be anything.
        """
        module = function if isinstance(function, torch.nn.Module) else _Function(function)
        with torch.no_grad():
            program = edge_program(torch.export.export(module, tuple(example_inputs)))
        return cls(tuple(_as_ops(program, literals)))


@dataclass(frozen=True, slots=True)
class Match:
    """An occurrence: its nodes in graph order, those that stand for the pattern's outputs, and what was captured."""

    pattern: Pattern
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]
    captures: Mapping[str, Any]


def find_matches(patterns: Sequence[Pattern | Op], graph: Graph) -> list[Match]:
    """Where the patterns occur, in graph order; no two matches share a node.

    Where matches overlap, the pattern that stands first wins, then the one whose last node comes first. Matches that
    would wait for each other, or for a node between their own, are left out.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    matches: list[Match] = []
    owner: dict[Node, int] = {}
    for pattern in (p if isinstance(p, Pattern) else Pattern((p,)) for p in patterns):
        for anchor in graph.nodes:
            match = _match_at(pattern, anchor, owner, position)
            if match is not None:
                owner.update(dict.fromkeys(match.nodes, len(matches)))
                matches.append(match)
    matches = [matches[i] for i in _schedulable(graph, owner, len(matches), matches)]
    return sorted(matches, key=lambda match: position[match.nodes[-1]])


def _schedulable(graph: Graph, owner: dict[Node, int], count: int, matches: Sequence[Match]) -> list[int]:
    """The matches that can each run as one; only those with several outputs can be in the way."""
    kept = dict.fromkeys(range(count))
    while any(len(matches[i].outputs) > 1 for i in kept):
        try:
            condensed_order(graph, lambda node: owner.get(node, node))
            break
        except DependencyCycle as cycle:
            waiting = [key for key, _ in cycle.groups if isinstance(key, int)]
            dropped = next((i for i in waiting if len(matches[i].outputs) > 1), waiting[0])
            del kept[dropped]
            for node in matches[dropped].nodes:
                del owner[node]
    return list(kept)


class _Attempt:
    """What stands for what while one match is tried."""

    def __init__(self, taken: Mapping[Node, int]) -> None:
        self.taken = taken
        self.nodes: dict[Op, Node] = {}
        self.captures: dict[str, Any] = {}

    def fits(self, wanted: Any, found: Any) -> bool:
        """Whether the argument `found` is what the pattern wants; remembers what it stands for."""
        if isinstance(wanted, Op):
            return isinstance(found, Node) and self.fits_node(wanted, found)
        if isinstance(wanted, Capture):
            if not wanted.name:
                return True
            return _same(self.captures.setdefault(wanted.name, found), found)
        if isinstance(wanted, (list, tuple)):
            same_length = isinstance(found, (list, tuple)) and len(wanted) == len(found)
            return same_length and all(map(self.fits, wanted, found))
        number = lifted_number(found) if isinstance(found, Node) else None
        return _same(wanted, found if number is None else number)

    def fits_node(self, wanted: Op, found: Node) -> bool:
        if wanted in self.nodes:
            return self.nodes[wanted] is found
        if found in self.taken or found in self.nodes.values() or not wanted.calls(found):
            return False
        if len(found.args) < len(wanted.args) or not set(wanted.kwargs) <= set(found.kwargs):
            return False
        self.nodes[wanted] = found
        return all(map(self.fits, wanted.args, found.args)) and all(
            self.fits(value, found.kwargs[name]) for name, value in wanted.kwargs.items()
        )


def _match_at(pattern: Pattern, anchor: Node, taken: Mapping[Node, int], position: Mapping[Node, int]) -> Match | None:
    """The match in which `anchor` is the first output; further outputs are found from what the earlier ones matched."""
    for attempt in _attempts(pattern, anchor, taken):
        nodes = tuple(sorted(attempt.nodes.values(), key=position.__getitem__))
        outputs = tuple(attempt.nodes[output] for output in pattern.outputs)
        inside = set(nodes)
        if all(node in outputs or inside.issuperset(node.users) for node in nodes):
            return Match(pattern, nodes, outputs, attempt.captures)
    return None


def _attempts(pattern: Pattern, anchor: Node, taken: Mapping[Node, int]) -> Iterator[_Attempt]:
    first = _Attempt(taken)
    if not first.fits_node(pattern.outputs[0], anchor):
        return
    attempts = [first]
    for output in pattern.outputs[1:]:
        attempts = [longer for attempt in attempts for longer in _with_output(attempt, output)]
    yield from attempts


def _with_output(attempt: _Attempt, output: Op) -> Iterator[_Attempt]:
    """`attempt`, and one more output, at each place where that fits: among what reads values that are matched."""
    known = [node for node in (*attempt.nodes.values(), *attempt.captures.values()) if isinstance(node, Node)]
    for candidate in _readers(known, depth=_depth(output)):
        longer = _Attempt(attempt.taken)
        longer.nodes, longer.captures = dict(attempt.nodes), dict(attempt.captures)
        if longer.fits_node(output, candidate):
            yield longer


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


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Node) or isinstance(b, Node):
        return a is b
    return type(a) is type(b) and bool(a == b)


# ---- patterns from functions -----------------------------------------------------------------------


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _as_ops(program: ExportedProgram, literals: bool) -> Iterator[Op]:
    made: dict[Node, Any] = {}

    def convert(value: Any) -> Any:
        if isinstance(value, Node):
            return made[value]
        if isinstance(value, (list, tuple)) and any(isinstance(item, Node) for item in value):
            return tuple(map(convert, value))
        return value if literals else ANY

    for node in program.graph.nodes:
        if node.op == "placeholder":
            number = lifted_number(node)
            made[node] = Capture(node.name) if number is None else convert(number)
        elif node.op == "call_function":
            arguments = tuple(convert(value) for value in node.args)
            made[node] = Op((node.target,), arguments, {name: convert(v) for name, v in node.kwargs.items()})
    for value in program.graph.output_node().args[0]:
        if not isinstance(made.get(value), Op):
            raise ValueError(f"the pattern gives back {value}, which no operator of it computes")
        yield made[value]


# ---- partitioning by patterns ----------------------------------------------------------------------


class PatternPartitioner(CapabilityBasedPartitioner):
    """Delegates what matches one of `patterns`, every match whole. Other parameters as its base class."""

    def __init__(
        self,
        backend_id: str,
        patterns: Sequence[Pattern | Op],
        compile_specs: Sequence[CompileSpec] = (),
        **options: Any,
    ) -> None:
        options = {"allow_trivial": True, "take_scalars": True, **options}  # the patterns say what is wanted
        super().__init__(backend_id, self._reason_by_match, compile_specs, **options)
        self.patterns = list(patterns)
        self._matched: set[Node] = set()

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """`keep_whole`, everywhere: what matches is known only later."""
        return self.keep_whole, None

    def units(self, graph: Graph) -> Sequence[Unit]:
        """The matches, and every other call by itself."""
        match_of = {node: i for i, match in enumerate(find_matches(self.patterns, graph)) for node in match.nodes}
        self._matched = set(match_of)
        return [nodes for _, nodes in condensed_order(graph, lambda node: match_of.get(node, node))]

    def _reason_by_match(self, node: Node) -> str | None:
        return None if node in self._matched else f"is in no match of {self.delegation_spec.backend_id}'s patterns"
