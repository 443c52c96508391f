"""Whole networks, quantized and lowered in one file: on the NPU, what it leaves on the CPU's backend and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph_npu.blob import BACKEND_ID


def test_a_mobile_net_is_one_partition_and_near_to_float() -> None:
    from benchmarks.models import mobilenet_v2

    torch.manual_seed(0)
    model, _ = mobilenet_v2()
    images = [(torch.randn(2, 3, 96, 96),) for _ in range(2)]
    quantized = delegraph.quantize(model, images, recipe="int8{observer=minmax}", backends=["npu"])
    lowered = delegraph.lower(quantized, backends=["npu", "cpu"])
    report = lowered.report.methods["forward"]
    assert [delegate.backend for delegate in report.delegates].count(BACKEND_ID) == 1
    (image,) = images[0]
    given = delegraph.load(bytes(lowered))(image.numpy())["logits"]
    with torch.no_grad():
        rounded, real = quantized.program.module()(image).logits.numpy(), model(image).logits.numpy()
    assert noise(given, rounded) < 0.02, "steps by which integers and torch's floats round apart"
    assert noise(given, real) < 2 * noise(rounded, real) + 0.02


def noise(given: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The power of what `given` is off by, as part of the power of what is expected."""
    return float(((given - expected) ** 2).mean() / expected.var())


def test_softmax_int16_and_what_the_npu_has_not_run_together() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.line = nn.Conv2d(3, 8, 3, 2), nn.LayerNorm(8), nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.conv(x)).flatten(2).transpose(1, 2)
            shares: torch.Tensor = self.line(self.norm(y)).softmax(-1)
            return torch.cumsum(shares, 1)

    torch.manual_seed(0)
    model, image = Mixed().eval(), torch.randn(1, 3, 15, 15)
    quantized = delegraph.quantize(model, [(image,)], recipe="int8{observer=minmax}", backends=["npu"])
    lowered = delegraph.lower(quantized, backends=[("npu", {"take_all": True}), "cpu"])
    backends = [delegate.backend for delegate in lowered.report.methods["forward"].delegates]
    assert backends.count(BACKEND_ID) == 2 and "CpuBackend" in backends
    given = delegraph.load(bytes(lowered))(image.numpy())
    with torch.no_grad():
        assert np.abs(given - quantized.program.module()(image).numpy()).max() < 0.3
        assert noise(given, model(image).numpy()) < 0.02


pytestmark = pytest.mark.models
