"""What the page speaks of: an edge program, and names that it takes as imported."""

from typing import Optional  # noqa: F401

import torch
from torch.export import ExportGraphSignature, export  # noqa: F401
from torch.fx import GraphModule  # noqa: F401
from torch.fx.passes.infra.pass_base import PassResult  # noqa: F401

from delegraph_executorch import exir
from delegraph_executorch.exir.memory_planning import greedy  # noqa: F401
from delegraph_executorch.exir.passes import MemoryPlanningPass  # noqa: F401


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * y


edge_program = exir.to_edge(export(_Model(), (torch.ones(2), torch.ones(2))))
