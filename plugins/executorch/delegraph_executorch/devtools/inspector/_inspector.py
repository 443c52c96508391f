"""An ETDump, and an ETRecord if there is one -> times, values and modules of each event; and the gap to the graph."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from torch.fx import GraphModule

from delegraph.aot import ETRecord, parse_etrecord
from delegraph.devtools import load_model
from delegraph.program import etdump as flatcc
from delegraph_executorch.devtools.inspector._events import (
    DebugEventSignature,
    DelegateMetadata,
    Event,
    EventBlock,
    EventSignature,
    InstructionEvent,
    InstructionEventSignature,
    MetadataParser,
    PerfData,
    ProfileEventSignature,
    RunSignature,
    TimeScaleConverter,
)
from delegraph_executorch.devtools.inspector._matching import (
    DebugHandle,
    IntermediateOutputCapturer,
    as_key,
    create_debug_handle_to_op_node_mapping,
    get_aot_debug_handle_to_op_name_mapping,
    is_captured,
    map_runtime_aot_intermediate_outputs,
    merge_runtime_overlapping_debug_handles,
    propagate_back_debug_handle,
)
from delegraph_executorch.devtools.inspector._methods import (
    EDGE,
    EDGE_DIALECT_GRAPH_KEY,
    EXCLUDED_COLUMNS_WHEN_PRINTING,
    EXCLUDED_EVENTS_FOR_INTERMEDIATE_OUTPUT,
    EXCLUDED_EVENTS_WHEN_PRINTING,
    EXPORTED,
    FORWARD,
    MethodRecord,
    fitting_method,
    further_program,
    gen_etdump_object,
    gen_graphs_from_etrecord,
    method_names,
    method_to_compare,
    programs_of,
    split_graph_name,
)
from delegraph_executorch.devtools.inspector._values import (
    ProgramOutput,
    TimeScale,
    calculate_time_scale_factor,
    display_or_print_df,
    is_inference_output_equal,
    pandas,
)
from delegraph_executorch.devtools.inspector.comparators import (
    L1Comparator,
    MSEComparator,
    NumericalComparatorBase,
    SNRComparator,
)
from delegraph_executorch.devtools.operator_graph import OperatorGraph, OperatorNode

__all__ = [
    "DebugEventSignature",
    "DelegateMetadata",
    "Event",
    "EventBlock",
    "EventSignature",
    "Inspector",
    "InstructionEvent",
    "InstructionEventSignature",
    "PerfData",
    "ProfileEventSignature",
    "RunSignature",
    "TimeScale",
    "flatcc",
    "is_inference_output_equal",
]

log = logging.getLogger(__name__)

COMPARATORS: Mapping[str, type[NumericalComparatorBase]] = {
    "MSE": MSEComparator,
    "L1": L1Comparator,
    "SNR": SNRComparator,
}


class Inspector:
    """What runs of a program did, of an ETDump; and with an ETRecord, which nodes and modules of the model did it.

    Give `etdump_path` or `etdump_data`; `etrecord` is a path or an `ETRecord`. Times are read in `source_time_scale`
    and shown in `target_time_scale`; those that backends report are converted by
    `delegate_time_scale_converter(name, time)` instead, if it is given. `delegate_metadata_parser` makes columns of
    what backends say of a run. Values are read from `debug_buffer_path`. `reference_graph_name` is the graph in the
    ETRecord whose nodes events are told by. `method_name` is the method of runs whose ETDump does not say it, as
    ExecuTorch's runtime's do not; None finds it: the method of the ETRecord whose calls they are. `program`, which
    ExecuTorch's has not, is the program that ran, a path or its bytes: it is asked where there is no ETRecord, as
    programs of Delegraph's carry operators, modules and lines.

    `event_blocks` has the result. Raises `ValueError` (also if several methods fit a run equally well), `TypeError`,
    `ETRecordError`, and `RuntimeError` where only one of the scales is cycles.
    """

    def __init__(
        self,
        etdump_path: str | None = None,
        etdump_data: bytes | None = None,
        etrecord: ETRecord | str | None = None,
        source_time_scale: TimeScale = TimeScale.NS,
        target_time_scale: TimeScale = TimeScale.MS,
        debug_buffer_path: str | None = None,
        delegate_metadata_parser: MetadataParser | None = None,
        delegate_time_scale_converter: TimeScaleConverter | None = None,
        enable_module_hierarchy: bool = False,
        reference_graph_name: str = EDGE_DIALECT_GRAPH_KEY,
        method_name: str | None = None,
        program: str | bytes | None = None,
    ) -> None:
        if (source_time_scale is TimeScale.CYCLES) is not (target_time_scale is TimeScale.CYCLES):
            raise RuntimeError("For TimeScale in cycles both the source and target time scale have to be in cycles.")
        if (etdump_path is None) is (etdump_data is None):
            raise ValueError("Expecting exactly one of etdump_path or etdump_data to be specified.")
        if etrecord is not None and not isinstance(etrecord, (ETRecord, str)):
            raise TypeError(f"Unsupported ETRecord type {type(etrecord).__name__}; give an ETRecord or its path")
        factor = calculate_time_scale_factor(source_time_scale, target_time_scale)
        self._source_time_scale = source_time_scale
        self._target_time_scale = target_time_scale
        self._etrecord = parse_etrecord(etrecord_path=etrecord) if isinstance(etrecord, str) else etrecord
        self._enable_module_hierarchy = enable_module_hierarchy
        self._method_name = method_name
        self.op_graph_dict: Mapping[str, OperatorGraph] | None = None
        self._reference_outputs: dict[str, list[ProgramOutput]] = {}
        self.event_blocks = EventBlock._gen_from_etdump(
            etdump=gen_etdump_object(etdump_path=etdump_path, etdump_data=etdump_data),
            source_time_scale=source_time_scale,
            target_time_scale=target_time_scale,
            output_buffer=_debug_buffer(debug_buffer_path),
            delegate_metadata_parser=delegate_metadata_parser,
            delegate_time_scale_converter=delegate_time_scale_converter or (lambda name, time: time / factor),
        )
        self._consume_etrecord(reference_graph_name)
        if self._etrecord is None and program is not None:
            self._consume_program(program)

    def _consume_etrecord(self, reference_graph_name: str) -> None:
        """Give events their debug handles and nodes, and blocks of bundled inputs the outputs that are right."""
        record = self._etrecord
        if record is None:
            return
        self.op_graph_dict = gen_graphs_from_etrecord(
            etrecord=record, enable_module_hierarchy=self._enable_module_hierarchy
        )
        names = method_names(record)
        nodes = {name: self._nodes(reference_graph_name, name, names) for name in names}
        methods = {name: MethodRecord.of(record, name, nodes[name]) for name in names}
        self._reference_outputs = record._reference_outputs or {}
        self._tell_all(methods)

    def _consume_program(self, program: str | bytes) -> None:
        """Give events the debug handles and nodes that the program itself tells of."""
        self._tell_all({method.name: MethodRecord.of_model(method) for method in load_model(program).methods})

    def _tell_all(self, methods: Mapping[str, MethodRecord]) -> None:
        for block in self.event_blocks:
            if block.method_name is None:
                block.method_name = self._method_name or fitting_method(block._calls(), methods, block.name)
            self._tell(block, methods)

    def _nodes(
        self, reference_graph_name: str, method: str, methods: Sequence[str]
    ) -> Mapping[int, Sequence[OperatorNode]]:
        """A method's nodes by debug handle; none if only others have a graph of that name. Raises `ValueError`."""
        graphs = self.op_graph_dict or {}
        name = f"{split_graph_name(reference_graph_name, methods)[0]}/{method}"
        if name in graphs:
            return create_debug_handle_to_op_node_mapping(graphs[name])
        if reference_graph_name not in graphs:
            raise ValueError(f"the ETRecord has no graph {reference_graph_name!r}; it has {', '.join(graphs)}")
        is_its_own = method == FORWARD or len(methods) == 1
        return create_debug_handle_to_op_node_mapping(graphs[reference_graph_name]) if is_its_own else {}

    def _tell(self, block: EventBlock, methods: Mapping[str, MethodRecord]) -> None:
        """Give the events what is known of the block's method; say so if that is nothing."""
        method = methods.get(block.method_name or "")
        if block._calls() and (method is None or not method.nodes):
            known = ", ".join(name for name, one in methods.items() if one.nodes)
            log.warning(
                "The ETRecord, or the program, knows no nodes of the method %r, only of %s", block.method_name, known
            )
        if method is None:
            return
        block._gen_resolve_debug_handles(method.handles, method.delegates, method.num_outputs)
        for event in block.events:
            event._associate_with_op_graph_nodes(debug_handle_to_op_node_map=method.nodes)
        outputs = self._reference_outputs.get(block.method_name or "")
        if outputs is not None and block.bundled_input_index not in (None, -1):
            block.reference_output = outputs[block.bundled_input_index]

    # ---- tables ----

    def to_dataframe(self, include_units: bool = True, include_delegate_debug_data: bool = False) -> Any:
        """A pandas DataFrame with a row for each event of each block; pandas is in the extra `devtools`.

        If there are runs of several methods, `method_name` is a column.
        """
        tables = [block.to_dataframe(include_units, include_delegate_debug_data) for block in self.event_blocks]
        if len({block.method_name for block in self.event_blocks}) > 1:
            for block, table in zip(self.event_blocks, tables, strict=True):
                table.insert(1, "method_name", block.method_name)
        return pandas().concat(tables, ignore_index=True)

    def print_data_tabular(
        self, file: IO[str] | None = None, include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> None:
        """Print the table without its long columns to `file` (None: standard output, or the notebook's)."""
        table = self._prepare_dataframe(include_units, include_delegate_debug_data)
        display_or_print_df(table, None if file is sys.stdout else file)

    def save_data_to_tsv(
        self, file: IO[str], include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> None:
        """Write the table without its long columns, with tabs between cells, for spreadsheets."""
        self._prepare_dataframe(include_units, include_delegate_debug_data).to_csv(file, sep="\t")

    def _prepare_dataframe(self, include_units: bool = True, include_delegate_debug_data: bool = False) -> Any:
        table = self.to_dataframe(include_units, include_delegate_debug_data)
        shown = ~table["event_name"].isin(EXCLUDED_EVENTS_WHEN_PRINTING)
        return table.drop(columns=EXCLUDED_COLUMNS_WHEN_PRINTING)[shown].reset_index(drop=True)

    # ---- by module, by operator ----

    def find_total_for_module(self, module_name: str) -> float:
        """The mean times of all events in modules whose path contains `module_name`, together, in the target scale."""
        return sum(
            event.perf_data.avg
            for block in self.event_blocks
            for event in block.events
            if event.name != "OPERATOR_CALL" and event.perf_data is not None and _is_in_module(event, module_name)
        )

    def get_op_list(self, event_block: str, show_delegated_ops: bool | None = True) -> dict[str, list[Event]]:
        """The events of the blocks of that name by operator; those inside of delegates only if asked for."""
        found: dict[str, list[Event]] = {}
        for block in self.event_blocks:
            for event in block.events:
                if block.name == event_block and (show_delegated_ops or not event.is_delegated_op):
                    for op in dict.fromkeys(event.op_types):
                        found.setdefault(op, []).append(event)
        return found

    def get_exported_program(self, graph: str | None = None) -> Any:
        """The ETRecord's edge program, or the further one that is named; None without an ETRecord, with a warning."""
        if self._etrecord is None:
            log.warning("Exported program is only available with an ETRecord: Inspector(…, etrecord=path)")
            return None
        return self._etrecord.edge_dialect_program if graph is None else (self._etrecord.graph_map or {}).get(graph)

    def get_vgf_neural_statistics(self) -> Any:
        """The statistics that Arm's VGF backend reported. Raises `NeedsWheel`: ExecuTorch's own reader reads them."""
        own = import_module("delegraph_executorch.devtools.inspector.vgf_neural_statistics")
        events = (event for block in self.event_blocks for event in block.events)
        said = [metadata for event in events for metadata in event.raw_delegate_debug_metadatas]
        return own.parse_vgf_neural_statistics_delegate_metadata(said)

    # ---- the gap between graph and runtime ----

    def calculate_numeric_gap(
        self,
        distance: str | NumericalComparatorBase,
        disable_debug_handle_valdiation: bool = False,
        reference_graph: str | None = None,
    ) -> Any:
        """A pandas DataFrame: each value that the graph and the runtime both have, and how far apart they are.

        `distance` is "MSE", "L1", "SNR" or a comparator. The graph is run on the ETRecord's representative inputs;
        `reference_graph` says which: "exported_program", "edge_dialect_exported_program" or a further program of the
        ETRecord; None takes the first if its nodes can be told by debug handles (all have to be, unless
        `disable_debug_handle_valdiation`), else the second. Of several methods that ran it says which as well:
        "edge_dialect_exported_program/prefill"; the inputs have to be that method's. Raises `ValueError`.
        """
        shown = self._of_method(reference_graph)
        module, name = shown._resolve_reference_graph(reference_graph, disable_debug_handle_valdiation)
        outputs, names = shown._get_aot_intermediate_outputs_and_op_names(module)
        if not outputs or not names:
            raise ValueError(
                "Missing etrecord or missing representative inputs within etrecord, both of which are required for"
                " calculating numerical gap: etrecord.update_representative_inputs(inputs)"
            )
        traces = shown._get_aot_debug_handle_to_stack_traces(module, name)
        runtime_outputs, runtime_names = shown._get_runtime_intermediate_outputs_and_op_names()
        mapping = map_runtime_aot_intermediate_outputs(outputs, runtime_outputs)
        table = shown._comparator(distance).compare(mapping, names, runtime_names)
        if len(table):
            by_name = {op: trace for own in traces.values() for op, trace in own.items()}
            table["stacktraces"] = [{op: by_name.get(op) for op in ops} for ops in table["aot_ops"]]
        return table

    def _of_method(self, reference_graph: str | None) -> Inspector:
        """The Inspector of the runs of the method to compare alone; this one if there are no others."""
        ran = self._methods_that_ran()
        if self._etrecord is None or not ran:
            return self
        method = method_to_compare(self._etrecord, reference_graph, ran)
        if ran == [method]:
            return self
        shown = copy.copy(self)
        shown.event_blocks = [block for block in self.event_blocks if block.method_name == method]
        return shown

    def _methods_that_ran(self) -> list[str]:
        named = (block.method_name for block in self.event_blocks if block._calls())
        return [*dict.fromkeys(name for name in named if name is not None)]

    def _comparator(self, distance: str | NumericalComparatorBase) -> NumericalComparatorBase:
        if isinstance(distance, NumericalComparatorBase):
            if distance.inspector is None:
                distance.inspector = self
            return distance
        comparator = COMPARATORS.get(distance.strip().upper())
        if comparator is None:
            raise ValueError(f"Unsupported distance metric {distance!r}; there are {', '.join(COMPARATORS)}")
        return comparator(self)

    def _resolve_reference_graph(
        self, reference_graph: str | None = None, disable_debug_handle_validation: bool = False
    ) -> tuple[GraphModule, str]:
        """The graph to compare with, and its name. Raises `ValueError`."""
        record = self._etrecord
        if record is None:
            raise ValueError("Missing etrecord: the graph to compare with is in it; Inspector(…, etrecord=path)")
        method = method_to_compare(record, reference_graph, self._methods_that_ran())
        graph = None if reference_graph is None else split_graph_name(reference_graph, method_names(record))[0]
        if graph not in (None, EXPORTED, EDGE):
            return further_program(record, graph if "/" in graph else f"{graph}/{method}").module(), graph
        edge, exported = programs_of(record, method)
        if graph == EDGE:
            return edge.module(), EDGE
        if exported is not None and propagate_back_debug_handle(
            exported, record.export_graph_id or 0, edge, disable_debug_handle_validation
        ):
            return exported.module(), EXPORTED
        if graph == EXPORTED:
            raise ValueError(
                "Cannot use 'exported_program': Debug handle backpropagation failed or exported program is"
                f" unavailable for the method {method}. Record it (generate_etrecord=True), or disable the validation"
                " of debug handles."
            )
        why = "cannot be told by debug handles" if exported is not None else "is not there"
        log.warning("The ETRecord's exported program of %r %s; comparing with the edge program", method, why)
        return edge.module(), EDGE

    def _get_aot_intermediate_outputs_and_op_names(
        self, reference_graph_module: GraphModule
    ) -> tuple[dict[DebugHandle, Any], dict[DebugHandle, list[str]]]:
        inputs = None if self._etrecord is None else self._etrecord._representative_inputs
        names = get_aot_debug_handle_to_op_name_mapping(reference_graph_module)
        if inputs is None:
            return {}, names
        return IntermediateOutputCapturer(reference_graph_module).run_and_capture(*_arguments(inputs)), names

    def _get_aot_debug_handle_to_stack_traces(
        self, reference_graph_module: GraphModule, resolved_graph_name: str
    ) -> dict[DebugHandle, dict[str, str | None]]:
        traces: dict[DebugHandle, dict[str, str | None]] = {}
        for node in filter(is_captured, reference_graph_module.graph.nodes):
            traces.setdefault(as_key(node.meta["debug_handle"]), {})[node.name] = node.meta.get("stack_trace")
        if traces and not any(trace for own in traces.values() for trace in own.values()):
            log.warning(
                "No stack traces found in reference_graph %r: the column 'stacktraces' is empty", resolved_graph_name
            )
        return traces

    def _get_runtime_intermediate_outputs_and_op_names(
        self,
    ) -> tuple[dict[DebugHandle, tuple[Any, int]], dict[DebugHandle, list[str]]]:
        """By handles what the last instruction with these wrote, and its name.

        The call of a delegate is left out where the backend itself told of what is in it.
        """
        events = [event for block in self.event_blocks for event in block.events if event.op_types]
        told: dict[str | None, set[int]] = {}
        for event in events:
            if event.is_delegated_op and event.debug_data and event.debug_handles is not None:
                told.setdefault(event.delegate_backend_name, set()).update(as_key(event.debug_handles))
        outputs: dict[DebugHandle, tuple[int, Any, int]] = {}
        names: dict[DebugHandle, list[str]] = {}
        for event in events:
            if event.name in EXCLUDED_EVENTS_FOR_INTERMEDIATE_OUTPUT or event.debug_handles is None:
                continue
            handles, instruction = as_key(event.debug_handles), event._instruction_id or 0
            if event.name == "DELEGATE_CALL" and told.get(event.delegate_backend_name, set()) & set(handles):
                continue
            if handles not in outputs or instruction > outputs[handles][0]:
                outputs[handles] = instruction, event.debug_data, event.num_outputs
                names[handles] = [event.name]
        merged = merge_runtime_overlapping_debug_handles(outputs)
        return {handles: (data, count) for handles, (_, data, count) in merged.items()}, names


def _debug_buffer(path: str | None) -> bytes | None:
    if path is None:
        warnings.warn("Output Buffer not found. Tensor Debug Data will not be available.", stacklevel=3)
        return None
    return Path(path).read_bytes()


def _arguments(inputs: Any) -> Any:
    """The representative inputs as the graph takes them: flat."""
    from torch.utils._pytree import tree_leaves

    return tree_leaves(inputs)


def _is_in_module(event: Event, name: str) -> bool:
    return any(name in key for hierarchy in event.module_hierarchy.values() for key in hierarchy or ())
