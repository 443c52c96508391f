"""ExportedProgram -> its graph with the write-backs of buffers and inputs as `copy_` calls, and the signature of that.

Delegraph's lowering writes back when it emits; this is for code that goes through ExecuTorch's passes one by one.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule, Node

from delegraph.aot import ResolvedSignature
from delegraph_executorch.exir.operator.convert import is_inplace_variant

__all__ = ["insert_write_back_for_buffers_pass"]


def insert_write_back_for_buffers_pass(ep: ExportedProgram) -> tuple[GraphModule, ExportGraphSignature]:
    """Add the copies, in place; what was changed in place already needs none."""
    graph, output = ep.graph, ep.graph.output_node()
    values = list(output.args[0])
    targets = {write_back.source: write_back.target for write_back in ResolvedSignature.of(ep).write_backs}
    specs = list(ep.graph_signature.output_specs)
    mutations = [i for i, spec in enumerate(specs) if spec.kind.name.endswith("_MUTATION")]
    for i in mutations:
        source = values[i]
        assert isinstance(source, Node)
        if _changed_in_place(source) is targets[source]:
            continue
        with graph.inserting_before(output):
            values[i] = graph.call_function(torch.ops.aten.copy_.default, (targets[source], source))
        values[i].meta = {"val": targets[source].meta["val"]}
        specs[i] = replace(specs[i], arg=replace(specs[i].arg, name=values[i].name))
    output.args = (tuple(values),)
    graph.lint()
    ep.graph_module.recompile()
    return ep.graph_module, ExportGraphSignature(list(ep.graph_signature.input_specs), specs)


def _changed_in_place(node: Node) -> Node:
    """Through calls that write their first argument, to the value that was changed."""
    while (schema := getattr(node.target, "_schema", None)) is not None and is_inplace_variant(
        schema.name, schema.overload_name
    ):
        first = node.args[0]
        assert isinstance(first, Node)
        node = first
    return node
