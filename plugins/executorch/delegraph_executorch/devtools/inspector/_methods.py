"""Which method the runs of an ETDump were of; and what an ETRecord knows of each method.

    run "Execute"   Method::execute, metadata "other"               `other`: this runtime says it
    run "Execute"   native_call_cos.out, native_call_exp.out        `other`: of all methods its calls fit best

ExecuTorch's runtime does not say it, and its Inspector takes all runs for `forward`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegraph.aot import ETRecord
from delegraph.devtools import MethodModel
from delegraph.program import SourceNode
from delegraph_executorch.devtools.debug_format.base_schema import OperatorNode
from delegraph_executorch.devtools.etdump import schema_flatcc as flatcc
from delegraph_executorch.devtools.inspector._debug_handles import as_key

__all__ = [
    "DELEGATE_CALL",
    "FORWARD",
    "KERNEL_CALL",
    "RUN_EVENTS",
    "MethodRecord",
    "fitting_method",
    "method_names",
    "recorded_method",
    "split_graph_name",
]

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
