"""Models on the emulator of Qualcomm's NPU: what the provider takes, what it leaves and why, and what it computes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from backends.providers.tests.models import model_of
from torch import nn

import delegraph
from delegraph import ExecutorchBackendConfig, LoweringConfig
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendInitContext, BlobTensor
from delegraph_providers.blob import Blob, pack
from delegraph_providers.providers import QNN
from delegraph_providers.runtime.binary_backend import QnnBackend

pytestmark = pytest.mark.accelerators


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.head = nn.Conv2d(8, 8, 3, groups=8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        return self.head(self.depthwise(x).mean((2, 3))).softmax(-1)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])  # type: ignore[no-any-return]


class Several(nn.Module):
    """Results that the compiler may put in another order, of which one is an integer."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return y - 1, (x * 2).sum(1), (x @ y).relu(), (x > 0).to(torch.int32)


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(10, 8), nn.Linear(8, 8)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(4).float().unsqueeze(1) * 0.5
        return self.linear(self.table(tokens)).relu() + places, places


WHOLE: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "convolutions": lambda: (Convolutions(), (torch.randn(1, 3, 16, 16),)),
    "encoder": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (torch.randn(1, 8, 16),)),
    "lstm": lambda: (Recurrent(), (torch.randn(1, 5, 8),)),
    "mlp": lambda: (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (torch.randn(2, 8),)),
    "several": lambda: (Several(), (torch.randn(4, 4), torch.randn(4, 4))),
}


def assert_near(results: Any, expected: Any) -> None:
    """In float16, of values of order one."""
    if not isinstance(expected, tuple):
        results, expected = (results,), (expected,)
    for result, due in zip(results, expected, strict=True):
        assert result.dtype == due.dtype
        torch.testing.assert_close(result, due, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("name", WHOLE)
def test_a_model_is_one_delegate(name: str) -> None:
    model, args = model_of(WHOLE[name])
    lowered = delegraph.lower(model, args, backends=["qnn"])
    (method,) = lowered.report.methods.values()
    assert len(method.delegates) == 1
    assert not method.leftovers
    run = delegraph.load(bytes(lowered))
    for _ in range(2):
        assert_near(run(*args), model(*args))


@pytest.mark.parametrize(("recipe", "decibels"), [("int8", 30), ("int16x8", 50)])
@pytest.mark.parametrize("name", ["convolutions", "encoder", "mlp"])
def test_a_quantized_model_is_one_delegate_of_integers(name: str, recipe: str, decibels: int) -> None:
    model, args = model_of(WHOLE[name])
    quantized = delegraph.quantize(model, [args], backends=["qnn"], recipe=recipe)
    lowered = delegraph.lower(quantized, backends=["qnn"])
    (method,) = lowered.report.methods.values()
    assert len(method.delegates) == 1
    assert not method.leftovers
    result, rounded = delegraph.load(bytes(lowered))(*args), quantized.program.module()(*args)
    noise = (result - rounded).square().mean() / rounded.square().mean()
    assert noise < 10 ** (-decibels / 10), "values are rounded alike, but for some that lie between two integers"


def test_what_the_provider_leaves_is_told_in_its_words() -> None:
    model, args = model_of(lambda: (Embeds(), (torch.tensor([[1, 2, 3, 9]]),)))
    lowered = delegraph.lower(model, args, backends=["qnn"])
    assert not lowered.report.refusals
    told = str(lowered.report)
    assert "the provider leaves its" in told
    assert "reads nothing but constants" in told
    assert_near(delegraph.load(bytes(lowered))(*args), model(*args))


def test_weights_in_another_file_are_left() -> None:
    model, args = model_of(WHOLE["mlp"])
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants={"0.*": "base"}))
    lowered = delegraph.lower(model, args, backends=["qnn"], config=config)
    assert not lowered.report.refusals
    assert "external weights" in str(lowered.report)


def test_windows_of_images_are_left() -> None:
    class Windows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.unfold(1, 3, 1)

    lowered = delegraph.lower(Windows(), (torch.randn(2, 5, 4, 4),), backends=["qnn"])
    assert "which the processor's Gather takes and fails to run" in str(lowered.report)


