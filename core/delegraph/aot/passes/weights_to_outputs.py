"""Program of a training step -> the same, the weights that it computes gradients of behind its results.

    return loss, gradient of w         ->    return loss, gradient of w, w

At run time that output is the weight's own memory, which an optimizer changes (ExecuTorch
`exir/passes/weights_to_outputs_pass.py`). Output specs know no kind for it: it is TOKEN, as there.
"""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.graph.bodies import output_values
from delegraph.aot.graph.edit import argument_spec
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["WeightsToOutputs"]


class WeightsToOutputs(ExportedProgramPassBase):
    """Appends the trained weights to the outputs, in place, in the order of their gradients."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit `program` unless it trains nothing, or gives its weights back already."""
        signature = ResolvedSignature.of(program)
        if not signature.trained or signature.gives_weights_back:
            return ExportedProgramPassResult(program, False)
        output = program.graph.output_node()
        output.args = ((*output_values(program.graph), *signature.trained),)
        program.graph_signature.output_specs.extend(
            OutputSpec(OutputKind.TOKEN, argument_spec(node), None) for node in signature.trained
        )
        program.graph_module.recompile()
        return ExportedProgramPassResult(program, True)
