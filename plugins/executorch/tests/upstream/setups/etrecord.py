"""What the page speaks of: a model, its inputs, a recipe and a partitioner."""

import torch

from delegraph_executorch.exir import to_edge  # noqa: F401
from delegraph_executorch.export import ExportRecipe
from delegraph_partitioners.capability import CapabilityBasedPartitioner


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y + y


def MyPartitioner() -> object:
    return CapabilityBasedPartitioner("CpuBackend", lambda node: None)


model, example_inputs, recipe = _Model(), (torch.ones(2), torch.ones(2)), ExportRecipe()
