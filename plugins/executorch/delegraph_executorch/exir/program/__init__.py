"""Managers (ExecuTorch `exir/program`)."""

from delegraph_executorch.exir.program._fake_program import get_fake_program
from delegraph_executorch.exir.program._program import (
    EdgeProgramManager,
    ExecutorchProgram,
    ExecutorchProgramManager,
    ExirExportedProgram,
    _to_edge,
    edge_to_executorch_passes,
    to_edge,
    to_edge_transform_and_lower,
)

__all__ = [
    "EdgeProgramManager",
    "ExecutorchProgram",
    "ExecutorchProgramManager",
    "ExirExportedProgram",
    "_to_edge",
    "edge_to_executorch_passes",
    "get_fake_program",
    "to_edge",
    "to_edge_transform_and_lower",
]
