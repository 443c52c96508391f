"""Digits, read by the emulated NPU in float16 and on integers: within half a point of what floats read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.digits import learnt_and_unseen, read
from tests.test_digits_on_devices import BATCH, train
from torch import nn

import delegraph

pytestmark = pytest.mark.accelerators


def test_the_npu_reads_as_many_digits_as_floats() -> None:
    learnt, unseen = learnt_and_unseen()
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for taken, given in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(taken, given, 3, 2, 1, bias=False), nn.BatchNorm2d(given), nn.ReLU()]
    model = nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), *layers, nn.Flatten(), nn.Linear(256, 10))
    train(model, learnt, epochs=6)
    typical = [(learnt[0][start : start + BATCH],) for start in range(0, 4 * BATCH, BATCH)]
    floats = read(model, unseen)
    assert floats > 95
    for form in (model, delegraph.quantize(model, typical, backends=["qnn"])):
        lowered = delegraph.lower(form, None if form is not model else typical[0], backends=["qnn"])
        assert not lowered.report.methods["forward"].leftovers
        run = delegraph.load(bytes(lowered))
        npu = read(lambda some, run=run: np.concatenate([run(part.numpy()) for part in some.split(BATCH)]), unseen)
        assert npu >= floats - 0.5, f"{npu} of 100 on the NPU, {floats} in float"
