"""Models of half precision, quantized for one backend or several: each takes what it can, no weight becomes larger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import delegraph
from delegraph.aot.authoring import as_array

pytestmark = pytest.mark.models


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.inner, self.last = nn.Linear(16 * 16, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        return self.last(F.gelu(self.inner(x)))  # type: ignore[no-any-return]


ERRORS = {"int8": 0.02, "int8_weight_only": 0.01, "int4_weight_only": 0.1}
"""By recipe, what is left of the signal's size; two thirds of it in float32 already."""


@pytest.mark.parametrize("backends", [[], ["cpu"], ["npu", "cpu"], ["dsp", "cpu"]], ids="+".join)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("recipe", ERRORS)
def test_a_model_of_half_precision(recipe: str, dtype: torch.dtype, backends: Sequence[str]) -> None:
    torch.manual_seed(0)
    model = Net().eval().to(dtype)
    data = [(torch.randn(4, 3, 8, 8).to(dtype),) for _ in range(4)]
    (x,) = data[0]
    quantized = delegraph.quantize(model, data, recipe=recipe, backends=backends)
    config = delegraph.ExecutorchBackendConfig(emit_debug_data=False)
    lowered = delegraph.lower(quantized, backends=backends, config=config)
    assert not backends or not lowered.report.methods["forward"].leftovers
    weights = sum(tensor.numel() for tensor in model.state_dict().values())
    assert len(bytes(lowered)) < 21_000 + weights * (0.65 if "int4" in recipe else 1.05)
    got = torch.from_numpy(np.asarray(delegraph.load(bytes(lowered))(as_array(x))).astype(np.float32))
    wanted = model(x).float()
    assert (got - wanted).norm() < ERRORS[recipe] * wanted.norm()
