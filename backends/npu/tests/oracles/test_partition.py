"""A compiled partition, all of its commands, computes what the TOSA reference model computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from backends.npu.tests.harness import run
from backends.npu.tests.oracles.tosa import tosa_partition
from torch import nn

import delegraph
from delegraph.program import deserialize_program
from delegraph_npu.blob import pack, unpack

pytestmark = pytest.mark.oracles


class Network(nn.Module):
    """An inverted residual between a stem and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU6())
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1), nn.ReLU6(), nn.Conv2d(24, 24, 3, 1, 1, groups=24), nn.ReLU6(), nn.Conv2d(24, 8, 1)
        )
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Sigmoid())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        stem = self.stem(image)
        return self.head(stem + self.block(stem))


class Numbers(nn.Module):
    """Sums and products with numbers, and a layer as GPT-2 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(16, 24)), nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.addmm(self.bias, 1 - x * 1.7, self.weight)
        return torch.tanh((y / 3 + 0.25) ** 2) - 0.5


@pytest.mark.parametrize(("model", "shape"), [(Network, (1, 3, 16, 16)), (Numbers, (12, 16))])
def test_a_network_is_bit_exact(model: type[nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    taken = torch.randn(shape)
    quantized = delegraph.quantize(model().eval(), [(taken,)], recipe="int8{observer=minmax}", backends=["npu"])
    lowered = delegraph.lower(quantized, backends=[("npu", {"take_all": True})])
    program = deserialize_program(bytes(lowered))
    (delegate,) = program.execution_plan[0].delegates
    blob = unpack(program.delegate_data[delegate.processed])
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, one.shape).astype(np.int8) for one in blob.inputs]
    found, expected = run(pack(blob), *inputs), tosa_partition(blob, *inputs)
    assert len(np.unique(found[0])) > 3
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
