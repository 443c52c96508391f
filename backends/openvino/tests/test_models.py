"""The six models of the benchmarks, whole, as one delegate each; and int8, within a step and on integer kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from backends.openvino.tests.harness import compare, declined, load
from benchmarks.models import MODELS, make

import delegraph

pytestmark = pytest.mark.models


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    model, args = make(name)
    lowered = delegraph.lower(model, args, backends=["openvino"])
    assert declined(lowered) == {}
    assert len(lowered.report.methods["forward"].delegates) == 1
    wanted = model(*args)
    wanted = getattr(wanted, "logits", wanted)
    compare(load(lowered)(*(arg.numpy() for arg in args)), wanted, rtol=1e-4, atol=1e-4)


class Convolutions(torch.nn.Module):
    """What a quantizer keeps in integers: convolutions, a depthwise one, a sum, a pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.depthwise = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.last = torch.nn.Conv2d(16, 16, 1)
        self.linear = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x).relu()
        b = self.last(self.depthwise(a).relu()) + a
        result: torch.Tensor = self.linear(b.mean((2, 3)))
        return result


def quantized(
    model: torch.nn.Module, args: tuple[torch.Tensor, ...], samples: int = 8, backends: Sequence[str] = ()
) -> Any:
    """The model in int8, calibrated on noise like its example."""
    torch.manual_seed(1)
    batches = [tuple(torch.randn_like(arg) for arg in args) for _ in range(samples)]
    return delegraph.quantize(model, batches, args, backends=backends)


@pytest.mark.parametrize("backends", [[], ["openvino"], ["npu"]], ids=str)
def test_int8_within_a_step(backends: list[str]) -> None:
    """OpenVINO's integers against q/dq in eager: no output is further off than a few of the last layer's steps."""
    torch.manual_seed(0)
    model, x = Convolutions().eval(), torch.randn(2, 3, 16, 16)
    program = quantized(model, (x,), backends=backends)
    lowered = delegraph.lower(program, backends=["openvino"])
    assert declined(lowered) == {}
    assert len(lowered.report.methods["forward"].delegates) == 1
    got = load(lowered)(x.numpy())
    kernels = delegraph.load(bytes(delegraph.lower(program, backends=[])))(x.numpy())
    step = float(np.ptp(kernels)) / 255
    assert np.abs(got - kernels).max() <= 2 * step
    assert np.corrcoef(got.ravel(), model(x).detach().numpy().ravel())[0, 1] > 0.99
