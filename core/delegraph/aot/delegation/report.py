"""A report on lowering: which node went where, and for every node that was left who declined it and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph import notebook
from delegraph.aot.delegation.compose import Delegated, Seen
from delegraph.aot.delegation.cut import CutPartition, call_names
from delegraph.aot.delegation.lowered_module import get_lowered_module, is_delegate_call
from delegraph.aot.delegation.partition import clear_tags, partition_program
from delegraph.aot.graph.bodies import graph_modules
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.provenance import source_call, source_of
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.module_stack import module_path
from delegraph.errors import DelegraphError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.registry import PluginRegistry
from delegraph.tables import Table, print_table, print_text

__all__ = [
    "Asked",
    "DelegateEntry",
    "FallbackEntry",
    "LeftoverEntry",
    "LoweringReport",
    "MethodReport",
    "Suggestion",
    "leftover_nodes",
    "make_report",
    "reasons_for_leaving",
    "suggestions",
]


@dataclass(frozen=True, slots=True)
class DelegateEntry:
    """One delegate. `operators` counts its calls by operator; `nodes` are named as before they were cut out."""

    backend: str
    tag: str
    partitioner: str
    nodes: tuple[str, ...]
    operators: Mapping[str, int]
    blob_nbytes: int
    graph: str = ""


@dataclass(frozen=True, slots=True)
class FallbackEntry:
    """The graph of a delegate that is kept beside its blob, to be run by `runner`: the bytes that the file has for it
    alone, or the `reason` why there is none. `delegate` is the delegate's index in the program's method."""

    method: str
    delegate: int
    backend: str
    runner: str
    nbytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeftoverEntry:
    """One call that no delegate has. `name` is the node's in the final program; `reasons` are by partitioner."""

    name: str
    operator: str
    location: str | None
    module_path: str
    reasons: Mapping[str, str]
    graph: str = ""