class OfIntegers(nn.Module):
    """A call of integers, behind one of floats."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu() * 2, self.function(numbers)


EDGES = [2**31 - 1, -(2**31), -1, 0, 1]


@pytest.mark.parametrize(
    ("function", "numbers", "told"),
    [
        (lambda x: x + x, torch.tensor(EDGES, dtype=torch.int32), "limits integers that overflow"),
        (lambda x: x.sum(0, keepdim=True), torch.tensor(EDGES, dtype=torch.int32), "sums and orders them as floats"),
        (lambda x: x.to(torch.bool), torch.tensor(EDGES, dtype=torch.int32), "takes integers below 0 for False"),
        (lambda x: x == 1, torch.tensor([*EDGES, 2**40 + 1]), "has no integers of 64 bits, but for places"),
        (lambda x: x.flip(0) * 1, torch.tensor([*EDGES, 2**40]), "has no integers of 64 bits, but for places"),
        (lambda x: torch.eye(8)[x, x], torch.zeros(1, 1, 1, 2, dtype=torch.int64), "takes others, or ends the process"),
        (lambda x: x * 0.5, torch.tensor([3, -1], dtype=torch.int32), "floats end at 131,008, and integers do not"),
        (lambda x: x.to(torch.int64), torch.tensor(EDGES, dtype=torch.int32), "has no integers of 64 bits"),
        (
            lambda x: torch.arange(64.0).view(4, 4, 4)[x[:, None, None], x[:, None], x] * 2,
            torch.tensor([3, 0, 1]),
            "takes others, or ends the process",
        ),
        (lambda x: x[torch.tensor([0, 0])], torch.tensor([2**40, 1]), "has no integers of 64 bits, but for places"),
        (lambda x: x.clamp(-5, 2).abs(), torch.tensor(EDGES, dtype=torch.int32), ""),
        (lambda x: torch.arange(8.0)[x] * 2, torch.tensor([3, 0]), ""),
    ],
)
def test_integers_are_torchs_or_left(
    function: Callable[[torch.Tensor], torch.Tensor], numbers: torch.Tensor, told: str
) -> None:
    model, x = OfIntegers(function), torch.randn(2, 4)
    lowered = delegraph.lower(model, (x, numbers), backends=["qnn"])
    method = lowered.report.methods["forward"]
    assert told in str(lowered.report)
    assert bool(method.leftovers) == bool(told)
    result, expected = delegraph.load(bytes(lowered))(x, numbers)[1], function(numbers)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_a_dynamic_size_is_left() -> None:
    model, args = model_of(WHOLE["mlp"])
    lowered = delegraph.lower(model, args, backends=["qnn"], dynamic_shapes=({0: torch.export.Dim("n", max=8)},))
    assert "a size is known in the run alone" in str(lowered.report)


def test_the_runtime_needs_no_torch(tmp_path: Path) -> None:
    model, (x,) = model_of(WHOLE["convolutions"])
    delegraph.lower(model, (x,), backends=["qnn"]).save(tmp_path / "m.pte")
    code = (
        "import sys, numpy, delegraph\n"
        f"delegraph.load({str(tmp_path / 'm.pte')!r})(numpy.ones((1, 3, 16, 16), numpy.float32))\n"
        "assert not {'torch', 'onnx', 'onnx_ir', 'delegraph_onnx'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_stranger_s_delegate_runs_isolated(tmp_path: Path) -> None:
    model, args = model_of(WHOLE["mlp"])
    delegraph.lower(model, args, backends=["qnn"]).save(tmp_path / "m.pte")
    with delegraph.load(tmp_path / "m.pte", isolated=True) as run:
        assert_near(run(*args), model(*args))


def test_providers_are_compared(tmp_path: Path) -> None:
    """The emulator's times say nothing of the processor; what it computes and leaves does."""
    (tmp_path / "model.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(16, 4).eval(), (torch.randn(2, 16),)\n"
    )
    backends = [word for name in ("cpu", "qnn{soc_model=60, htp_arch=73}") for word in ("--backends", name)]
    words = ["compare", "model.py:make", *backends, "--rounds", "2", "--seconds", "0.01", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-m", "delegraph", *words]
    done = subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
    told = done.stdout[done.stdout.index("{") :]  # behind what the vendor's library prints
    rows = {row["backends"]: row for row in json.loads(told)["candidates"]}
    assert rows.keys() == {"cpu", "qnn{soc_model=60, htp_arch=73}"}
    assert all(row["sqnr"] > 40 and row["left_nodes"] == 0 for row in rows.values()), rows


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    text = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")
    snippet, _ = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    subprocess.run([sys.executable, "-c", snippet], check=True, cwd=tmp_path, env=environment)


def test_a_binary_that_the_provider_refuses_is_an_error() -> None:
    tensor = BlobTensor("x", "float32", (2,))
    blob = Blob("a compiler", "v2", (tensor,), (replace(tensor, name="y"),), ("x",), ("y",), b"no binary of Qualcomm's")
    with pytest.raises(
        DelegateInvalidCompatibility, match="refuses a binary that a compiler compiled for soc_model 57"
    ):
        QnnBackend().init(BackendInitContext("forward"), pack(blob, QNN), [])
