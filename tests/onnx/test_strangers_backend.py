"""A stranger's backend on another engine that reads ONNX: a target, a runtime half and two entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F

import delegraph
from delegraph.plugins import PluginRegistry
from delegraph.program import deserialize_program

SOURCES = Path(__file__).parents[1] / "plugins" / "acme_onnx"


@pytest.fixture(scope="module")
def registry() -> Iterator[PluginRegistry]:
    """What is installed, and the stranger's."""
    sys.path.insert(0, str(SOURCES))
    try:
        from acme_onnx.aot import AcmeOnnxLowering, acme_onnx_partitioner
        from acme_onnx.runtime import AcmeOnnxBackend

        registry = PluginRegistry.discover()
        registry.register("partitioners", "acme_onnx", acme_onnx_partitioner)
        registry.register("lowerings", "AcmeOnnx", AcmeOnnxLowering)
        registry.register("backends", "AcmeOnnx", AcmeOnnxBackend)
        yield registry
    finally:
        sys.path.remove(str(SOURCES))


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardtanh(self.norm(self.first(x)), 0.0, 6.0)
        return self.last(F.adaptive_avg_pool2d(y, 1).flatten(1)).softmax(-1)


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(tokens))  # type: ignore[no-any-return]


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.LSTM(6, 8, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]  # type: ignore[no-any-return]


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sort(-1)[0], lambda x: -x.cumsum(-1), (x,))  # type: ignore[no-any-return]


MODELS: list[tuple[torch.nn.Module, torch.Tensor]] = [
    (Convolutions(), torch.randn(2, 3, 16, 16)),
    (Encoder(), torch.randint(0, 20, (2, 7))),
    (Recurrent(), torch.randn(2, 5, 6)),
    (Branches(), torch.randn(3, 4)),
]


@pytest.mark.parametrize(("model", "x"), MODELS, ids=lambda value: type(value).__name__)
def test_a_model_is_one_delegate_and_right(model: torch.nn.Module, x: torch.Tensor, registry: PluginRegistry) -> None:
    model.eval()
    lowered = delegraph.lower(model, (x,), backends=["acme_onnx"], plugins=registry)
    assert len(lowered.report.methods["forward"].delegates) == 1
    assert not lowered.report.methods["forward"].leftovers
    result = delegraph.load(bytes(lowered), plugins=registry)(x.numpy())
    np.testing.assert_allclose(result, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_dynamic_batch(registry: PluginRegistry) -> None:
    model, x = Convolutions().eval(), torch.randn(2, 3, 16, 16)
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    lowered = delegraph.lower(model, (x,), dynamic_shapes=shapes, backends=["acme_onnx"], plugins=registry)
    program = delegraph.load(bytes(lowered), plugins=registry)
    for batch in (1, 5):
        other = torch.randn(batch, 3, 16, 16)
        np.testing.assert_allclose(program(other.numpy()), model(other).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_the_target_has_not_is_left_with_a_reason(registry: PluginRegistry) -> None:
    class Doubles(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.double() * 2

    lowered = delegraph.lower(Doubles(), (torch.randn(3),), backends=["acme_onnx"], plugins=registry)
    reasons = {reason for left in lowered.report.methods["forward"].leftovers for reason in left.reasons.values()}
    assert any("dtype torch.float64 is not supported by this backend" in reason for reason in reasons)


def test_its_graphs_are_plain_onnx(registry: PluginRegistry) -> None:
    """What is made for it is ONNX and nothing else: onnx's checker admits it."""
    tokens = torch.randint(0, 20, (2, 7))
    lowered = delegraph.lower(Encoder().eval(), (tokens,), backends=["acme_onnx"], plugins=registry)
    content = bytes(lowered)
    model = onnx.load_model_from_string(_blob(content))
    onnx.checker.check_model(model, full_check=True)
    assert {entry.domain for entry in model.opset_import} == {""}


def _blob(content: bytes) -> bytes:
    (blob,) = deserialize_program(content).delegate_data
    return bytes(blob)
