"""Edge program -> tagged edge program: which backend gets which nodes, and why the rest was left.

Partitioners run one after the other. The nodes that one of them takes are cut out (`cut.py`) before the next one looks,
so that a partitioner only ever sees plain nodes and finished delegate calls, never another's tags.

A tag becomes one call. It cannot, where data leave the partition and come back into it:

    a = relu(x)      [tag 0]
    b = sin(a)                   behind tag 0, which makes a
    c = b * a        [tag 0]     before tag 0, which reads b: a cycle, and refused

That holds through any number of nodes and other tags; `condensed_order` finds it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from delegraph.aot.graph.bodies import all_nodes, graph_modules
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import FOREIGN, InvalidPartition, LoweringError, PluginUnavailable, cause_of
from delegraph.interfaces.lowering import DelegationSpec, Partitioner, PartitionResult

__all__ = [
    "REASON",
    "TAG",
    "DependencyCycle",
    "Partitioned",
    "Subgraph",
    "clear_tags",
    "condensed_order",
    "owned_buffers",
    "partition_program",
    "scheduled",
    "tag_constant_data",
    "tag_mutated_buffer",
    "validation_disabled",
]

TAG = "delegation_tag"
"""The key in `node.meta` under which a partitioner says which partition a node belongs to."""

REASON = "declined_because"
"""The key under which it may say why it left a node, instead of in `PartitionResult.declined`."""


# ---- running a partitioner -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A unit of scheduling: the nodes of a tag, or one node without a tag (`tag` None)."""

    tag: str | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The checked decisions of one partitioner about one program.

    `order` holds for each graph, by its path, its calls as subgraphs in an order in which each comes after those that
    it reads.
    """

    program: ExportedProgram
    partitioner: str
    tags: Mapping[str, DelegationSpec]
    declined: Mapping[str, str]
    order: Mapping[str, tuple[Subgraph, ...]]


def partition_program(
    program: ExportedProgram, partitioner: Partitioner, *, name: str = "", method: str = "forward"
) -> Partitioned:
    """Run one partitioner on `program` and check what it did. `name` is how messages and reports call it.

    Tags are written into `program`; those that an earlier run left there are removed first. Raises `InvalidPartition`
    if the partitioner changed anything but tags, tagged what cannot be delegated, or made partitions that wait for each
    other; `LoweringError` if it raised; `PluginUnavailable` (what it asks is not installed) passes through.
    """
    name = name or type(partitioner).__name__
    by = f"partitioner {name}, method {method!r}"
    clear_tags(program)
    before = _fingerprint(program)
    try:
        result = partitioner.partition(program)
    except (LoweringError, PluginUnavailable):
        raise
    except FOREIGN as error:
        raise LoweringError(f"{by}: it raised {cause_of(error)}") from error
    if not isinstance(result, PartitionResult):
        raise InvalidPartition(f"{by}: it returned {type(result).__name__}, not a PartitionResult")
    # some copy the program to try things out on it; the copy's nodes are the same in number and order
    if result.tagged_exported_program is not program:
        _adopt_tags(result.tagged_exported_program, program, by)
    if _validates.get() and _fingerprint(program) != before:
        raise InvalidPartition(f"{by}: it changed the graph; a partitioner may only set meta[{TAG!r}]")
    if result.partition_tags is None:
        raise InvalidPartition(
            f"{by}: its PartitionResult needs a `partition_tags` field containing a mapping of tags to delegate spec;"
            " it is None"
        )
    _getitems_follow_their_producers(program)  # before the checks: partitioners tag elements as they like
    _check_tags(program, result.partition_tags, by)
    try:
        order = scheduled(program)
    except DependencyCycle as cycle:
        raise _invalid(cycle, by) from None
    return Partitioned(program, name, dict(result.partition_tags), {**_declined(program), **result.declined}, order)


_validates: ContextVar[bool] = ContextVar("validates", default=True)


@contextmanager
def validation_disabled() -> Iterator[None]:
    """Within it a partitioner may change the graph that it is shown, which is otherwise refused (ExecuTorch's
    `validation_disabled`). The graph that it made is lowered; whether that computes the same is its own affair.
    """
    token = _validates.set(False)
    try:
        yield
    finally:
        _validates.reset(token)


def clear_tags(program: ExportedProgram) -> None:
    """Remove every delegation tag, and every reason against one."""
    for node in all_nodes(program.graph_module):
        node.meta.pop(TAG, None)
        node.meta.pop(REASON, None)


def _declined(program: ExportedProgram) -> dict[str, str]:
    """The reasons that were written onto nodes."""
    return {
        f"{path}.{node.name}" if path else node.name: str(node.meta[REASON])
        for path, module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if REASON in node.meta
    }


def _fingerprint(program: ExportedProgram) -> list[object]:
    """Equal before and after exactly if the graphs are the same; argument tuples are replaced when they are edited."""
    nodes = [(node, node.target, node.args, node.kwargs) for node in all_nodes(program.graph_module)]
    signature = program.graph_signature
    return [nodes, list(signature.input_specs), list(signature.output_specs)]


def _adopt_tags(tagged: ExportedProgram, program: ExportedProgram, by: str) -> None:
    """Take over the tags of a copy that the partitioner worked on."""
    copies, originals = list(all_nodes(tagged.graph_module)), list(all_nodes(program.graph_module))
    if [(n.op, n.target) for n in copies] != [(n.op, n.target) for n in originals]:
        raise InvalidPartition(f"{by}: it returned another graph; a partitioner may only set meta[{TAG!r}]")
    for copy, original in zip(copies, originals, strict=True):
        if TAG in copy.meta:
            original.meta[TAG] = copy.meta[TAG]


def _getitems_follow_their_producers(program: ExportedProgram) -> None:
    """An element of a tuple is delegated exactly if the call that makes the tuple is: tuples cross no border."""
    for node in all_nodes(program.graph_module):
        if node.op == "call_function" and node.target is operator.getitem:
            producer = node.args[0]
            assert isinstance(producer, Node)
            node.meta.pop(TAG, None)
            if TAG in producer.meta:
                node.meta[TAG] = producer.meta[TAG]
        elif node.op == "get_attr":
            node.meta.pop(TAG, None)  # a control-flow body, or a delegate in a delegate, goes with its call


# ---- checks ----------------------------------------------------------------------------------------


def _check_tags(program: ExportedProgram, specs: Mapping[str, DelegationSpec], by: str) -> None:
    signature = ResolvedSignature.of(program)
    stored = {*signature.constants, *signature.states, *signature.others}
    owned = owned_buffers(program)
    for path, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            tag = node.meta.get(TAG)
            if tag is None:
                continue
            problem = _problem(node, tag, specs, stored if path == "" else ())
            if not problem and node in signature.trained:
                problem = (
                    "is a weight that the program trains, which changes between runs; leave it untagged, as"
                    " tag_constant_data does"
                )
            if not problem and node in signature.states and node not in owned:
                problem = (
                    "is a buffer that the model changes, and what reads and changes it is not all in one partition;"
                    " leave it untagged, as tag_mutated_buffer does"
                )
            if problem:
                raise InvalidPartition(f"{by}: tag {tag!r} {problem}", node=node.name, location=user_location(node))


def _problem(node: Node, tag: object, specs: Mapping[str, DelegationSpec], stored: Collection[Node]) -> str:
    """The mistake in `tag` on `node`, as the end of a sentence; "" if there is none."""
    if not isinstance(tag, str) or tag not in specs:
        return f"has no DelegationSpec in partition_tags, which lists {sorted(specs)}"
    if node.op == "output":
        return "stands on the graph's output: output node output should not be tagged"
    if node.op == "placeholder" and node not in stored:
        return (
            "stands on an input of the graph: a placeholder node for non-params, non-buffer, and non-tensor constants"
            " should not be tagged"
        )
    return ""


def scheduled(program: ExportedProgram) -> dict[str, tuple[Subgraph, ...]]:
    """The calls of each graph of the tagged `program`, by its path, as subgraphs, each behind those that it reads.

    Raises `DependencyCycle`.
    """
    order: dict[str, tuple[Subgraph, ...]] = {}
    for path, module in graph_modules(program.graph_module):
        groups = condensed_order(module.graph, lambda node: node.meta.get(TAG, node))
        order[path] = tuple(Subgraph(key if isinstance(key, str) else None, nodes) for key, nodes in groups)
    return order


class DependencyCycle(Exception):
    """Groups of nodes that wait for each other. `groups` lists (key, nodes), each read by the next, the last by the
    first."""

    def __init__(self, groups: Sequence[tuple[object, tuple[Node, ...]]]) -> None:
        super().__init__(" -> ".join(str(key) for key, _ in groups))
        self.groups = list(groups)


def condensed_order(graph: Graph, key: Callable[[Node], Hashable]) -> list[tuple[Hashable, tuple[Node, ...]]]:
    """The calls of `graph`, those with equal keys together, in a stable topological order.

    A group sinks to where its last node stood, or to before the first group that reads it:

        calls, d reads c     a [0]   b   c [0]   d          a [0]   b   c [0]   d, and b reads a
        order                b   (a, c)   d                 (a, c)   b   d

    At the group's first node, the calls that c reads would have to be pulled ahead; at its last they stand before it
    already. So calls without a tag keep their order, and their results the lifetimes that this order gives.

    One depth-first pass over the condensed graph. Meeting a group whose own reads are not finished closes a cycle:
    raises `DependencyCycle`.
    """
    key_of = {node: key(node) for node in graph.nodes if node.op == "call_function"}
    members: dict[Hashable, list[Node]] = {}
    for node, group in key_of.items():
        members.setdefault(group, []).append(node)

    def reads(group: Hashable) -> Iterator[Hashable]:
        for node in members[group]:
            for read in node.all_input_nodes:
                if read in key_of and key_of[read] != group:
                    yield key_of[read]

    order: dict[Hashable, tuple[Node, ...]] = {}  # finished groups
    opened: set[Hashable] = set()  # groups on the stack, or finished
    for start in [group for node, group in key_of.items() if members[group][-1] is node]:  # by their last nodes
        # a stack of our own, since models are deeper than Python's
        stack = [] if start in order else [(start, reads(start))]
        opened.add(start)
        while stack:
            group, waiting = stack[-1]
            read = next((r for r in waiting if r not in order), None)  # the iterator goes on where it stopped
            if read is None:
                stack.pop()
                order[group] = tuple(members[group])
            elif read in opened:
                path = [entry for entry, _ in stack]
                cycle = reversed(path[path.index(read) :])
                raise DependencyCycle([(entry, tuple(members[entry])) for entry in cycle])
            else:
                opened.add(read)
                stack.append((read, reads(read)))
    return list(order.items())


def _invalid(cycle: DependencyCycle, by: str) -> InvalidPartition:
    start = next(i for i, (key, _) in enumerate(cycle.groups) if isinstance(key, str))
    groups = cycle.groups[start:] + cycle.groups[:start]
    steps = [_link(a, b) for (_, a), (_, b) in zip(groups, groups[1:] + groups[:1], strict=True)]
    tags = ", ".join(repr(key) for key, _ in groups if isinstance(key, str))
    trail = "".join(f"\n  {_place(a)} -> {_place(b)}" for a, b in steps)
    return InvalidPartition(
        f"{by}: dependency cycle through tag {tags}: data leave the partition and come back into it, so that it would"
        f" have to run both before and after what lies between:{trail}\n  what to do: the partitioner splits the"
        " partition or takes the nodes between as well",
        node=steps[0][0].name,
        location=user_location(steps[0][0]),
    )


def _link(producer: Iterable[Node], consumer: Iterable[Node]) -> tuple[Node, Node]:
    """A node of `producer` and a node of `consumer` that reads it."""
    own = set(producer)
    return next((read, node) for node in consumer for read in node.all_input_nodes if read in own)


def _place(node: Node) -> str:
    tag = node.meta.get(TAG)
    return f"{node.name} ({f'tag {tag!r}' if tag else 'in no partition'})"


# ---- constants and state ---------------------------------------------------------------------------


def tag_constant_data(program: ExportedProgram, max_duplicated_nbytes: int | None = None) -> None:
    """Tag the parameters, unchanged buffers and lifted constants that tagged nodes read, so that delegates own them.

    A constant that several partitions read, or a partition and other nodes, is stored more than once; where it is
    larger than `max_duplicated_nbytes` it stays outside instead and becomes an input of the calls.
    """
    for node in ResolvedSignature.of(program).constants:
        tags = [user.meta.get(TAG) for user in node.users]
        first = next((tag for tag in tags if tag is not None), None)
        # any of the tags will do: `_Cutter._is_owned` gives the constant to each partition that reads it
        if first is None or (len(set(tags)) > 1 and _exceeds(node, max_duplicated_nbytes)):
            continue
        node.meta[TAG] = first


def tag_mutated_buffer(program: ExportedProgram) -> None:
    """Tag the buffers that one partition alone reads and changes, so that its delegate keeps them as its state."""
    for node, tag in owned_buffers(program).items():
        node.meta[TAG] = tag


def owned_buffers(program: ExportedProgram) -> dict[Node, str]:
    """Placeholders of mutated buffers -> the one tag that all their readers and their new value carry.

    A buffer that is only written, and read by nobody, stays outside.
    """
    signature = ResolvedSignature.of(program)
    owned = {}
    for write_back in signature.write_backs:
        node, value = write_back.target, write_back.source
        if node not in signature.states or signature.states[node].kind is not InputKind.BUFFER:
            continue
        # a reader outside would see the old value of a buffer that the delegate keeps for itself
        tags = {user.meta.get(TAG) for user in node.users} | {value.meta.get(TAG)}
        if node.users and len(tags) == 1 and None not in tags and value.op == "call_function":
            owned[node] = str(tags.pop())
    return owned


def _exceeds(node: Node, limit: int | None) -> bool:
    return limit is not None and node.meta["val"].nbytes > limit
