"""Quantized weights in `.ptd` files: computed on as those in the program are, and swapped."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F

import delegraph
from delegraph.aot import ExecutorchBackendConfig, Lowered, LoweringConfig
from delegraph.program import deserialize_program, serialize_flat_tensor
from delegraph_cpu import sessions
from delegraph_cpu.blob import unpack

pytestmark = pytest.mark.models

Array = np.ndarray[Any, Any]


class Tied(torch.nn.Module):
    """Layers that are called twice, and a table that is the last layer's weight; a row of zeros with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(128, 64)
        self.linear = torch.nn.Linear(64, 64)
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.head = torch.nn.Linear(64, 128, bias=False)
        self.head.weight = self.table.weight
        with torch.no_grad():
            self.linear.weight[3] = 0
            self.linear.bias[3] = 1.5

    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(torch.relu(self.linear(self.table(indices) * x)))
        picture = y[:12].reshape(1, 3, 16, 16)
        return self.head(y), self.conv(torch.relu(self.conv(picture)))


def batches(rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(rows, 64, generator=generator), torch.randint(0, 128, (rows,), generator=generator))
        for _ in range(3)
    ]


def quantized(model: torch.nn.Module, recipe: str, rows: int = 12) -> torch.nn.Module:
    return delegraph.quantize(model.eval(), batches(rows), recipe=recipe, backends=["cpu"])


def lowered(model: torch.nn.Module, external: Any, backends: list[str]) -> Lowered:
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants=external))
    return delegraph.lower(model, backends=backends, config=config)


def files(made: Lowered) -> list[bytes]:
    return [serialize_flat_tensor(data) for data in made.program.tensor_data.values()]


def outputs(made: Lowered, data: list[bytes], args: tuple[torch.Tensor, ...]) -> list[Array]:
    return [x.numpy() for x in delegraph.load(bytes(made), data_path=data or None)(*args)]


def operators(made: Lowered) -> Counter[str]:
    program = deserialize_program(bytes(made))
    ((delegate,),) = (plan.delegates for plan in program.execution_plan)
    assert delegate.id == "CpuBackend"
    graph = onnx.ModelProto.FromString(bytes(unpack(program.delegate_data[delegate.processed]).graph)).graph
    return Counter(node.op_type for node in graph.node)


KERNELS = ("QGemm", "QLinearConv", "DynamicQuantizeMatMul", "MatMulNBits", "DequantizeLinear", "Gemm")
RECIPES = ("int8", "int8_per_tensor", "int8_dynamic", "int8_weight_only", "int4_weight_only")


@pytest.fixture(params=[False, True], ids=["exact", "saturating"])
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor whose products of uint8 and int8 are exact, and on one where they saturate."""
    monkeypatch.setattr(sessions, "products_saturate", lambda: request.param)


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("external", [{"*": "weights"}, {"*bias": "biases"}], ids=["all", "biases"])
def test_the_same_kernels_compute_the_same(recipe: str, external: dict[str, str]) -> None:
    torch.manual_seed(0)
    model, (args, *_) = quantized(Tied(), recipe), batches(12)
    within, outside = (lowered(model, which, ["cpu"]) for which in (False, external))
    found = [{kernel: operators(made)[kernel] for kernel in KERNELS} for made in (within, outside)]
    assert found[0] == found[1]
    assert sum(found[0].values()) >= 3
    largest = max(map(np.abs, outputs(within, [], args)), key=np.max).max()
    for own, other in zip(outputs(within, [], args), outputs(outside, files(outside), args), strict=True):
        np.testing.assert_allclose(other, own, rtol=1e-5, atol=1e-5 * largest)


@pytest.mark.parametrize("backends", [["cpu"], []], ids=["cpu", "kernels"])
@pytest.mark.parametrize("recipe", RECIPES[2:])
@pytest.mark.parametrize("rows", [12, 40])
def test_weights_that_were_trained_on_are_swapped(recipe: str, backends: list[str], rows: int) -> None:
    torch.manual_seed(0)
    model, (args, *_) = Tied(), batches(rows)
    trained = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(torch.empty_like(parameter).uniform_(0.8, 1.2))
    one, other = (lowered(quantized(m, recipe, rows), {"*": "weights"}, backends) for m in (model, trained))
    swapped, afresh = outputs(one, files(other), args), outputs(other, files(other), args)
    for got, wanted, before in zip(swapped, afresh, outputs(one, files(one), args), strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert np.abs(got - before).max() > 1e-3


def test_a_weight_of_4_bits_in_a_file_is_not_unfolded() -> None:
    """Neither in the files nor in the graph: codes are two to a byte, as in a program that has them within."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 256, bias=False)
    data = [(torch.randn(1, 256),)]
    made = lowered(delegraph.quantize(layer, data, recipe="int4_weight_only", backends=["cpu"]), True, ["cpu"])
    assert operators(made)["MatMulNBits"] == 1
    assert sum(map(len, files(made))) < 256 * 256 * 0.7
    assert len(bytes(made)) < 8192


@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_patterns_choose_weights_by_their_names_in_the_model(recipe: str) -> None:
    torch.manual_seed(0)
    made = lowered(quantized(Tied(), recipe), {"linear.*": "linear", "head.*": "head"}, ["cpu"])
    kind = "packed" if recipe == "int4_weight_only" else "int8"
    found = {
        tag: {*data.named_data} - {f"linear.weight_{kind}_scales"} for tag, data in made.program.tensor_data.items()
    }
    assert found["linear"] == {"linear.bias", f"linear.weight_{kind}"}
    assert all(name.startswith("head.weight") for name in found.get("head", ()))


def test_zero_points_that_are_all_the_same_stay_in_the_program() -> None:
    """They are chosen with the scheme, and decide which kernels fit."""
    torch.manual_seed(0)
    made = lowered(quantized(Tied(), "int8"), True, [])
    names = [name for data in made.program.tensor_data.values() for name in data.named_data]
    assert any("scale" in name for name in names)
    assert not any("zero_point" in name for name in names)


def test_a_bias_of_a_row_of_zeros_fits() -> None:
    """Of which one step would be so small that no 32 bits hold as many as the bias has."""
    torch.manual_seed(0)
    model, (args, *_) = Tied(), batches(12)
    made = lowered(quantized(model, "int8"), True, ["cpu"])
    hidden = F.relu(F.linear(model.table(args[1]) * args[0], model.linear.weight, model.linear.bias))
    assert torch.allclose(hidden[:, 3], torch.tensor(1.5))
    expected = model(*args)[0].detach().numpy()
    got = outputs(made, files(made), args)[0]
    assert np.abs(got - expected).max() < 0.05 * np.abs(expected).max()
