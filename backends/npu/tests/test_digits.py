"""Handwritten digits, by a model that is trained here: the NPU reads within half a point of what floats do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import delegraph
from delegraph_npu.blob import BACKEND_ID

pytestmark = pytest.mark.accuracy


def batches(pictures: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    for start in range(0, len(pictures) - size + 1, size):
        yield pictures[start : start + size]


def test_digits_are_read_within_half_a_point_of_float() -> None:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    pictures = torch.tensor(images[order] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    shown = torch.tensor(labels[order])
    torch.manual_seed(0)
    body = (nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU6(), nn.Conv2d(24, 24, 3, padding=1, groups=24))
    head = (nn.Hardswish(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24 * 16, 64), nn.ReLU(), nn.Linear(64, 10))
    model = nn.Sequential(*body, *head, nn.Softmax(-1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(8):
        for start in range(0, 1300, 65):
            optimizer.zero_grad()
            scores = model[:-1](pictures[start : start + 65])
            nn.functional.cross_entropy(scores, shown[start : start + 65]).backward()
            optimizer.step()
    model.eval()
    typical = [(batch,) for batch in batches(pictures[:1300], 71)]
    tried, answers = pictures[1300:], shown[1300:].numpy()  # 497: seven batches of 71
    quantized = delegraph.quantize(model, typical, recipe="int8", backends=["npu"])
    lowered = delegraph.lower(quantized, backends=["npu", "cpu"])
    assert [one.backend for one in lowered.report.methods["forward"].delegates].count(BACKEND_ID) == 1
    run = delegraph.load(bytes(lowered))
    read = np.concatenate([np.argmax(run(batch.numpy()), 1) for batch in batches(tried, 71)])
    with torch.no_grad():
        real = model(tried).argmax(1).numpy()
    points = [100 * float((one == answers).mean()) for one in (read, real)]
    assert points[0] >= points[1] - 0.5, f"{points[0]} of 100 on the NPU, {points[1]} in float"
    assert points[1] > 95
