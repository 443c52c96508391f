"""A function -> its edge program, and what that calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram, export
from torch.fx import GraphModule

import delegraph
from delegraph.aot import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
)


def model(function: Any, **parts: Any) -> nn.Module:
    """A module that calls `function(self, *inputs)`."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: torch.Tensor) -> Any:
            return function(self, *inputs)

    return Model().eval()


def edge(function: Any, *args: Any, shapes: Any = None, **parts: Any) -> EdgeProgramManager:
    return to_edge(export(model(function, **parts), args, dynamic_shapes=shapes))


def graph_of(function: Any, *args: Any, **parts: Any) -> GraphModule:
    return edge(function, *args, **parts).exported_program().graph_module


def called(module: GraphModule | ExportedProgram) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def run(manager: EdgeProgramManager, *args: torch.Tensor, **config: Any) -> torch.Tensor:
    program = delegraph.load(bytes(manager.to_executorch(ExecutorchBackendConfig(**config)).buffer))
    return torch.from_numpy(program(*(a.numpy() for a in args)))
