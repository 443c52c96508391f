"""Which method the runs of an ETDump were of, what an ETRecord knows of each, and which of its graphs is compared with.

    run "Execute"   Method::execute, metadata "other"               `other`: this runtime says it
    run "Execute"   native_call_cos.out, native_call_exp.out        `other`: of all methods its calls fit best

ExecuTorch's runtime does not say it, and its Inspector takes all runs for `forward`'s.

    None                                      exported_program if its nodes can be told, else the edge program
    exported_program                          what torch.export gave: the ETRecord has it of `forward` alone
    edge_dialect_exported_program[/method]    before delegation
    name[/method]                             a further program, such as edge_after_transform
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from delegraph.aot import ETRecord
from delegraph.devtools import MethodModel
from delegraph.program import SourceNode
from delegraph.program import etdump as flatcc
from delegraph.program.etdump import ETDump as ETDumpFlatCC
from delegraph_executorch.devtools.files import deserialize_from_etdump_flatcc
from delegraph_executorch.devtools.inspector._matching import (
    as_key,
)
from delegraph_executorch.devtools.operator_graph import FXOperatorGraph, OperatorGraph, OperatorNode

FORWARD = "forward"
RUN_EVENTS = frozenset({"Program::load_method", "Method::execute"})
"""The events of a whole load or execution."""
KERNEL_CALL, DELEGATE_CALL = "native_call_", "DELEGATE_CALL"


@dataclass(frozen=True)
class MethodRecord:
    """What an ETRecord, or a program's file, knows of a method's instructions, by their numbers as text, and its nodes
    by debug handle."""

    handles: Mapping[str, Any]
    delegates: Mapping[str, Any]
    num_outputs: Mapping[str, int]
    nodes: Mapping[int, Sequence[OperatorNode]]

    @classmethod
    def of(cls, record: ETRecord, name: str, nodes: Mapping[int, Sequence[OperatorNode]]) -> MethodRecord:
        """What `record` knows of the method `name`."""
        handles, delegates, num_outputs = (
            {str(key): held for key, held in (by_method or {}).get(name, {}).items()}
            for by_method in (record._debug_handle_map, record._delegate_map, record._instruction_id_to_num_outs_map)
        )
        return cls(handles, delegates, num_outputs, nodes)

    @classmethod
    def of_model(cls, model: MethodModel) -> MethodRecord:
        """What a program's file says of a method of its own."""
        kernels = {str(row.instruction): row.handles for row in model.nodes if row.delegate is None}
        calls = {str(row.instruction): row.handles for row in model.calls}
        delegates = {
            str(call.instruction): {
                "name": call.operator,
                "delegate_map": {
                    row.name if row.debug_id is None else row.debug_id: row.handles
                    for row in reversed(model.nodes)
                    if row.delegate == call.delegate
                },
            }
            for call in model.calls
        }
        nodes = {handle: _nodes(handle, source) for handle, source in model.sources.items()}
        return cls({**kernels, **calls}, delegates, {}, nodes)

    def fit(self, calls: Iterable[tuple[str, str]]) -> int:
        """How many of the calls, (instruction, event's name), are of its operators; -1 if one cannot be its own."""
        calls = [*calls]
        if any((event == DELEGATE_CALL) is not (number in self.delegates) for number, event in calls):
            return -1
        return sum(event == DELEGATE_CALL or _called(event) in self._operators(number) for number, event in calls)

    def _operators(self, instruction: str) -> set[str]:
        handles = self.handles.get(instruction)
        nodes = [node for one in (() if handles is None else as_key(handles)) for node in self.nodes.get(one, ())]
        return {_operator(node.op) for node in nodes if node.op}


def _nodes(handle: int, source: SourceNode) -> list[OperatorNode]:
    """The nodes with one handle, by ExecuTorch's names of operators: `aten.relu.default`."""
    modules = {source.module: (source.module, "")} if source.module else {}
    metadata = {"debug_handle": handle, "stack_trace": source.line, "nn_module_stack": modules}
    ops = [name.replace("::", ".") + ("" if "." in name else ".default") for name in source.operators]
    return [OperatorNode(f"{op}_{handle}", metadata=metadata, op=op) for op in ops]


def _called(event: str) -> str:
    """`cos` of `native_call_cos.out`."""
    return event.removeprefix(KERNEL_CALL).partition(".")[0]


def _operator(name: str) -> str:
    """`cos` of `aten.cos.default`."""
    return name.split(".")[1] if "." in name else name


def method_names(record: ETRecord) -> list[str]:
    """The methods whose instructions the record knows; of constant methods there are none."""
    handles = record._debug_handle_map or {}
    return [name for name, own in handles.items() if own] or [*handles]


def split_graph_name(name: str, methods: Iterable[str]) -> tuple[str, str | None]:
    """`graph/method` -> both; (name, None) if it names none of the methods."""
    graph, _, method = name.rpartition("/")
    return (graph, method) if graph and method in methods else (name, None)


