"""ExportedProgram -> the same without the parameters that nothing reads."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind

__all__ = ["remove_unused_parameters_pass"]


def remove_unused_parameters_pass(ep: ExportedProgram) -> ExportedProgram:
    """Take them out of graph, signature and state dict, in place."""
    placeholders = {node.name: node for node in ep.graph.find_nodes(op="placeholder")}
    signature = ep.graph_signature
    unused = [
        spec
        for spec in signature.input_specs
        if spec.kind is InputKind.PARAMETER and not placeholders[spec.arg.name].users
    ]
    for spec in unused:
        ep.graph.erase_node(placeholders[spec.arg.name])
        del ep.state_dict[str(spec.target)]
    kept = [spec for spec in signature.input_specs if spec not in unused]
    ep._graph_signature = ExportGraphSignature(kept, signature.output_specs)
    ep.graph_module.recompile()
    return ep
