"""Lowering to the CPU never holds the weights twice: not as a copy, not widened, not once for each method."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from benchmarks.processes import ROOT

PROGRAM = """
import json, sys
import torch
import delegraph
from benchmarks.lowering_memory import measured

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(16)))

    def forward(self, x):
        return self.layers(x).relu()

def peak(methods):
    model = Net().to(dtype).eval()
    args = {f"m{i}": (torch.zeros(1, i + 1, 1024, dtype=dtype),) for i in range(methods)}
    models = {name: torch.export.export(model, of_method) for name, of_method in args.items()}
    delegraph.lower(torch.nn.Linear(8, 8).to(dtype), (torch.zeros(1, 8, dtype=dtype),), backends=["cpu"])
    _, taken = measured(lambda: delegraph.lower(models, backends=["cpu"]))
    return taken["peak"] / sum(weight.nbytes for weight in model.parameters())

dtype = getattr(torch, sys.argv[1])
print(json.dumps([peak(1), peak(2)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.models)])
def test_the_peak_is_the_program_itself(dtype: str) -> None:
    """64 or 32 MB of weights; their program, the largest of them widened, and modules that are imported on the way."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, dtype]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    with_one_method, with_two = json.loads(done.stdout)
    assert with_one_method < 1.5
    assert with_two < 1.5
