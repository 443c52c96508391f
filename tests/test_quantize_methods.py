"""Several methods of one model are quantized: what one writes another reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.errors import LoweringError


class Write(nn.Module):
    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("held", held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held.copy_(x)
        return x + 0


class Read(nn.Module):
    """For it alone, `held` is a constant."""

    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("held", held)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.linear(self.held) + y


def methods() -> Mapping[str, nn.Module]:
    torch.manual_seed(0)
    held = torch.zeros(1, 16)
    return {"write": Write(held), "read": Read(held)}


@pytest.mark.parametrize("recipe", ["int8", "int8_dynamic", "int8_weight_only"])
@pytest.mark.parametrize("backends", [[], ["cpu"], ["openvino"], ["npu", "cpu"]], ids=",".join)
def test_what_another_method_writes_is_no_constant(recipe: str, backends: list[str]) -> None:
    models, data = methods(), [(torch.randn(1, 16),) for _ in range(4)]
    y = torch.zeros(1, 16)
    batches = {"write": data, "read": [(y,)]}
    args = {name: own[0] for name, own in batches.items()}
    quantized = delegraph.quantize(models, batches, args=args, recipe=recipe, backends=backends)
    sharing = delegraph.ExecutorchBackendConfig(share_mutable_buffers=True)
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=backends, config=sharing)), method="read")
    for (x,) in data[::-1]:
        run.write(x.numpy())
        with torch.no_grad():
            models["write"](x)
            wanted = models["read"](y).numpy()
        assert np.abs(np.array(run.read(y.numpy())) - wanted).max() < 0.03


def test_a_method_is_calibrated_on_what_those_before_it_have_left() -> None:
    models, large, y = methods(), torch.full((1, 16), 50.0), torch.zeros(1, 16)
    batches, args = {"write": [(large,)], "read": [(y,)]}, {"write": (large,), "read": (y,)}
    quantized = delegraph.quantize(models, batches, args=args, backends=[])
    layer = next(one for one in quantized.report.methods["read"].layers if "linear" in one.operator)
    assert layer.high is not None and layer.high > 5
    assert not models["read"].held.any()  # the model's own buffers are as they were


def test_methods_without_examples_are_exported_with_their_first_batches() -> None:
    torch.manual_seed(0)
    models = {"wide": nn.Linear(16, 8).eval(), "narrow": nn.Linear(4, 8).eval()}
    x, y = torch.randn(3, 16), torch.randn(5, 4)
    data = {"wide": iter([(x,), (x / 2,)]), "narrow": [{"input": y}]}
    quantized = delegraph.quantize(models, data)
    run = delegraph.load(bytes(delegraph.lower(quantized)), method="wide")
    with torch.no_grad():
        assert np.abs(np.array(run(x.numpy())) - models["wide"](x).numpy()).max() < 0.1
        assert np.abs(np.array(run.narrow(input=y.numpy())) - models["narrow"](y).numpy()).max() < 0.1
    quantized = delegraph.quantize(models, {"wide": [(x,)], "narrow": [(y,)]}, args={"wide": (x * 0,)})
    assert not quantized["wide"].example_inputs[0][0].any()  # type: ignore[index]
    assert set(delegraph.quantize(models["wide"], {"forward": [(x,)]})) == {"forward"}
    with pytest.raises(LoweringError, match="method 'narrow', calibration batch 0 is a Tensor; a batch is a tuple"):
        delegraph.quantize(models, {"wide": [(x,)], "narrow": [y]})
    with pytest.raises(LoweringError, match=r"(?s)method 'narrow'.*the example is calibration batch 0"):
        delegraph.quantize(models, {"wide": [(x,)], "narrow": [(y, torch.zeros(5))]})


def test_each_method_has_backends_of_its_own() -> None:
    """They write and read one buffer; a method that is not named runs on kernels."""
    models, data = methods(), [(torch.randn(1, 16),) for _ in range(4)]
    args, y = {"write": data[0], "read": data[0]}, torch.zeros(1, 16)
    backends = {"write": ["cpu"], "read": ["npu", "cpu"]}
    quantized = delegraph.quantize(models, dict.fromkeys(models, data), args=args, backends=backends)
    sharing = delegraph.ExecutorchBackendConfig(share_mutable_buffers=True)
    for model, example in ((models, args), (quantized, None)):
        lowered = delegraph.lower(model, example, backends=backends, config=sharing)
        taken = {name: {one.partitioner for one in m.delegates} for name, m in lowered.report.methods.items()}
        assert taken["write"] == {"cpu"} and taken["read"] <= {"npu", "cpu"} and taken["read"]
        run = delegraph.load(bytes(lowered), method="read")
        run.write(data[1][0].numpy())
        with torch.no_grad():
            wanted = models["read"].linear(data[1][0]).numpy()  # type: ignore[operator]
        assert np.abs(np.array(run.read(y.numpy())) - wanted).max() < 0.03
    alone = delegraph.lower(models, args, backends={"read": ["cpu"]}, config=sharing)
    assert not alone.report.methods["write"].delegates and alone.report.methods["read"].delegates
