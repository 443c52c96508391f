"""One quantized model on cpu, on portable, in ATen mode and on ExecuTorch's runtime: torch's q/dq program is right."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.aot.authoring import as_array

pytestmark = pytest.mark.models

SCRIPT = Path(__file__).parent / "interop" / "run_quantized.py"


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.last((self.second(x) + x[:, :, 1:-1, 1:-1]).mean((2, 3)))  # type: ignore[no-any-return]


class Upsampling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 6, 3), nn.ConvTranspose2d(6, 4, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.up(F.avg_pool2d(F.relu(self.down(x)), 2)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(16, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(x.view(4, 4, 16))[0])  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """A table whose rows and head are one weight, and one of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(200, 32), nn.Embedding(8, 32)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 200, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.table(x) + self.places.weight))  # type: ignore[no-any-return]


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))


@dataclass(frozen=True)
class Quantized:
    """A program, what it takes, what torch makes of that, and the largest difference that is right."""

    program: Any
    x: torch.Tensor
    expected: NDArray[Any]
    within: float


def _quantized(
    model: nn.Module,
    data: list[tuple[torch.Tensor]],
    recipe: str,
    steps: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Quantized:
    data = [tuple(t.to(dtype) if t.is_floating_point() else t for t in batch) for batch in data]  # type: ignore[misc]
    quantized = delegraph.quantize(model.eval().to(dtype), data, recipe=recipe, backends=["cpu"])
    with torch.no_grad():
        expected = quantized.program.module()(*data[0]).float().numpy()
    # Values of 8 bits: where sums are rounded apart, an integer in the middle is the next one, here and there.
    rounded = 0.02 if recipe.startswith("int8") and "weight_only" not in recipe else 1e-5
    steps = steps or max(rounded, ROUNDINGS[dtype])
    return Quantized(quantized, data[0][0], expected, steps * float(np.abs(expected).max()))


ROUNDINGS = {torch.float32: 0.0, torch.float16: 0.005, torch.bfloat16: 0.03}
"""What a few of them add up to, as a share of the largest value: a delegate rounds less often than torch."""


@pytest.fixture(scope="module")
def models() -> Mapping[str, Quantized]:
    torch.manual_seed(0)
    images = [(torch.randn(2, 3, 10, 10),) for _ in range(3)]
    rows = [(torch.randn(4, 64),) for _ in range(3)]
    tokens = [(torch.randint(200, (2, 8)),) for _ in range(3)]
    recipes = ("int8", "int8_dynamic", "int8_weight_only", "int4_weight_only", "int8_dynamic_int4_weight")
    made = {f"linear_{recipe}": _quantized(linear(), rows, recipe) for recipe in recipes}
    made |= {f"tokens_{recipe}": _quantized(Tokens(), tokens, recipe) for recipe in recipes}
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        made |= {f"linear_{recipe}_{name}": _quantized(linear(), rows, recipe, dtype=dtype) for recipe in recipes}
        made[f"convolutional_int8_{name}"] = _quantized(Convolutional(), images, "int8", dtype=dtype)
    return {
        "convolutional_int8": _quantized(Convolutional(), images, "int8"),
        "upsampling_int8": _quantized(Upsampling(), images, "int8"),
        # cpu rounds an LSTM's hidden state too, at each of four steps
        "recurrent_int8_dynamic": _quantized(Recurrent(), rows, "int8_dynamic", steps=0.04),
        **made,
    }


@pytest.fixture(scope="module")
def files(models: Mapping[str, Quantized], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each model for kernels alone, and what it takes."""
    folder = tmp_path_factory.mktemp("quantized")
    for name, model in models.items():
        delegraph.lower(model.program).save(folder / f"{name}.pte")
        torch.save([model.x], folder / f"{name}.pt")
    return folder


def _check(model: Quantized, got: Any) -> None:
    np.testing.assert_allclose(np.asarray(got).astype(np.float32), model.expected, atol=model.within, rtol=0)


def test_on_cpu(models: Mapping[str, Quantized]) -> None:
    for model in models.values():
        lowered = delegraph.lower(model.program, backends=["cpu"])
        assert not lowered.report.methods["forward"].leftovers
        _check(model, delegraph.load(bytes(lowered))(as_array(model.x)))


def test_on_portable(models: Mapping[str, Quantized], files: Path) -> None:
    for name, model in models.items():
        _check(model, delegraph.load(files / f"{name}.pte")(as_array(model.x)))


def test_in_aten_mode(models: Mapping[str, Quantized]) -> None:
    for model in models.values():
        program = bytes(delegraph.lower(model.program, config=ExecutorchBackendConfig(kernels=["aten"])))
        _check(model, delegraph.load(program, kernels=["aten"])(as_array(model.x)))


@pytest.mark.executorch
def test_on_executorch(models: Mapping[str, Quantized], files: Path, executorch_python: str) -> None:
    ran = subprocess.run(
        [executorch_python, str(SCRIPT), str(files)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    for name, output in torch.load(files / "results.pt").items():
        _check(models[name], output.float())


def test_no_weight_is_stored_larger_than_it_is(models: Mapping[str, Quantized], files: Path) -> None:
    """On kernels and on cpu: for each weight a byte or half of one, and a scale and a zero point a group or row."""
    weights, rows = 64 * 32 + 32 * 32 + 32 * 8, 32 + 32 + 8
    for name, model in models.items():
        if name.startswith("linear"):
            codes, groups = (weights // 2, weights // 32) if "int4" in name else (weights, rows)
            bound = codes + groups * (4 + 8) + rows * 4
            graph_and_header = 16_000
            assert (files / f"{name}.pte").stat().st_size < bound + graph_and_header, name
            assert len(bytes(delegraph.lower(model.program, backends=["cpu"]))) < bound + graph_and_header, name
