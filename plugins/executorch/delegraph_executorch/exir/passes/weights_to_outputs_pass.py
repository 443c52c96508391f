"""ExportedProgram of a training step -> the same, the weights that get a gradient among what it returns."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

__all__ = ["weights_to_outputs_pass"]


def weights_to_outputs_pass(exported_program: ExportedProgram) -> ExportedProgram:
    """Append them, in place, as outputs of kind TOKEN (as ExecuTorch does), and mark `meta["weight_has_gradient"]`."""
    signature, graph = exported_program.graph_signature, exported_program.graph
    targets = {s.target for s in signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER}
    weights = [
        node for node in graph.find_nodes(op="placeholder") if signature.inputs_to_parameters.get(node.name) in targets
    ]
    if not weights:
        return exported_program
    output = graph.output_node()
    output.args = ((*output.args[0], *weights),)
    for node in weights:
        node.meta["weight_has_gradient"] = True
        signature.output_specs.append(OutputSpec(OutputKind.TOKEN, TensorArgument(node.name), None))
    exported_program.graph_module.recompile()
    return exported_program
