"""ATen program -> functional core ATen program: mutation becomes data flow, composite operators become core ones.

Buffers and inputs that a program changes become further outputs; `functionalizer.py` rebuilds its graph.
"""

from __future__ import annotations

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from delegraph.aot.functional.decompose import Decompositions, Keep, NodeFilter
from delegraph.aot.functional.functionalizer import FunctionalGraph, functional_graph
from delegraph.aot.functional.states_apart import check_states_apart
from delegraph.aot.graph.debug_handles import source_handles
from delegraph.aot.graph.edit import rebuild, with_buffers
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError

__all__ = ["fake_mode_of", "functionalize"]


def functionalize(program: ExportedProgram, keep: Keep, only: NodeFilter | None = None) -> ExportedProgram:
    """The same program in functional core ATen, except that operators in `keep` stay whole, and with `only` all calls
    that it does not accept.

    Buffers and inputs that the model mutates become outputs (BUFFER_MUTATION, USER_INPUT_MUTATION); a tensor that it
    mutates without having registered it becomes a buffer. The given program
    is not changed; weights are shared. Raises `LoweringError` for a mutation that cannot be expressed, or that reaches
    another buffer.
    """
    decompositions = Decompositions(fake_mode_of(program), keep, only)
    _forget_pending_symbols(decompositions.mode)
    pinned_before = fixed_sizes(decompositions.mode)
    handles = source_handles(program.graph_module)
    rebuilt = functional_graph(program.graph_module, decompositions, handles, frozenset(program.constants))
    pinned = fixed_sizes(decompositions.mode).items() - pinned_before.items()
    if pinned:
        fixed = ", ".join(f"{symbol} to {value}" for symbol, value in sorted(pinned))
        raise LoweringError(f"decomposing the program would fix dynamic dimensions to their example: {fixed}")
    program = with_buffers(program, {placeholder.name for placeholder in rebuilt.mutated})
    functional = rebuild(program, rebuilt.root, rebuilt.graph, _with_mutations(program, rebuilt), rebuilt.constants)
    check_states_apart(functional)
    return functional


def fake_mode_of(program: ExportedProgram) -> FakeTensorMode:
    """The mode that the program's fake values belong to."""
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                return value.fake_mode
    return FakeTensorMode()


def _forget_pending_symbols(mode: FakeTensorMode) -> None:
    """Drop the unbacked symbols that somebody else's tracing of the program left pending, as ExecuTorch's `to_edge`
    does: torch would expect the next call that gives an unbacked size to give them as well."""
    if mode.shape_env is not None:
        mode.shape_env.pending_fresh_unbacked_symbols.clear()


def fixed_sizes(mode: FakeTensorMode) -> dict[str, str]:
    """The symbolic sizes that have become numbers, by symbol."""
    if mode.shape_env is None:
        return {}
    return {str(symbol): str(value) for symbol, value in mode.shape_env.replacements.items() if value.is_number}


def _with_mutations(program: ExportedProgram, rebuilt: FunctionalGraph) -> list[OutputSpec]:
    """The program's output specs, with one in front for every placeholder that was mutated."""
    inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    specs = []
    for placeholder, value in rebuilt.mutated.items():
        spec = inputs[placeholder.name]
        if spec.kind is InputKind.PARAMETER:
            writer = rebuilt.writers[placeholder]
            raise LoweringError(
                f"the model changes its parameter {spec.target}; only buffers can be changed:"
                f" register it as a buffer (register_buffer)",
                node=writer.name,
                location=user_location(writer),
            )
        kind = OutputKind.BUFFER_MUTATION if spec.kind is InputKind.BUFFER else OutputKind.USER_INPUT_MUTATION
        target = spec.target if spec.kind is InputKind.BUFFER else placeholder.name
        specs.append(OutputSpec(kind, TensorArgument(value.name), target))
    return specs + list(program.graph_signature.output_specs)
