"""What a stranger can do to a graph: a few hundred changes to each of some programs, in a process that may die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import delegraph

pytestmark = pytest.mark.long

COUNTS = {"cpu": 150, "openvino": 60}
"""Changes to each program; OpenVINO takes longer to load one."""


class Convolutions(torch.nn.Module):
    """Sizes, strides and groups."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(2, 4, 3, stride=2), torch.nn.Conv2d(4, 4, 1, groups=2)
        self.norm, self.last = torch.nn.GroupNorm(2, 4), torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.nn.functional.max_pool2d(self.norm(self.second(self.first(x))), 2, stride=1)
        result: torch.Tensor = self.last(seen.flatten(1)).softmax(-1)
        return result


class Attention(torch.nn.Module):
    """Heads, a branch, and what an index picks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        seen = torch.cond(seen.sum() > 0, lambda v: v + 1, lambda v: v * 2, (seen,))
        return torch.cat(seen.chunk(2, 1), -1).topk(2).values


MODELS = {
    "convolutions": (Convolutions(), torch.randn(1, 2, 7, 7)),
    "attention": (Attention(), torch.randn(1, 2, 4, 8)),
    "recurrent": (torch.nn.LSTM(3, 4, batch_first=True), torch.randn(1, 5, 3)),
}


@pytest.mark.parametrize("backend", COUNTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_changed_graph_ends_in_errors_or_runs(model: str, backend: str, tmp_path: Path) -> None:
    module, x = MODELS[model]
    file = tmp_path / "m.pte"
    delegraph.lower(module.eval(), (x,), backends=[backend]).save(file)
    np.save(file.with_suffix(".npy"), x.numpy())
    command = [sys.executable, "-m", "tests.mutated_graphs", str(file), "0", str(COUNTS[backend])]
    ended = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{file.with_suffix('.mutated.pte')} ended the process: {ended.stderr[-2000:]}"
    assert int(ended.stdout) > 0, "none of the changes left a graph that runs"
