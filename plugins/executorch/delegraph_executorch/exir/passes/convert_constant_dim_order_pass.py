"""ExportedProgram -> the same, constants neither contiguous nor channels-last made contiguous."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from delegraph.aot import ResolvedSignature

__all__ = ["convert_constant_dim_order_pass"]


def convert_constant_dim_order_pass(exported_program: ExportedProgram) -> ExportedProgram:
    """Change constants and buffers in place, and what their placeholders say of them."""
    persistent = set(exported_program.state_dict)
    signature = exported_program.graph_signature
    names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    for node, held in ResolvedSignature.of(exported_program).constants.items():
        name = names.get(node.name)
        if name is None or held.tensor.is_contiguous() or _is_channels_last(held.tensor):
            continue
        holder = exported_program.state_dict if name in persistent else exported_program.constants
        holder[name] = held.tensor.contiguous()
        node.meta["val"] = node.meta["val"].contiguous()
    return exported_program


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
