"""Digits, read by NPU, DSP, CPU and kernels out of one file: within half a point of what floats read.

picture ── enlarge ── bend ──── body ── norm, gelu ── head ── scores
           CPU        kernels    NPU     DSP           CPU
           float                 int8    int8          float
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.digits import Digits, learnt_and_unseen, read
from torch import nn

import delegraph

pytestmark = pytest.mark.accuracy

BATCH = 71
"""497 digits are seven batches; sizes are fixed on the NPU."""


class Reader(nn.Module):
    """`body` makes `features` of a picture that is enlarged so many times."""

    def __init__(self, body: nn.Module, features: int, times: int) -> None:
        super().__init__()
        self.enlarge = nn.Upsample(scale_factor=times, mode="bilinear")
        self.body = body
        self.norm = nn.LayerNorm(features)
        self.head = nn.Linear(features, 10)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        features = self.body(torch.special.i1(self.enlarge(picture))).flatten(1)
        scores: torch.Tensor = self.head(nn.functional.gelu(self.norm(features)))
        return scores


def small() -> Reader:
    layers: list[nn.Module] = []
    for taken, given in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(taken, given, 3, 2, 1, bias=False), nn.BatchNorm2d(given), nn.ReLU()]
    return Reader(nn.Sequential(*layers), 64 * 4, times=2)


class MobileNet(nn.Module):
    """MobileNetV2 of half the width, without its classifier."""

    def __init__(self) -> None:
        from transformers import MobileNetV2Config, MobileNetV2Model

        super().__init__()
        config = MobileNetV2Config(num_channels=1, depth_multiplier=0.5, output_stride=16, tf_padding=False)
        self.layers = MobileNetV2Model(config)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.1  # torch's own: theirs, 0.997, is of the last batch alone

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layers(picture).pooler_output
        return features


def mobile_net() -> Reader:
    return Reader(MobileNet(), 1280, times=4)


def train(model: nn.Module, data: Digits, epochs: int, batch: int = 40) -> None:
    """With a rate that rises, and falls to nothing."""
    pictures, shown = data
    optimizer = torch.optim.AdamW(model.parameters())
    steps = len(pictures) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * steps)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(pictures))[: steps * batch].view(steps, batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures[chosen]), shown[chosen]).backward()
            optimizer.step()
            schedule.step()
    model.eval()


@pytest.mark.parametrize(("make", "epochs", "convolutions"), [(small, 6, 3), (mobile_net, 12, 52)])
def test_devices_read_as_many_digits_as_floats(make: Callable[[], Reader], epochs: int, convolutions: int) -> None:
    learnt, unseen = learnt_and_unseen()
    torch.manual_seed(0)
    model = make()
    train(model, learnt, epochs)
    run = on_devices(model, learnt[0], convolutions)
    floats, devices = read(model, unseen), read(run, unseen)
    assert floats > 95
    assert devices >= floats - 0.5, f"{devices} of 100 on the devices, {floats} in float"


def on_devices(model: Reader, pictures: torch.Tensor, convolutions: int) -> Callable[[torch.Tensor], Any]:
    """`model`, quantized with some of the pictures, and run out of one file."""
    typical = [(pictures[start : start + BATCH],) for start in range(0, 4 * BATCH, BATCH)]
    recipe = {"enlarge": "float", "head": "float", "default": "int8"}
    quantized = delegraph.quantize(model, typical, recipe=recipe, backends=["npu", "dsp", "cpu"])
    lowered = delegraph.lower(quantized, backends=["npu", "dsp", "cpu"])
    check_who_computes_what(lowered, convolutions)
    run = delegraph.load(bytes(lowered))
    return lambda some: np.concatenate([run(batch.numpy()) for batch in some.split(BATCH)])


def check_who_computes_what(lowered: delegraph.Lowered, convolutions: int) -> None:
    report = lowered.report.methods["forward"]
    operators: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for delegate in report.delegates:
        operators[delegate.backend].update(delegate.operators)
    assert set(operators) == {"NpuBackend", "DspBackend", "CpuBackend"}
    assert operators["NpuBackend"]["aten::convolution"] == convolutions
    assert operators["DspBackend"]["aten::layer_norm"] == 1
    assert operators["CpuBackend"]["aten::linear"] == 1
    assert [entry.operator for entry in report.leftovers] == ["aten::special_i1"]
