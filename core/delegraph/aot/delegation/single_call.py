"""A lowered module -> a program that does nothing but call it.

the delegate's own program              the program around it
inputs: w (its own), x, k               inputs: x, k
y = linear(x, w)                        d = call_delegate(lowered, x, k)
z = y * k                               z = d[0]
return z                                return z
"""

from __future__ import annotations

import operator

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, Node

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, call_delegate
from delegraph.aot.graph.edit import rebuild

__all__ = ["program_calling"]


def program_calling(lowered: LoweredBackendModule) -> ExportedProgram:
    """An edge program with the user inputs and outputs of the delegate's own, and their structure."""
    original, flat = lowered.original_module, lowered.flat()
    signature = original.graph_signature
    named = {node.name: node for node in original.graph.find_nodes(op="placeholder")}
    specs = [spec for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    graph = Graph()
    inputs = [
        graph.node_copy(named[spec.arg.name])
        for spec in signature.input_specs
        if spec.kind is InputKind.USER_INPUT and spec.arg.name in named
    ]
    call = graph.call_function(call_delegate, (graph.create_node("get_attr", "lowered_module_0"), *inputs))
    results = [node for node in original.graph.output_node().args[0] if isinstance(node, Node)]
    results = results[len(results) - len(specs) :]
    call.meta = {"val": tuple(node.meta["val"] for node in results), "debug_handle": 1}
    elements = []
    for position, node in enumerate(results):
        element = graph.call_function(operator.getitem, (call, position))
        element.meta = {"val": node.meta["val"]}
        elements.append(element)
    graph.output(tuple(elements))
    program = rebuild(original, {"lowered_module_0": flat}, graph, specs)
    program._state_dict, program._constants = {}, {}
    return program