@dataclass(frozen=True, slots=True)
class MethodReport:
    """One method. `graph` of an entry is the control-flow body that it stands in, "" for the method's own graph.

    `asked` has, for every call of the edge program, delegated or not, who was asked in order of priority, in what form
    (the operators that it saw), and what it said of each.
    """

    delegates: tuple[DelegateEntry, ...]
    leftovers: tuple[LeftoverEntry, ...]
    asked: Mapping[str, Mapping[str, tuple[Seen, ...]]] = field(default_factory=dict)

    @property
    def delegated_nodes(self) -> int:
        return sum(len(entry.nodes) for entry in self.delegates)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An installed partitioner that was not asked: how many leftover nodes of each method it would take, or why that
    could not be found out (`problem`)."""

    partitioner: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LoweringReport:
    """Which node went where, and why, by method; printed as a table, `to_json()` for machines.

    `refusals` tell, one by one, what partitioners took and their backends then refused to compile.
    """

    methods: Mapping[str, MethodReport]
    partitioners: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    refusals: tuple[str, ...] = ()
    fallbacks: tuple[FallbackEntry, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "partitioners": list(self.partitioners),
            "suggestions": [asdict(suggestion) for suggestion in self.suggestions],
            "refusals": list(self.refusals),
            "fallbacks": [asdict(entry) for entry in self.fallbacks],
            "methods": {name: _method_json(method) for name, method in self.methods.items()},
        }

    def __repr__(self) -> str:
        return f"LoweringReport({'; '.join(_title(name, method) for name, method in self.methods.items())})"

    def __str__(self) -> str:
        blocks = ["\n".join([title, "\n\n".join(map(str, tables))]) for title, tables in self._sections()]
        return "\n\n".join([*blocks, *self._remarks()])

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        blocks = [
            notebook.paragraph(title) + "".join(map(notebook.table, tables)) for title, tables in self._sections()
        ]
        return "".join([*blocks, *map(notebook.paragraph, self._remarks())])

    def print(self) -> None:
        """Print to the terminal: with rich where it is installed, else as plain text."""
        for title, tables in self._sections():
            print_text(title)
            for table in tables:
                print_table(table)
        for remark in self._remarks():
            print_text(remark)

    def _sections(self) -> Iterable[tuple[str, list[Table]]]:
        for name, method in self.methods.items():
            tables = [_delegate_table(method.delegates), _leftover_table(method.leftovers)]
            own = [entry for entry in self.fallbacks if entry.method == name]
            yield _title(name, method), [table for table in (*tables, _fallback_table(own)) if table.rows]

    def _remarks(self) -> list[str]:
        if self.partitioners:
            return ["Taken, and then refused:", *(f"  {told}" for told in self.refusals)] if self.refusals else []
        helpers = [_shown(suggestion) for suggestion in self.suggestions]
        return ["No backend was asked for." + (" Installed ones that could help:" if helpers else ""), *helpers]


# ---- making it -------------------------------------------------------------------------------------

Asked: TypeAlias = Mapping[str, Mapping[str, Sequence[Seen]]]
"""The answers of those who were asked, in order of priority, by call of the edge program."""

NOBODY_ASKED = "no partitioner asked"
IN_THE_MODEL = "in the model"
"""Stands for the partitioner of a delegate that was in the exported model as a lowered module."""


def make_report(programs: Mapping[str, ExportedProgram], delegated: Delegated) -> LoweringReport:
    """The report on `delegated`; `programs` are its programs after all further passes, whose nodes are listed."""
    methods = {name: _method_report(name, delegated, program) for name, program in programs.items()}
    asked = tuple(dict.fromkeys(name for seen in delegated.seen.values() for name in seen))
    return LoweringReport(methods, asked, refusals=tuple(map(str, delegated.refusals)))


def _method_report(name: str, delegated: Delegated, program: ExportedProgram) -> MethodReport:
    delegates = tuple(
        _delegate_entry(partition) for partition in _partitions(program, delegated.partitions.get(name, ()))
    )
    seen = delegated.seen.get(name, {})
    leftovers = tuple(
        _leftover_entry(node, path, seen)
        for path, module in graph_modules(program.graph_module)
        for node in leftover_nodes(module)
    )
    return MethodReport(delegates, leftovers, _asked(seen))


def _partitions(program: ExportedProgram, cut: Sequence[CutPartition]) -> Iterator[CutPartition]:
    """The partitions that were cut out, and the delegates that stood in the exported model already."""
    yield from cut
    known = {id(partition.lowered_module) for partition in cut}
    for path, module in graph_modules(program.graph_module):
        for lowered in dict.fromkeys(get_lowered_module(module, n) for n in module.graph.nodes if is_delegate_call(n)):
            if id(lowered) not in known:
                yield CutPartition(lowered, IN_THE_MODEL, call_names(lowered.original_module.graph.nodes), path)


def leftover_nodes(module: GraphModule) -> list[Node]:
    """Calls that something has to run, elements of tuples apart."""
    return [
        node
        for node in module.graph.nodes
        if node.op == "call_function" and not is_delegate_call(node) and operator_name(node) != "getitem"
    ]


def _delegate_entry(partition: CutPartition) -> DelegateEntry:
    lowered = partition.lowered_module
    calls = [node for node in lowered.original_module.graph.nodes if node.op == "call_function"]
    operators = Counter(name for node in calls if (name := operator_name(node)) != "getitem")
    return DelegateEntry(
        lowered.backend_id,
        lowered.tag,
        partition.partitioner,
        partition.nodes,
        dict(operators.most_common()),
        len(lowered.processed_bytes),
        partition.path,
    )


def _leftover_entry(node: Node, path: str, seen: Asked) -> LeftoverEntry:
    return LeftoverEntry(
        node.name,
        operator_name(node),
        user_location(node),
        module_path(node),
        reasons_for_leaving(node, seen) or {"": NOBODY_ASKED},
        path,
    )


def reasons_for_leaving(node: Node, seen: Asked) -> dict[str, str]:
    """Why a call that no delegate has was left, by partitioner; `seen` are their answers in its method."""
    call, operator = source_call(source_of(node)), operator_name(node)
    return {who: _reason(node.name, operator, by_call.get(call, ())) for who, by_call in seen.items()}


def _reason(name: str, operator: str, seen: Sequence[Seen]) -> str:
    """A partitioner's reason for leaving a node: for its own operator if it saw that, else for the form that it saw."""
    left = [entry for entry in seen if entry.tag is None]
    same = [entry for entry in left if entry.operator == operator]
    if same:
        closest = next((entry for entry in same if entry.name.rpartition(".")[2] == name), same[0])
        return closest.reason or "gave no reason"
    if not left:
        return "took the rest of what it is a part of" if seen else "was not shown it: it was made later"
    said = dict.fromkeys(f"as {entry.operator}: {entry.reason or 'gave no reason'}" for entry in left)
    return "; ".join(said)


