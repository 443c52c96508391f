"""Weights that are computed from the model's own: every recipe finds them as it finds others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import delegraph
from delegraph.aot.quantize.measurement.measure import sqnr

pytestmark = pytest.mark.long

X: Final = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))


class Computed(nn.Module):
    """A layer whose weight `compute` makes of a matrix (64, 64) and a column."""

    def __init__(self, compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], half: bool = False) -> None:
        super().__init__()
        matrix = torch.randn(64, 64) / 8
        self.matrix = nn.Parameter(matrix.half() if half else matrix)
        self.column = nn.Parameter(torch.rand(64, 1) + 0.5)
        self.bias, self.compute = nn.Parameter(torch.randn(64)), compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.compute(self.matrix, self.column), self.bias * 0.5)


class Standardized(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread, mean = torch.std_mean(self.weight, [1, 2, 3], keepdim=True)
        image = x.view(4, 4, 4, 4)
        return F.conv2d(image, (self.weight - mean) / (spread + 1e-5), self.bias, padding=self.padding)  # type: ignore[arg-type]


class ScaledTable(nn.Embedding):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.embedding(torch.arange(x.shape[0]), self.weight * 8)


class Product(Computed):
    """As GPT-2 writes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.compute(self.matrix, self.column)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = weight_norm(nn.LSTM(64, 16), "weight_hh_l0")

    def forward(self, x: torch.Tensor) -> Any:
        return self.lstm(x)[0]


def normed(layer: nn.Module) -> nn.Module:
    """With a factor that changes it."""
    parameter = weight_norm(layer).parametrizations.weight.original0  # type: ignore[union-attr, index]
    nn.init.uniform_(parameter, 0.5, 2.0)  # type: ignore[arg-type]
    return layer


MODELS: Final[dict[str, Callable[[], nn.Module]]] = {
    "weight_norm": lambda: nn.Sequential(normed(nn.Linear(64, 64)), nn.ReLU(), normed(nn.Linear(64, 64))),
    "spectral_norm": lambda: spectral_norm(nn.Linear(64, 64)),
    "old_spectral_norm": lambda: old_spectral_norm(nn.Linear(64, 64)),
    "scaled": lambda: Computed(lambda w, c: w * c),
    "turned": lambda: Computed(lambda w, c: w.t().contiguous()),
    "cast": lambda: Computed(lambda w, c: w.to(torch.float32), half=True),
    "part": lambda: Computed(lambda w, c: torch.cat([w[32:], w[:32]])),
    "merged": lambda: Computed(lambda w, c: w + c @ c.t() / 64),
    "dropped": lambda: Computed(lambda w, c: F.dropout(w * c, 0.5, training=False)),
    "product": lambda: Product(lambda w, c: w * c),
    "standardized": lambda: Standardized(4, 32, 3, padding=1),
    "table": lambda: ScaledTable(64, 64),
    "recurrent": Recurrent,
}


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def off(model: nn.Module, quantized: delegraph.QuantizedModel, backends: list[str]) -> float:
    """How far what is lowered is off."""
    with torch.no_grad():
        wanted = model(X)
    got = delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))(X.numpy())
    return sqnr((wanted, torch.from_numpy(np.array(got))))


of_export = pytest.mark.filterwarnings("ignore:The tensor attribute self.weight was assigned during export")
"""Which torch says of its old spectral norm."""


@of_export
@pytest.mark.parametrize(("recipe", "decibels"), [("int8_weight_only", 38), ("int4_weight_only", 16)])
@pytest.mark.parametrize("name", MODELS)
def test_computed_weights_are_stored(name: str, recipe: str, decibels: int) -> None:
    model = made(name)
    quantized = delegraph.quantize(model, [(X,)], recipe=recipe)
    assert off(model, quantized, []) > decibels
    done = quantized.report.methods["forward"]
    assert done.layers and not done.left_float
    held = quantized.program.state_dict.values()
    assert not any(tensor.is_floating_point() and tensor.ndim > 1 for tensor in held)
    assert sum(tensor.nbytes for tensor in held) == done.nbytes < done.float_nbytes * (0.6 if name == "cast" else 0.4)


