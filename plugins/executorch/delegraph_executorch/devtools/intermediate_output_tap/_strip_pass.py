"""A lowered program with taps -> the same with the reducers' own calls in their place."""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph_executorch.devtools.intermediate_output_tap._reducers import get_reducer
from delegraph_executorch.devtools.intermediate_output_tap._tap_pass import find_tap_nodes
from delegraph_executorch.exir.program._transform import name_outputs

__all__ = ["strip_taps_"]


def strip_taps_(edge_manager: Any) -> None:
    """Put reducers in the place of the taps of all methods, in place: after `to_edge_transform_and_lower`, since no
    backend is to take them, and before `to_executorch`."""
    for method in edge_manager.methods:
        _strip_taps_in_exported_program(edge_manager.exported_program(method))


def _strip_taps_in_exported_program(ep: ExportedProgram) -> None:
    graph = ep.graph_module.graph
    taps = find_tap_nodes(ep.graph_module)
    if not taps:
        return
    output = graph.output_node()
    for tap in taps:
        source, reducer = tap.args[0], get_reducer(str(tap.args[1]))
        assert isinstance(source, Node)
        with graph.inserting_before(tap):
            reduced = reducer.emit(graph, source)
        for user in list(tap.users):
            user.replace_input_with(tap, reduced if user is output else source)
    graph.eliminate_dead_code()
    ep.graph_module.recompile()
    name_outputs(ep.graph_signature, ep.graph_module)
