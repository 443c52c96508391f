"""Handwritten digits, by models that are trained here: how many a quantized model still reads, each recipe."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.digits import Digits, learnt_and_unseen, read
from torch import nn
from torch.export import Dim

import delegraph
from delegraph.errors import LoweringError


@pytest.fixture(scope="module")
def digits() -> tuple[Digits, Digits]:
    """8 x 8 pictures and what they show: to train on, and to try."""
    return learnt_and_unseen()


def train(model: nn.Module, data: Digits, epochs: int, rate: float) -> None:
    pictures, shown = data
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for _ in range(epochs):
        for start in range(0, len(pictures), 65):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures[start : start + 65]), shown[start : start + 65]).backward()
            optimizer.step()
    model.eval()


class Separable(nn.Module):
    """A depthwise and a pointwise convolution beside a shortcut: what is known to be hard to quantize."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU6(),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, groups=2 * channels, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU6(),
            nn.Conv2d(2 * channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)  # type: ignore[no-any-return]


def small() -> nn.Module:
    convolution = (nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*convolution, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


def larger() -> nn.Module:
    stem = (nn.Conv2d(1, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU6())
    body = [Separable(24) for _ in range(4)]
    return nn.Sequential(*stem, *body, nn.Flatten(), nn.Linear(24 * 16, 64), nn.ReLU(), nn.Linear(64, 10))


@pytest.fixture(scope="module", params=[small, larger])
def model(request: pytest.FixtureRequest, digits: tuple[Digits, Digits]) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = request.param()
    train(made, digits[0], epochs=8, rate=3e-3)
    return made


RECIPES = [
    "int8",
    "int8_per_tensor",
    "int8_dynamic",
    "int8_weight_only",
    "int4_weight_only{group_size=16}",
    "int8_dynamic_int4_weight{group_size=16}",
    "int16x8",
]


@pytest.mark.accuracy
def test_a_quantized_model_reads_as_many_digits(model: nn.Module, digits: tuple[Digits, Digits]) -> None:
    (pictures, _), unseen = digits
    data = [(pictures[start : start + 65],) for start in range(0, 260, 65)]
    floats = read(model, unseen)
    assert floats > 95
    program = torch.export.export(model, data[0], dynamic_shapes=({0: Dim("batch", max=1024)},))
    for recipe in RECIPES:
        quantized = delegraph.quantize(program, data, recipe=recipe)
        run = delegraph.load(bytes(delegraph.lower(quantized)))
        assert read(lambda x, run=run: run(x.numpy()), unseen) >= floats - 0.5, recipe


@pytest.mark.accuracy
def test_training_with_rounding(digits: tuple[Digits, Digits]) -> None:
    """8 bits for a whole tensor, trained: batch norm ends up in the integer weights; the report names the layers."""
    learnt, unseen = digits
    torch.manual_seed(0)
    model = small()
    train(model, learnt, epochs=6, rate=3e-3)
    floats, before = read(model, unseen), {name: one.clone() for name, one in model.state_dict().items()}
    dynamic = ({0: Dim("batch", max=1024)},)
    prepared = delegraph.prepare_qat(model, (learnt[0][:65],), recipe="int8_per_tensor", dynamic_shapes=dynamic)
    train(prepared, learnt, epochs=2, rate=5e-4)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    quantized = delegraph.convert_qat(prepared)
    graph = str(quantized.program.graph)
    assert "batch_norm" not in graph
    assert "num_batches_tracked" not in graph
    layers = quantized.report.methods["forward"].layers
    assert [(layer.operator, layer.weight_nbytes < layer.float_nbytes / 3) for layer in layers] == [
        ("aten::conv2d", True),
        ("aten::linear", True),
        ("aten::linear", True),
    ]
    run = delegraph.load(bytes(delegraph.lower(quantized)))
    assert read(lambda x: run(x.numpy()), unseen) >= floats - 0.5


def test_a_model_without_batch_norm_is_trained() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), torch.randn(64, 8)
    wanted = x[:, :2] * x[:, 2:4]
    prepared = delegraph.prepare_qat(model, (x,), recipe={"2": "float", "default": "int8"})
    losses = []
    optimizer = torch.optim.Adam(prepared.parameters(), 1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(prepared(x), wanted)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    program = delegraph.convert_qat(prepared).program
    got = np.asarray(delegraph.load(bytes(delegraph.lower(program)))(x.numpy()))
    assert ((got - wanted.numpy()) ** 2).mean() < losses[0] / 2
    assert [name for name, tensor in program.state_dict.items() if tensor.dtype == torch.int8] == ["0.weight_int8"]


def test_what_training_refuses() -> None:
    with pytest.raises(LoweringError, match="'int8_dynamic' finds no ranges ahead of time, so that there is nothing"):
        delegraph.prepare_qat(nn.Linear(2, 2), (torch.zeros(1, 2),), recipe="int8_dynamic")
    with pytest.raises(LoweringError, match="takes the module that prepare_qat gave, not Linear"):
        delegraph.convert_qat(nn.Linear(2, 2))  # type: ignore[arg-type]
