"""Calls that a partitioner took and its backend refuses to compile -> the program, cut again without them.

    taken, as one partition     compiling it raises        cut again                   the report on what was left
        y = linear(x, w)        UnsupportedOperator(…,         y = delegate_0(x)
        s = sort(y)             node="sort")                   s = sort(y)             cpu: took it, and CpuBackend
        z = gelu(s)                                            z = delegate_1(s)       refused to compile it: …

A partitioner is asked again, and sees in the place of `sort` a call that no backend knows (`hidden`): so it goes around
it by its own rules. Where the error names no node, one is looked for (`culprit.py`). Where that does not help either,
the whole partition is hidden, and a warning says so.

Calls are known by their lasting names (`graph.provenance`), which are the same in each attempt.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar

from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.delegation.cut import CutPartition
from delegraph.aot.delegation.partition import TAG, Partitioned, scheduled
from delegraph.aot.graph.bodies import all_nodes, graph_modules, referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.provenance import source_of
from delegraph.aot.graph.scalars import is_scalar
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.errors import LoweringError, PluginWarning

__all__ = ["Refusal", "Refused", "hidden", "reasons_against", "refusal_of", "until_compiled", "without"]

ALIKE: Final = 3
"""From this refusal of an operator on, all calls of it in the partition are left, so that a model of a hundred layers
is not cut a hundred times."""

SEARCHES: Final = 3
"""A partition that still is refused after so many calls were found and left is not refused for the sake of one."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Refusal:
    """`calls`, by lasting name, are no more for `partitioner` to take, and `reason` says why in reports.

    `operator` is that of the call which the backend named, `searched` whether it was looked for because that named
    none; `warning` is what users are told if it was not found.
    """

    method: str
    partitioner: str
    calls: frozenset[str]
    reason: str
    operator: str = ""
    searched: bool = False
    warning: str = ""

    def __str__(self) -> str:
        return f"{_listed(sorted(self.calls))} of method {self.method!r}: {self.partitioner} {self.reason}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


_MAX_NAMED: Final = 8
"""Calls that a message lists; a partition can have thousands."""


class Refused(Exception):
    """Backends refuse partitions that were cut out."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(map(str, refusals)))
        self.refusals = tuple(refusals)


def until_compiled(attempt: Callable[[tuple[Refusal, ...]], _T]) -> _T:
    """The result of `attempt`, which is made again with all refusals so far for as long as it raises `Refused`.

    Each refusal takes calls away from a backend, so there is a last one. A `LoweringError` behind refusals, such as
    that of kernels which lack what was left to them, has them as notes.
    """
    refusals: tuple[Refusal, ...] = ()
    while True:
        try:
            return attempt(refusals)
        except Refused as refused:
            _warn(refused.refusals)
            refusals += refused.refusals
        except LoweringError as error:
            for refusal in refusals:
                error.add_note(str(refusal))
            raise


def _warn(refusals: Sequence[Refusal]) -> None:
    for refusal in refusals:
        if refusal.warning:
            warnings.warn(refusal.warning, PluginWarning, stacklevel=4)


# ---- an error -> what is left out ------------------------------------------------------------------


def refusal_of(
    method: str,
    partition: CutPartition,
    error: LoweringError,
    earlier: Sequence[Refusal],
    search: Callable[[], str],
) -> Refusal:
    """The refusal in the `error` that a backend raises for `partition`: the call that it names is left, or, where
    `ALIKE` calls like it were refused, all of these. If it names none, the call that `search` gives, but for a method
    only `SEARCHES` times; or else everything."""
    lowered, who = partition.lowered_module, partition.partitioner
    calls = [node for node in all_nodes(lowered.original_module.graph_module) if _is_hidable(node)]
    said = str(error).partition("\n")[0]
    before = [refusal for refusal in earlier if (refusal.method, refusal.partitioner) == (method, who)]
    refused = f"took it, and {lowered.backend_id} refused to compile"
    named = _named(error.node, lowered.original_module)
    if not named and sum(refusal.searched for refusal in before) < SEARCHES:
        culprits = _named(search(), lowered.original_module)
        if culprits:
            told = f"{refused} it: {said} (which names no call: this one was found by trying)"
            return Refusal(method, who, _sources(culprits), told, searched=True)
    if not named:
        warning = _warning(method, partition, error)
        return Refusal(method, who, _sources(calls), f"{refused} its partition: {said}", warning=warning)
    name = operator_name(named[0])
    number = 1 + sum(refusal.operator == name for refusal in before)
    left = [node for node in calls if operator_name(node) == name] if number >= ALIKE else named
    what = f"{number} calls of it, the last because" if number >= ALIKE else "it"
    return Refusal(method, who, _sources(left), f"{refused} {what}: {said}", name)


def _sources(nodes: Collection[Node]) -> frozenset[str]:
    return frozenset(map(source_of, nodes))


def _is_hidable(node: Node) -> bool:
    """Elements go with the call that gives them; and numbers are the program's own, which no backend computes."""
    return node.op == "call_function" and node.target is not operator.getitem and not is_scalar(node)


