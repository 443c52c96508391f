"""ExecuTorch's `executorch.exir.backend.canonical_partitioners.duplicate_constant_node_pass`.

Lowering here gives each delegate that reads a tagged constant one of its own; nobody has to call this for that.
"""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

__all__ = ["duplicate_constant_node"]

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def duplicate_constant_node(exported_program: ExportedProgram, candidate_node: str) -> set[str]:
    """Give each reader of a parameter, buffer or constant, the first apart, a placeholder of its own.

    `candidate_node` is the placeholder's name. Its copies are called `<name>_copy_0` … and refer to the same weight,
    which is not copied; their names are returned. Raises `RuntimeError` for an input of the program.
    """
    graph, signature = exported_program.graph, exported_program.graph_signature
    node = next((node for node in graph.find_nodes(op="placeholder") if node.name == candidate_node), None)
    if node is None:
        return set()
    position = next(i for i, spec in enumerate(signature.input_specs) if spec.arg.name == node.name)
    spec = signature.input_specs[position]
    if spec.kind not in _HELD:
        raise RuntimeError(f"{candidate_node} is an input of the program, not a parameter, buffer or constant of it")
    copies = []
    for number, user in enumerate(list(node.users)[1:]):
        name = f"{candidate_node}_copy_{number}"
        with graph.inserting_before(node):
            copy = graph.placeholder(name)
        copy.meta = dict(node.meta)
        user.replace_input_with(node, copy)
        copies.append(InputSpec(spec.kind, TensorArgument(copy.name), spec.target, spec.persistent))
    signature.input_specs[position:position] = copies
    exported_program.graph_module.recompile()
    exported_program.validate()
    return {copy.arg.name for copy in copies}