def _asked(seen: Mapping[str, Mapping[str, Sequence[Seen]]]) -> dict[str, dict[str, tuple[Seen, ...]]]:
    """By call of the source program: the partitioners that were asked, each with the call in the form that it saw."""
    asked: dict[str, dict[str, tuple[Seen, ...]]] = {}
    for who, by_call in seen.items():
        for call, answers in by_call.items():
            asked.setdefault(call, {})[who] = tuple(answers)
    return asked


def suggestions(programs: Mapping[str, ExportedProgram], plugins: PluginRegistry) -> Iterator[Suggestion]:
    """The calls that each installed partitioner would take of these edge programs; it is run to find out.

    Those of a family, `family:member`, are for users who know what they ask for: nobody runs a dozen of them to see.
    Nor those that say so themselves (`Partitioner.is_suggested`).
    """
    for name in plugins.names("partitioners"):
        if ":" in name:
            continue
        try:
            partitioner: Partitioner = plugins.create("partitioners", name)
            if not getattr(partitioner, "is_suggested", True):
                continue
            taken = {method: _would_take(partitioner, name, method, program) for method, program in programs.items()}
        except DelegraphError as error:
            yield Suggestion(name, problem=str(error).partition("\n")[0])
        else:
            yield Suggestion(name, taken)


def _would_take(partitioner: Partitioner, name: str, method: str, program: ExportedProgram) -> int:
    """How many nodes of `program` the partitioner would take."""
    try:
        partitioned = partition_program(program, partitioner, name=name, method=method)
        subgraphs = [subgraph for order in partitioned.order.values() for subgraph in order]
        return sum(len(call_names(subgraph.nodes)) for subgraph in subgraphs if subgraph.tag)
    finally:
        clear_tags(program)


# ---- showing it ------------------------------------------------------------------------------------


def _method_json(method: MethodReport) -> dict[str, object]:
    return {
        "delegated_nodes": method.delegated_nodes,
        "leftover_nodes": len(method.leftovers),
        "delegates": [{**asdict(entry), "nodes": list(entry.nodes)} for entry in method.delegates],
        "leftovers": [asdict(entry) for entry in method.leftovers],
        "asked": {
            call: {who: [asdict(seen) for seen in answers] for who, answers in by_partitioner.items()}
            for call, by_partitioner in method.asked.items()
        },
    }


def _title(name: str, method: MethodReport) -> str:
    delegated = f"{_counted(method.delegated_nodes, 'node')} in {_counted(len(method.delegates), 'delegate')}"
    return f"{name}: {delegated}, {_counted(len(method.leftovers), 'node')} left to kernels"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _delegate_table(delegates: Sequence[DelegateEntry]) -> Table:
    rows = [
        (
            _placed(e.tag, e.graph),
            e.backend,
            e.partitioner,
            str(len(e.nodes)),
            f"{e.blob_nbytes:,}",
            _counts(e.operators),
        )
        for e in delegates
    ]
    columns = ("delegate", "backend", "by", "nodes", "blob bytes", "operators")
    return Table("", columns, rows, frozenset({"nodes", "blob bytes"}))


def _fallback_table(fallbacks: Sequence[FallbackEntry]) -> Table:
    rows = [
        (str(e.delegate), e.backend, e.runner, f"none: {e.reason}" if e.reason else f"{e.nbytes:,}") for e in fallbacks
    ]
    return Table("", ("delegate", "backend", "falls back on", "bytes"), rows)


def _leftover_table(leftovers: Sequence[LeftoverEntry]) -> Table:
    rows = [
        (
            _placed(e.name, e.graph),
            e.operator,
            "; ".join(f"{who}: {why}" if who else why for who, why in e.reasons.items()),
            e.module_path,
            e.location or "",
        )
        for e in leftovers
    ]
    return Table("", ("left node", "operator", "why", "module", "user code"), rows)


def _placed(name: str, graph: str) -> str:
    return f"{graph}.{name}" if graph else name


def _counts(operators: Mapping[str, int]) -> str:
    """`aten::add.Tensor x2, …`, the most frequent first."""
    shown = [f"{name} x{count}" if count > 1 else name for name, count in list(operators.items())[:6]]
    return ", ".join(shown) + (f", and {len(operators) - 6} more" if len(operators) > 6 else "")


def _shown(suggestion: Suggestion) -> str:
    if suggestion.problem:
        return f"  {suggestion.partitioner}: could not be asked: {suggestion.problem}"
    counts = ", ".join(f"{count} of {method}" for method, count in suggestion.nodes.items())
    return f"  backends=[{suggestion.partitioner!r}] would take {counts or 'nothing'}"
