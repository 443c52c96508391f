"""An example -> its programs in the edge dialect, before and after passes, and their content, to be compared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

import delegraph
from delegraph.aot import EdgeProgramManager, graph_modules
from delegraph_testkit.models import Example

__all__ = ["changed_methods", "content", "described", "edge_programs", "exported", "weights"]


def exported(source: Example, method: str) -> ExportedProgram:
    """A method of the example, of a copy of its module."""
    module, inputs = copy.deepcopy(source.modules[method]), source.calls[method][0]
    return torch.export.export(module, inputs, dynamic_shapes=source.dynamic_shapes.get(method))


def edge_programs(source: Example) -> EdgeProgramManager:
    """All methods of the example in the edge dialect."""
    return delegraph.to_edge({method: exported(source, method) for method in source.modules})


def changed_methods(source: Example, passes: Sequence[Any]) -> tuple[str, ...]:
    """The methods that are other programs after `passes`."""
    before = edge_programs(source)
    after = before.transform(passes)
    return tuple(m for m in source.modules if content(before, m) != content(after, m))


def content(programs: EdgeProgramManager, method: str) -> tuple[list[str], dict[str, bytes]]:
    """A method's graph and its weights: equal for equal programs, whatever their nodes are called."""
    program = programs.exported_program(method)
    return described(program.graph_module), weights(program)


def weights(program: ExportedProgram) -> dict[str, bytes]:
    """The bytes of a program's weights, buffers and constants."""
    tensors = {**program.state_dict, **program.constants}
    return {name: _bytes(value) for name, value in tensors.items() if isinstance(value, torch.Tensor)}


def described(module: GraphModule) -> list[str]:
    """A line for each node of a graph and its bodies, nodes by their numbers."""
    lines = []
    for path, body in graph_modules(module):
        numbers = {node: f"%{number}" for number, node in enumerate(body.graph.nodes)}

        def told(node: Node, numbers: dict[Node, str] = numbers) -> str:
            return numbers[node]

        for node in body.graph.nodes:
            target = node.target if node.op == "call_function" else ""
            lines.append(f"{path}{node.op} {target} {map_arg(node.args, told)} {map_arg(node.kwargs, told)}")
    return lines


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
