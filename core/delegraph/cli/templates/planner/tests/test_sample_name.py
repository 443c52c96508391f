"""The places that tensors get."""

import torch
from sample_name import plan

import delegraph
from delegraph.interfaces import Lifetime


def test_a_place_is_used_again() -> None:
    tensors = [Lifetime(0, 64, 0, 1), Lifetime(1, 32, 1, 2), Lifetime(2, 48, 2, 3)]
    planned = plan(tensors, 16)
    assert planned.offsets == (0, 64, 0)
    assert planned.buffer_sizes == (0, 96)


def test_a_program_is_planned_by_it() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4))).eval()
    executorch = delegraph.ExecutorchBackendConfig(memory_planner="sample_name")
    lowered = delegraph.lower(model, (torch.randn(1, 8),), config=delegraph.LoweringConfig(executorch=executorch))
    memory = lowered.program.memory["forward"]
    assert memory.planned_bytes < 5 * 32  # a place of its own for the input and each result
