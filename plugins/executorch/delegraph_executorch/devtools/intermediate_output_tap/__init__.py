"""ExecuTorch's `executorch.devtools.intermediate_output_tap`: values on the way as outputs of the program, through any
backend.

    tapped, specs = tap_intermediate_outputs_(torch.export.export(model, inputs))
    edge = to_edge_transform_and_lower(tapped, partitioner=[…])
    strip_taps_(edge)
    program = edge.to_executorch()                  # its outputs[specs[0].output_index] is the first tap's value
"""

from __future__ import annotations

from delegraph_executorch.devtools.intermediate_output_tap import custom_ops_lib
from delegraph_executorch.devtools.intermediate_output_tap._convenience import (
    compare_aot_runtime_dataframe,
    tap_compare,
)
from delegraph_executorch.devtools.intermediate_output_tap._reducers import (
    FULL_TENSOR,
    STATS,
    StatReducer,
    get_reducer,
)
from delegraph_executorch.devtools.intermediate_output_tap._selectors import (
    NodeSelector,
    select_all,
    select_all_call_function,
    select_any,
    select_by_module_class,
    select_by_module_path,
    select_by_op_type,
    select_not,
)
from delegraph_executorch.devtools.intermediate_output_tap._spec import TapSpec
from delegraph_executorch.devtools.intermediate_output_tap._strip_pass import strip_taps_
from delegraph_executorch.devtools.intermediate_output_tap._tap_pass import (
    TapRule,
    find_tap_nodes,
    is_tap_node,
    tap_intermediate_outputs_,
)

__all__ = [
    "FULL_TENSOR",
    "STATS",
    "NodeSelector",
    "StatReducer",
    "TapRule",
    "TapSpec",
    "compare_aot_runtime_dataframe",
    "custom_ops_lib",
    "find_tap_nodes",
    "get_reducer",
    "is_tap_node",
    "select_all",
    "select_all_call_function",
    "select_any",
    "select_by_module_class",
    "select_by_module_path",
    "select_by_op_type",
    "select_not",
    "strip_taps_",
    "tap_compare",
    "tap_intermediate_outputs_",
]