@pytest.mark.parametrize("name", ["weight_norm", "scaled", "cast", "standardized", "product"])
@pytest.mark.parametrize("backends", [[], ["cpu"], ["npu"], ["dsp"], ["openvino"]])
def test_values_meet_computed_weights_as_others(name: str, backends: list[str]) -> None:
    model = made(name)
    quantized = delegraph.quantize(model, [(X,)], backends=backends)
    assert off(model, quantized, backends) > 32
    if (name, backends) != ("standardized", ["dsp"]):  # which has no such convolution, of whatever weight
        held = quantized.program.state_dict.values()
        assert not any(tensor.is_floating_point() and tensor.ndim > 1 for tensor in held)


@of_export
def test_constants_are_named_after_the_weights_that_they_are_made_of() -> None:
    for name, constant in (("spectral_norm", "weight"), ("old_spectral_norm", "weight_orig"), ("scaled", "matrix")):
        held = delegraph.quantize(made(name), [(X,)], recipe="int8_weight_only").program.state_dict
        assert {f"{constant}_int8", f"{constant}_int8_scales"} <= held.keys()
    held = delegraph.quantize(made("weight_norm"), [(X,)], recipe="int4_weight_only").program.state_dict
    assert {"0.weight_packed", "0.weight_packed_scales", "0.bias"} <= held.keys()


class Tied(Computed):
    """The matrix is read as it is, too, by what is no layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (self.matrix * x[:1]).sum(0)


class Thin(nn.Module):
    """Of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(64, 4)), nn.Parameter(torch.randn(4, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.a @ self.b)


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only"])
@pytest.mark.parametrize("kind", [Thin, lambda: Tied(lambda w, c: w * c)])
def test_what_would_take_more_stays_float_and_is_named(kind: Callable[[], nn.Module], recipe: str) -> None:
    model = kind().eval()
    quantized = delegraph.quantize(model, [(X,)], recipe=recipe)
    assert off(model, quantized, []) > 100
    done = quantized.report.methods["forward"]
    (left,) = done.left_float
    assert "stored, it would take more" in left.reason
    assert len(bytes(delegraph.lower(quantized))) <= len(bytes(delegraph.lower(model, (X,))))


def test_what_is_computed_twice_is_stored_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = normed(nn.Linear(64, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x).relu())  # type: ignore[no-any-return]

    quantized = delegraph.quantize(Twice().eval(), [(X,)], recipe="int8_weight_only")
    assert sorted(quantized.program.state_dict) == ["layer.bias", "layer.weight_int8", "layer.weight_int8_scales"]
    assert len(quantized.report.methods["forward"].layers) == 2


def test_parts_of_a_weight_are_stored_for_each_layer() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Parameter(torch.randn(128, 64) / 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.both[:64]) * F.linear(x, self.both[64:])

    model = Parts().eval()
    for recipe, nbytes in (("int8_weight_only", 8704), ("int4_weight_only", 5120)):
        quantized = delegraph.quantize(model, [(X,)], recipe=recipe)
        assert quantized.report.methods["forward"].nbytes == nbytes
        assert off(model, quantized, []) > 14


def test_a_computed_weight_that_two_branches_read_is_stored_once() -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = normed(nn.Linear(64, 64))

        def forward(self, x: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: self.layer(x).relu(), lambda x: self.layer(x).tanh(), (x,))

    model = Chosen().eval()
    quantized = delegraph.quantize(model, [(X,)], recipe="int8_weight_only")
    assert sorted(quantized.program.state_dict) == ["layer.bias", "layer.weight_int8", "layer.weight_int8_scales"]
    assert off(model, quantized, []) > 38


def test_what_a_layer_that_stays_float_reads_is_left_as_it_is() -> None:
    for how in ({"recipe": {"0": "float", "default": "int8_weight_only"}}, {"keep_float": 2}):
        quantized = delegraph.quantize(made("weight_norm"), [(X,)], **how)  # type: ignore[arg-type]
        assert "0.parametrizations.weight.original1" in quantized.program.state_dict


def test_weights_that_are_stored_already_are_not_stored_again() -> None:
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_

    model = nn.Sequential(nn.Linear(64, 64)).eval()
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    again = delegraph.quantize(model, args=(X,), recipe="int8_weight_only")
    assert "0.weight_packed" in again.program.state_dict
    assert off(model, again, []) > 100
