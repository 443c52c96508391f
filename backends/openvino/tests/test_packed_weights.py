"""Weights that alone are quantized, to 8 and 4 bits, and values that are rounded in the run: torchao's and ours."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from backends.openvino.tests.harness import compare, declined, load
from backends.openvino.tests.test_quantizer import Block, profile
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators

import delegraph

ops = torch.ops.quantized_decomposed


class Wide(torch.nn.Module):
    """Two layers whose weights are most of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(128, 512), torch.nn.Linear(512, 128, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(torch.relu(self.up(x)))
        return result


def lowered(model: Any, recipe: str, x: torch.Tensor) -> tuple[Any, Any]:
    """The quantized program, and it lowered: one delegate, with nothing left over."""
    program = delegraph.quantize(model, None, (x,), recipe=recipe)
    made = delegraph.lower(program, backends=["openvino"])
    assert declined(made) == {} and len(made.report.methods["forward"].delegates) == 1
    return program, made


def decibels(wanted: Any, given: Any) -> float:
    return float(10 * np.log10((wanted**2).sum() / max(((wanted - given) ** 2).sum(), 1e-30)))


@pytest.mark.parametrize(
    ("recipe", "bytes_per_weight"),
    [("int8_weight_only", 1.0), ("int4_weight_only", 0.5 + 4 / 32), ("int4_weight_only{group_size=0}", 0.5)],
)
def test_weights_stay_as_they_are_stored(recipe: str, bytes_per_weight: float) -> None:
    """The kernel reads them so, and the result is the program's: values are rounded for an option alone."""
    torch.manual_seed(0)
    model, x = Wide().eval(), torch.randn(4, 128)
    program, made = lowered(model, recipe, x)
    assert len(bytes(made)) < 2 * 128 * 512 * bytes_per_weight + 20_000
    kinds = [event.metadata.decode() for event in profile(made, x.numpy()) if "linear" in str(event.delegate_debug_id)]
    assert len(kinds) == 2
    exact = delegraph.load(bytes(delegraph.lower(program)))(x.numpy())
    assert decibels(exact, load(made)(x.numpy())) > 100
    assert decibels(exact, load(made, int8_products=True)(x.numpy())) > 30


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only"])
def test_weights_of_a_model_in_float64_are_left_as_that_is(recipe: str) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(64, 4).double().eval(), torch.randn(2, 64).double()
    program = delegraph.quantize(model, None, (x,), recipe=recipe)
    made = delegraph.lower(program, backends=["openvino"])
    assert "its result is float64" in declined(made).values()
    compare(delegraph.load(bytes(made))(x.numpy()), program.program.module()(x))


class Started(torch.nn.Module):
    """A cell without a state, whose own is zeros; and a layer that multiplies a constant, its product, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.layer = torch.nn.LSTMCell(128, 128), torch.nn.Linear(128, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = self.layer(torch.relu(self.layer(torch.ones_like(x))))
        result: torch.Tensor = self.layer(self.cell(x)[0]) + known
        return result


@pytest.mark.parametrize("recipe", ["int8", "int8_dynamic", "int8_weight_only", "int4_weight_only"])
def test_products_of_constants(recipe: str) -> None:
    """They are computed ahead of time, and what they alone read is not stored."""
    torch.manual_seed(0)
    model, x = Started().eval(), torch.randn(3, 128)
    batches = [(x,)] if recipe == "int8" else None
    program = delegraph.quantize(model, batches, (x,), recipe=recipe, backends=["openvino"])
    made = delegraph.lower(program, backends=["openvino"])
    assert declined(made) == {} and len(made.report.methods["forward"].delegates) == 1
    wanted = program.program.module()(x).detach().numpy()
    assert decibels(wanted, load(made)(x.numpy())) > (100 if recipe.endswith("weight_only") else 30)
    if recipe == "int8_weight_only":  # the cell's other weight and the layer's
        assert len(bytes(made)) < (4 + 1 + 3) * 128 * 128


def test_zero_points_of_groups() -> None:
    torch.manual_seed(0)
    codes, scales = torch.randint(0, 16, (128, 32), dtype=torch.uint8), torch.rand(128) / 100 + 0.01
    zeros = torch.randint(0, 16, (128,))

    class Grouped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", codes[:, ::2] | codes[:, 1::2] << 4)
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", zeros)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            halves = torch.stack([self.packed & 15, torch.div(self.packed, 16, rounding_mode="floor")], -1)
            flat = ops.dequantize_per_channel(
                halves.view(128, 32), self.scales, self.zeros, 0, 0, 15, torch.uint8, out_dtype=torch.float32
            )
            return torch.nn.functional.linear(x, flat.view(64, 64))

    model, x = Grouped().eval(), torch.randn(3, 64)
    made = delegraph.lower(model, (x,), backends=["openvino"])
    assert declined(made) == {}
    wanted = x @ ((codes - zeros[:, None]) * scales[:, None]).view(64, 64).T
    compare(load(made)(x.numpy()), wanted, rtol=1e-4, atol=1e-5)
    assert not [name for name in map(str, (e.delegate_debug_id for e in profile(made, x.numpy()))) if "bitwise" in name]


def test_bytes_that_something_else_reads_too() -> None:
    """What unpacks them stays, and so do the bytes."""
    torch.manual_seed(0)
    packed = torch.randint(0, 256, (64, 32), dtype=torch.uint8)

    class Read(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", packed)
            self.register_buffer("scales", torch.rand(64))
            self.register_buffer("zeros", torch.full((64,), 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            halves = torch.stack([self.packed & 15, torch.div(self.packed, 16, rounding_mode="floor")], -1)
            weight = ops.dequantize_per_channel(
                halves.view(64, 64), self.scales, self.zeros, 0, 0, 15, torch.uint8, out_dtype=torch.float32
            )
            return torch.nn.functional.linear(x, weight), self.packed.float().sum(1)

    model, x = Read().eval(), torch.randn(3, 64)
    made = delegraph.lower(model, (x,), backends=["openvino"])
    compare(load(made)(x.numpy()), model(x), rtol=1e-4, atol=1e-4)


def test_packed_weights_of_two_methods_are_stored_once() -> None:
    torch.manual_seed(0)
    model, x = Wide().eval(), torch.randn(4, 128)
    program = delegraph.quantize(model, None, (x,), recipe="int4_weight_only")
    alone = len(bytes(delegraph.lower(program, backends=["openvino"])))
    both = delegraph.lower({"one": program, "two": copy.deepcopy(program)}, backends=["openvino"])
    assert len(bytes(both)) < 1.2 * alone
    for method in ("one", "two"):
        given = delegraph.load(bytes(both), method=method)(x.numpy())
        np.testing.assert_array_equal(given, delegraph.load(bytes(both), method="one")(x.numpy()))


def test_torchaos_models_are_one_delegate() -> None:
    from torchao.quantization import (
        Int8DynamicActivationIntxWeightConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup

    torch.manual_seed(0)
    x, narrow = torch.randn(4, 128), {"granularity": PerGroup(32), "weight_dtype": torch.int4}
    rounded = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    for config, least in ((Int8WeightOnlyConfig(), 100), (IntxWeightOnlyConfig(**narrow), 100), (rounded, 30)):
        model = Wide().eval()
        quantize_(model, config)
        made = delegraph.lower(model, (x,), backends=["openvino"])
        assert declined(made) == {} and len(made.report.methods["forward"].delegates) == 1
        assert decibels(model(x).detach().numpy(), load(made)(x.numpy())) > least


def test_values_rounded_by_row_and_read_by_something_else() -> None:
    """Written out, as torch computes it; zero rows as well."""

    class Rounded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale, zero = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
            codes = ops.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
            real: torch.Tensor = ops.dequantize_per_token(codes, scale, zero, -128, 127, torch.int8, torch.float32)
            return torch.relu(real)

    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1.0], [30.0], [0.0], [1e-3]])
    made = delegraph.lower(Rounded(), (x,), backends=["openvino"])
    assert declined(made) == {}
    step = (x.amax(1, keepdim=True).clamp(min=0) - x.amin(1, keepdim=True).clamp(max=0)) / 255
    assert (np.abs(load(made)(x.numpy()) - Rounded()(x).numpy()) <= 1.01 * step.numpy()).all()  # a tie may go elsewhere


def test_rounded_and_exact_products_in_one_delegate() -> None:
    """One is rounded in the run, the other not: neither is then, since OpenVINO's setting is for all."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(Block(), Block()).eval(), torch.randn(4, 16)
    program = delegraph.quantize(
        model, None, (x,), recipe={"1": "int8_weight_only", "default": "int8_dynamic"}, backends=["openvino"]
    )
    made = delegraph.lower(program, backends=["openvino"])
    assert declined(made) == {}
    assert decibels(model(x).detach().numpy(), load(made)(x.numpy())) > 35


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.LSTM(16, 128, 2, batch_first=True)
        self.second = torch.nn.GRU(128, 96, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x)[0])[0]
        return result


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only{group_size=16}"])
def test_weights_of_recurrent_layers_stay_bytes_in_the_file(recipe: str) -> None:
    """The kernels take constants of floats alone, which OpenVINO makes of them when it compiles."""
    torch.manual_seed(0)
    model, x = Recurrent().eval(), torch.randn(2, 7, 16)
    program, made = lowered(model, recipe, x)
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert len(bytes(made)) < 2 * weights
    exact = delegraph.load(bytes(delegraph.lower(program)))(x.numpy())
    assert decibels(exact, load(made)(x.numpy())) > 100


def test_so_do_those_of_an_lstm_that_rounds_what_it_takes() -> None:
    """As the quantizer of another backend annotates it."""
    torch.manual_seed(0)
    model, x = torch.nn.LSTM(16, 64, batch_first=True).eval(), torch.randn(2, 7, 16)
    quantized = delegraph.quantize(model, [(x,)], recipe="int8", backends=["cpu"])
    made = delegraph.lower(quantized, backends=["openvino"])
    assert declined(made) == {}
    assert decibels(model(x)[0].detach().numpy(), load(made)(x.numpy())[0]) > 25