def _named(name: str | None, program: ExportedProgram) -> list[Node]:
    """The calls that the error of a node of this name is about: it itself, the one whose element it is, or those that
    read an argument. A name with or without its body's path; in several bodies the same may come again."""
    named: list[Node] = []
    for path, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if name in (node.name, f"{path}.{node.name}"):
                named += _calls_of(node)
    return [node for node in named if _is_hidable(node)]


def _calls_of(node: Node) -> list[Node]:
    if node.op == "placeholder":
        return list(node.users)
    producer = node.args[0] if node.target is operator.getitem else node
    return [producer] if isinstance(producer, Node) else []


def _warning(method: str, partition: CutPartition, error: LoweringError) -> str:
    return (
        f"{partition.lowered_module.backend_id} refuses to compile a whole partition, tag"
        f" {partition.lowered_module.tag!r} of method {method!r} ({_listed(partition.nodes)}), which the partitioner"
        f" {partition.partitioner} took: {error}\n"
        "  what happens now: the backends behind it and kernels compute these calls\n"
        "  what to do: tell the backend's authors. A PreprocessError or UnsupportedOperator that says which node it is"
        " about, node=…, leaves that node alone; a partitioner that declines it leaves no error at all"
    )


# ---- cutting without it ----------------------------------------------------------------------------


def reasons_against(refusals: Sequence[Refusal], method: str, partitioner: str) -> dict[str, str]:
    """The calls of a method that are not for `partitioner` any more, by lasting name, and why."""
    own = [refusal for refusal in refusals if (refusal.method, refusal.partitioner) == (method, partitioner)]
    return {call: refusal.reason for refusal in reversed(own) for call in refusal.calls}


@contextmanager
def hidden(program: ExportedProgram, calls: Collection[str]) -> Iterator[None]:
    """Within it `calls`, by lasting name, are calls of an operator that nobody knows."""
    for node in all_nodes(program.graph_module) if calls else ():
        if source_of(node) in calls and _is_hidable(node):
            node.target = _hidden_operator(node.target)
    try:
        yield
    finally:
        for node in all_nodes(program.graph_module) if calls else ():
            if isinstance(node.target, _Hidden):
                node.target = node.target.called


class _Hidden(HigherOrderOperator):
    """Stands for `called`, and computes what that does. torch's own checks admit any operator of this kind."""

    def __init__(self, called: Callable[..., Any]) -> None:
        super().__init__("delegraph_refused")  # type: ignore[no-untyped-call]
        self.called = called

    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        return self.called(*args, **kwargs)


_hidden_operator = cache(_Hidden)


def without(partitioned: Partitioned, reasons: Mapping[str, str]) -> Partitioned:
    """The choice of a partitioner with the `reasons` against its calls, by lasting name.

    A tag that stands on one of them all the same, or on control flow with one in a body, is lost: the partitioner does
    not look at operators, and nothing says how it would have cut around this one.
    """
    if not reasons:
        return partitioned
    told, lost = dict(partitioned.declined), dict[str, str]()
    for name, node, module in _calls(partitioned.program):
        if source_of(node) in reasons:
            told[name] = reasons[source_of(node)]
        refused = next((call for call in _with_bodies(node, module) if call in reasons), None)
        if TAG in node.meta and refused is not None:
            lost[node.meta[TAG]] = reasons[refused]
    if not lost:
        return replace(partitioned, declined=told)
    for name, node, _ in _calls(partitioned.program):
        if node.meta.get(TAG) in lost:
            told.setdefault(name, f"took it with another call: {lost[node.meta.pop(TAG)]}")
    for node in ResolvedSignature.of(partitioned.program).states:
        if node.meta.get(TAG) in lost:
            del node.meta[TAG]
    return replace(partitioned, declined=told, order=scheduled(partitioned.program))


def _calls(program: ExportedProgram) -> Iterator[tuple[str, Node, GraphModule]]:
    """The calls of the program and of its bodies, each with its name in `declined` and the graph that it stands in."""
    for path, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function":
                yield f"{path}.{node.name}" if path else node.name, node, module


def _with_bodies(node: Node, module: GraphModule) -> Iterator[str]:
    """The lasting names of a call, and of those in the bodies that it is given."""
    yield source_of(node)
    bodies = (referenced(module, read) for read in node.all_input_nodes if read.op == "get_attr")
    for body in bodies:
        if isinstance(body, GraphModule):
            yield from map(source_of, all_nodes(body))
