"""ExportedProgram of a training step -> the same, the weights that get a gradient among what it returns."""

from __future__ import annotations

from torch.export import ExportedProgram

from delegraph.aot import ResolvedSignature, WeightsToOutputs

__all__ = ["weights_to_outputs_pass"]


def weights_to_outputs_pass(exported_program: ExportedProgram) -> ExportedProgram:
    """Append them, in place, as `delegraph.aot.WeightsToOutputs` does, and mark `meta["weight_has_gradient"]`."""
    program = WeightsToOutputs()(exported_program).exported_program
    for node in ResolvedSignature.of(program).trained:
        node.meta["weight_has_gradient"] = True
    return program
