"""Lowered program -> the mutable buffers that it has, and which of them its delegates keep as their own state."""

from __future__ import annotations

from torch.export import ExportedProgram

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, lowered_modules
from delegraph.aot.graph.signature import ResolvedSignature

__all__ = ["changed_buffers", "held_buffers", "kept_buffers"]


def changed_buffers(program: ExportedProgram) -> set[str]:
    """The buffers that a method changes, by its own calls or in a delegate."""
    own = {state.name for state in ResolvedSignature.of(program).states.values()}
    return own.union(*map(kept_buffers, lowered_modules(program.graph_module)))


def kept_buffers(lowered: LoweredBackendModule) -> set[str]:
    """The buffers that a delegate changes, and keeps from one run to the next."""
    return set(lowered.original_module.graph_signature.buffers_to_mutate.values())


def held_buffers(lowered: LoweredBackendModule) -> set[str]:
    """The buffers that a delegate has as constants."""
    return set(lowered.original_module.graph_signature.inputs_to_buffers.values()) - kept_buffers(lowered)
