"""ExecuTorch's `executorch.devtools.inspector._inspector_utils`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.export import ExportedProgram

from delegraph.aot import ETRecord
from delegraph_executorch.devtools.debug_format.et_schema import FXOperatorGraph, OperatorGraph
from delegraph_executorch.devtools.etdump.schema_flatcc import ETDumpFlatCC
from delegraph_executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
from delegraph_executorch.devtools.inspector._debug_handles import (
    DebugHandle,
    NodeFilter,
    create_debug_handle_to_op_node_mapping,
    find_op_names,
    get_ancestor_node_identifiers,
    get_aot_debug_handle_to_op_name_mapping,
    get_parent_node_identifier,
    propagate_back_debug_handle,
)
from delegraph_executorch.devtools.inspector._events import RESERVED_FRAMEWORK_EVENT_NAMES
from delegraph_executorch.devtools.inspector._methods import FORWARD
from delegraph_executorch.devtools.inspector._metrics import (
    calculate_cosine_similarity,
    calculate_mse,
    calculate_snr,
    compare_results,
    plot_metric,
)
from delegraph_executorch.devtools.inspector._output_matching import (
    NodeData,
    NodeSource,
    convert_to_float_tensor,
    map_runtime_aot_intermediate_outputs,
    merge_runtime_overlapping_debug_handles,
)
from delegraph_executorch.devtools.inspector._tables import display_or_print_df
from delegraph_executorch.devtools.inspector._time import TIME_SCALE_DICT, TimeScale, calculate_time_scale_factor
from delegraph_executorch.devtools.inspector._values import (
    InferenceOutput,
    ProgramOutput,
    find_populated_event,
    inflate_runtime_output,
    is_debug_output,
    is_inference_output_equal,
    verify_debug_data_equivalence,
)

__all__ = [
    "EDGE_DIALECT_GRAPH_KEY",
    "EXCLUDED_COLUMNS_WHEN_PRINTING",
    "EXCLUDED_EVENTS_FOR_INTERMEDIATE_OUTPUT",
    "EXCLUDED_EVENTS_WHEN_PRINTING",
    "FORWARD",
    "RESERVED_FRAMEWORK_EVENT_NAMES",
    "TIME_SCALE_DICT",
    "DebugHandle",
    "InferenceOutput",
    "NodeData",
    "NodeFilter",
    "NodeSource",
    "ProgramOutput",
    "TimeScale",
    "calculate_cosine_similarity",
    "calculate_mse",
    "calculate_snr",
    "calculate_time_scale_factor",
    "compare_results",
    "convert_to_float_tensor",
    "create_debug_handle_to_op_node_mapping",
    "display_or_print_df",
    "find_op_names",
    "find_populated_event",
    "gen_etdump_object",
    "gen_graphs_from_etrecord",
    "get_ancestor_node_identifiers",
    "get_aot_debug_handle_to_op_name_mapping",
    "get_parent_node_identifier",
    "inflate_runtime_output",
    "is_debug_output",
    "is_inference_output_equal",
    "map_runtime_aot_intermediate_outputs",
    "merge_runtime_overlapping_debug_handles",
    "plot_metric",
    "propagate_back_debug_handle",
    "verify_debug_data_equivalence",
]

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