def recorded_method(events: Sequence[flatcc.Event]) -> str | None:
    """The method that a run says it is of: its load's or execution's event has the name."""
    spans = (event.profile_event for event in events)
    said = (span.delegate_debug_metadata for span in spans if span is not None and span.name in RUN_EVENTS)
    return next((bytes(name).decode(errors="replace") for name in said if name), None)


def fitting_method(calls: Sequence[tuple[str, str]], methods: Mapping[str, MethodRecord], block: str) -> str | None:
    """The only method, or the one that the calls, (instruction, event's name), of a run fit best; None without calls.

    Raises `ValueError` if several methods fit equally well, or none does.
    """
    if len(methods) == 1:
        return next(iter(methods))
    if not calls or not methods:
        return None
    fits = {name: method.fit(calls) for name, method in methods.items()}
    best = max(fits.values())
    fitting = [name for name, fit in fits.items() if fit == best and best >= 0]
    if len(fitting) == 1:
        return fitting[0]
    what = f"fits {', '.join(fitting)} equally well" if fitting else f"fits none of {', '.join(methods)}"
    raise ValueError(
        f"the ETDump does not say which method the run {block!r} was of, and it {what}; say it:"
        " Inspector(…, method_name=…), or load the program with Delegraph's runtime, which records it"
    )


EXPORTED, EDGE = "exported_program", "edge_dialect_exported_program"


def method_to_compare(record: ETRecord, name: str | None, ran: Sequence[str]) -> str:
    """The method that the graph's name says, or the only one that `ran`. Raises `ValueError`."""
    known = method_names(record)
    method = split_graph_name(name or "", known)[1]
    if method is None and len(ran) > 1:
        raise ValueError(
            f"the ETDump has runs of {', '.join(ran)}; say which to compare:"
            f" calculate_numeric_gap(…, reference_graph='{EDGE}/{ran[0]}')"
        )
    if method is not None and ran and method not in ran:
        raise ValueError(f"the ETDump has no run of {method}, only of {', '.join(ran)}")
    return method or next(iter(ran), known[0] if len(known) == 1 else FORWARD)


def programs_of(record: ETRecord, method: str) -> tuple[ExportedProgram, ExportedProgram | None]:
    """The edge program of `method` and, if the record has it, the exported one. Raises `ValueError`."""
    edge, known = record.edge_dialect_program, method_names(record)
    if edge is None:
        raise ValueError("the ETRecord has no edge program to compare with; lower with generate_etrecord=True")
    programs = edge if isinstance(edge, dict) else {known[0] if len(known) == 1 else FORWARD: edge}
    if method not in programs:
        raise ValueError(f"the ETRecord has no edge program of {method}, only of {', '.join(programs)}")
    return programs[method], record.exported_program if method == FORWARD or len(programs) == 1 else None


def further_program(record: ETRecord, name: str) -> ExportedProgram:
    """The program `name/method` of the graph map. Raises `ValueError`."""
    graphs = record.graph_map or {}
    if name not in graphs:
        raise ValueError(
            f"Reference graph '{name}' not found. Available options: '{EXPORTED}', '{EDGE}', or one of the graphs in"
            f" graph_map: {[*graphs]}"
        )
    return graphs[name]


EDGE_DIALECT_GRAPH_KEY = "edge_dialect_graph_module"
EXCLUDED_COLUMNS_WHEN_PRINTING = ["raw", "delegate_debug_identifier", "stack_traces", "module_hierarchy", "debug_data"]
EXCLUDED_EVENTS_WHEN_PRINTING = {"OPERATOR_CALL"}
EXCLUDED_EVENTS_FOR_INTERMEDIATE_OUTPUT = {"OPERATOR_CALL"}


def gen_etdump_object(etdump_path: str | None = None, etdump_data: bytes | None = None) -> ETDumpFlatCC:
    """The records of an ETDump, by path or bytes. Raises `ValueError` without either, and `InvalidArgument`."""
    if etdump_data is None and etdump_path is None:
        raise ValueError(
            "Unable to get ETDump data. One and only one of etdump_path and etdump_data must be specified."
        )
    return deserialize_from_etdump_flatcc(Path(str(etdump_path)).read_bytes() if etdump_data is None else etdump_data)


def gen_graphs_from_etrecord(etrecord: ETRecord, enable_module_hierarchy: bool = False) -> Mapping[str, OperatorGraph]:
    """The operator graphs of an ETRecord's programs by name.

    That of the edge program is `EDGE_DIALECT_GRAPH_KEY`; of several each is `EDGE_DIALECT_GRAPH_KEY/method`, and
    `forward`'s (without it, the first) is the former as well.
    """
    programs = dict(etrecord.graph_map or {})
    edge = etrecord.edge_dialect_program
    if isinstance(edge, dict):
        programs.update({f"{EDGE_DIALECT_GRAPH_KEY}/{method}": program for method, program in edge.items()})
        edge = edge.get(FORWARD) or next(iter(edge.values()))
    if isinstance(edge, ExportedProgram):
        programs[EDGE_DIALECT_GRAPH_KEY] = edge
    return {
        name: FXOperatorGraph.gen_operator_graph(program.graph_module, enable_module_hierarchy=enable_module_hierarchy)
        for name, program in programs.items()
    }
