"""ATen program with functorch's calls for `torch.vmap` in it -> one whose operators have the batch dimension.

torch.export leaves vmap in the graph as calls of functorch's own functions (`_add_batch_dim`, `_remove_batch_dim` …);
`associative_scan` and `flex_attention` use it inside. Only running the graph again resolves them, which is what torch's
`run_decompositions` does: slow, and the one way that a program takes here if it has to.
"""

from __future__ import annotations

from torch.export import ExportedProgram

__all__ = ["without_vmap"]


def without_vmap(program: ExportedProgram) -> ExportedProgram:
    """`program` itself where it has no vmap in it; else traced anew, with its operators as they are."""
    modules = (getattr(node.target, "__module__", "") for node in program.graph.nodes if node.op == "call_function")
    return program.run_decompositions({}) if "torch._functorch.predispatch" in modules else program
