"""Programs of several methods -> the same, a buffer that several have under one name: that of the first method.

    decode, exported from `model`                  state
    prefill, exported from `Wrapper(model)`        m.state    which is the same tensor, and becomes state

Everything behind, from calibration to the file, knows the state that methods share by its name.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from torch.export import ExportedProgram

from delegraph.aot.graph.edit import with_names
from delegraph.aot.graph.stored_tensor import memory_of

__all__ = ["buffer_memory", "with_shared_names"]


def with_shared_names(programs: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
    """`programs`, in order, with buffers that are one tensor under one name, unless a method has that already."""
    names: dict[Hashable, str] = {}
    return {method: _renamed(program, names) for method, program in programs.items()}


def _renamed(program: ExportedProgram, names: dict[Hashable, str]) -> ExportedProgram:
    """`program` with `names` where it has buffers of that memory; `names` learns of the others."""
    taken = {spec.target for spec in program.graph_signature.input_specs}
    renamed: dict[str, str] = {}
    for name, memory in buffer_memory(program).items():
        shared = names.setdefault(memory, name)
        if shared not in taken:
            renamed[name] = shared
            taken.add(shared)
    return with_names(program, renamed) if renamed else program


def buffer_memory(program: ExportedProgram) -> dict[str, Hashable]:
    """The memory of each buffer, by name; those without any are left out."""
    stored = {**program.state_dict, **program.constants}
    tensors = {name: stored.get(name) for name in program.graph_signature.inputs_to_buffers.values()}
    memory = {name: memory_of(tensor) for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
    return {name: key for name, key in memory.items() if key is not None}
