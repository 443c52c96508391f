"""What the page loads."""

from pathlib import Path

import torch
from torch.export import export

from delegraph_executorch.exir import to_edge_transform_and_lower


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y + y


_inputs = (torch.ones(2, 2), torch.ones(2, 2))
_lowered = to_edge_transform_and_lower(export(_Model(), _inputs)).to_executorch()
Path("/tmp/program.pte").write_bytes(_lowered.buffer)
