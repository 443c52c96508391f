"""ExportedProgram -> its graph with the write-backs of buffers and inputs as `copy_` calls, and the signature of that.

Delegraph's lowering writes back when it emits; this is for code that goes through ExecuTorch's passes one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec
from torch.fx import GraphModule, Node

from delegraph.aot import ResolvedSignature
from delegraph_executorch.exir.operator.convert import is_inplace_variant

__all__ = ["copied_back", "insert_write_back_for_buffers_pass"]


def insert_write_back_for_buffers_pass(ep: ExportedProgram) -> tuple[GraphModule, ExportGraphSignature]:
    """Add the copies, in place; what was changed in place already needs none."""
    specs = copied_back(ep, lambda source, target: _changed_in_place(source) is target)
    ep.graph.lint()
    ep.graph_module.recompile()
    return ep.graph_module, ExportGraphSignature(list(ep.graph_signature.input_specs), specs)


def copied_back(ep: ExportedProgram, is_there: Callable[[Node, Node], bool]) -> list[OutputSpec]:
    """The output specs, after a `copy_` was put in the graph for each new value of a buffer or an input.

    `is_there(source, target)` says that a value is where it belongs without.
    """
    output = ep.graph.output_node()
    values = list(output.args[0])
    targets = {write_back.source: write_back.target for write_back in ResolvedSignature.of(ep).write_backs}
    specs = list(ep.graph_signature.output_specs)
    for i, spec in enumerate(specs):
        target = targets.get(values[i]) if spec.kind.name.endswith("_MUTATION") else None
        if target is None or is_there(values[i], target):
            continue
        with ep.graph.inserting_before(output):
            values[i] = ep.graph.call_function(torch.ops.aten.copy_.default, (target, values[i]))
        values[i].meta = {key: target.meta[key] for key in ("val", "spec") if key in target.meta}
        specs[i] = replace(spec, arg=replace(spec.arg, name=values[i].name))
    output.args = (tuple(values),)
    return specs


def _changed_in_place(node: Node) -> Node:
    """Through calls that write their first argument, to the value that was changed."""
    while (schema := getattr(node.target, "_schema", None)) is not None and is_inplace_variant(
        schema.name, schema.overload_name
    ):
        first = node.args[0]
        assert isinstance(first, Node)
        node = first
    return node
