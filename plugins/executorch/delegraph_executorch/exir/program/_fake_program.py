"""A program -> the same with fake weights (ExecuTorch `exir/program/_fake_program.py`)."""

from __future__ import annotations

import copy

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram

__all__ = ["get_fake_program", "update_to_real_program"]


def get_fake_program(real_exported_program: ExportedProgram) -> ExportedProgram:
    """A copy of a program whose parameters and buffers are fake tensors; lifted constants are shared.

    Raises AssertionError where its placeholders have no fake tensors.
    """
    mode = detect_fake_mode([node.meta.get("val") for node in real_exported_program.graph.find_nodes(op="placeholder")])
    if mode is None:
        raise AssertionError("the program's placeholders have no fake tensors: export it with torch.export.export")
    state: dict[str, torch.Tensor] = {
        name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in real_exported_program.state_dict.items()
    }
    module = copy.deepcopy(real_exported_program.graph_module)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(real_exported_program.graph_signature),
        state_dict=state,
        range_constraints=copy.deepcopy(real_exported_program.range_constraints),
        module_call_graph=copy.deepcopy(real_exported_program.module_call_graph),
        constants=real_exported_program.constants,
        verifiers=[real_exported_program.verifier],
    )


def update_to_real_program(fake_exported_program: ExportedProgram, real_exported_program: ExportedProgram) -> None:
    """Give a fake program, in place, the real one's parameters and buffers."""
    fake_exported_program._state_dict.update(real_exported_program.state_dict)
