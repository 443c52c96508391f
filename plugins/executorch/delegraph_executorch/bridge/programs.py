"""Edge program -> the same as ExecuTorch's own classes expect it: its operators, on a copy of the graph.

    before                                           after
    r = aten.relu.default(x)                         r = exir_ops.edge.aten.relu.default(r)

Nodes keep their names, `debug_handle` and fake values; weights are shared, not copied. One walk over the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from delegraph_executorch.bridge.imports import executorch

__all__ = ["Translated", "edge_verifier", "note_outputs", "torch_operator", "translated"]


@dataclass(frozen=True, slots=True)
class Translated:
    """ExecuTorch's program, and the node of the original that each of its nodes, also in bodies, stands for."""

    program: ExportedProgram
    originals: Mapping[Node, Node]


def translated(program: ExportedProgram) -> Translated:
    """`program`, in the edge dialect, as ExecuTorch's partitioners and backends read it."""
    copier = _Copier()
    graph, root = copier.copy(program.graph_module)
    copied = ExportedProgram(
        root=root,
        graph=graph,
        graph_signature=program.graph_signature,
        state_dict=dict(program.state_dict),
        range_constraints=dict(program.range_constraints),
        module_call_graph=list(program.module_call_graph),
        constants=dict(program.constants),
        verifiers=[edge_verifier()],
    )
    return Translated(copied, copier.originals)


class _Copier:
    """Copies a graph and the bodies of its control flow."""

    def __init__(self) -> None:
        self.originals: dict[Node, Node] = {}

    def copy(self, module: GraphModule) -> tuple[Graph, dict[str, Any]]:
        """The copied graph, and what its get_attr nodes refer to."""
        graph = Graph()
        copies: dict[Node, Node] = {}
        outputs = graph.graph_copy(module.graph, copies)
        output = graph.output(outputs)
        output.meta = dict(module.graph.output_node().meta)
        note_outputs(output)
        copies[module.graph.output_node()] = output
        root: dict[str, Any] = {}
        for old, new in copies.items():
            new.name = old.name  # the signature refers to it
            self.originals[new] = old
            if isinstance(new.target, OpOverload):
                _use_edge_operator(new, torch_operator(new.target))
            elif new.op == "get_attr":
                root[str(new.target)] = self._held(operator.attrgetter(str(new.target))(module))
        return graph, root

    def _held(self, held: Any) -> Any:
        """A body is copied as well; delegates and tensors are shared."""
        if not isinstance(held, GraphModule):
            return held
        graph, root = self.copy(held)
        return GraphModule(root, graph)


def note_outputs(output: Node) -> None:
    """Let the output node have the values that a graph gives as `meta["val"]`, as in ExecuTorch."""
    output.meta.setdefault("val", map_arg(output.args[0], lambda node: node.meta.get("val")))


def torch_operator(target: OpOverload) -> OpOverload:
    """torch's own operator, whichever dialect `target` is of."""
    inner = getattr(target, "_op", None)
    return inner if isinstance(inner, OpOverload) else target


def _use_edge_operator(node: Node, op: OpOverload) -> None:
    edge = executorch("exir.passes.replace_aten_with_edge_pass")
    node.target = _edge_operator(op) if edge.should_lower_to_edge(op) else op


@cache
def _edge_operator(op: OpOverload) -> Any:
    return executorch("exir.passes.replace_aten_with_edge_pass:aten_to_edge")(op)


@cache
def edge_verifier() -> Any:
    """ExecuTorch's verifier of edge programs, without the rules that ours has checked before."""
    config = executorch("exir:EdgeCompileConfig")(_check_ir_validity=False)
    return executorch("exir.verification.verifier:EXIREdgeDialectVerifier")(edge_compile_config=config, class_only=True)
