"""Several strangers' backends in one model: NPU, DSP, CPU and kernels in one file, in any order, with one answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.errors import PluginError


class Reader(nn.Module):
    """What each device is for: convolutions, a layer norm and attention, a sort; floats are pooled for kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.thicken = nn.MaxPool2d(3, 1, 1)
        self.first, self.second = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm = nn.LayerNorm(16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        maps = torch.relu(self.second(torch.relu(self.first(self.thicken(image)))))
        tokens = self.norm(maps.flatten(2).transpose(1, 2))
        weights = torch.softmax(self.query(tokens) @ self.key(tokens).transpose(1, 2) / 4, -1)
        scores = self.head(nn.functional.gelu(tokens + weights @ self.value(tokens)).mean(1))
        return scores, torch.sort(scores, dim=1)[0]


@pytest.fixture(scope="module")
def images() -> list[torch.Tensor]:
    return [torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


class Bent(Reader):
    """Of an image that is bent by what none of the three has."""

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(torch.special.i1(image))


def quantized_of(model: type[Reader], images: list[torch.Tensor]) -> delegraph.QuantizedModel:
    torch.manual_seed(0)
    data = [(image,) for image in images]
    recipe = {"thicken": "float", "default": "int8"}
    return delegraph.quantize(model().eval(), data, recipe=recipe, backends=["npu", "dsp", "cpu"])


@pytest.fixture(scope="module")
def quantized(images: list[torch.Tensor]) -> delegraph.QuantizedModel:
    return quantized_of(Reader, images)


def delegates(lowered: delegraph.Lowered) -> Counter[str]:
    return Counter(one.backend for one in lowered.report.methods["forward"].delegates)


def answers(program: Any, images: list[torch.Tensor]) -> list[np.ndarray[Any, Any]]:
    run = delegraph.load(bytes(program))
    return [result for image in images for result in run(image.numpy())]


@pytest.fixture(scope="module")
def by_kernels(quantized: delegraph.QuantizedModel, images: list[torch.Tensor]) -> list[np.ndarray[Any, Any]]:
    return answers(delegraph.lower(quantized), images)


@pytest.mark.parametrize(
    "backends", [["npu", "dsp", "cpu"], ["dsp", "npu", "cpu"], ["npu", "dsp"], ["npu", "cpu"], ["dsp"]], ids=",".join
)
def test_who_computes_it_does_not_decide_the_answer(
    backends: list[str],
    quantized: delegraph.QuantizedModel,
    images: list[torch.Tensor],
    by_kernels: list[np.ndarray[Any, Any]],
) -> None:
    """Every one of them is given something, and each output is within a step or two of what the kernels say."""
    lowered = delegraph.lower(quantized, backends=backends)
    ids = {"npu": "NpuBackend", "dsp": "DspBackend", "cpu": "CpuBackend"}
    assert set(delegates(lowered)) == {ids[name] for name in backends}
    step = max(float(np.ptp(one)) for one in by_kernels) / 255
    for got, wanted in zip(answers(lowered, images), by_kernels, strict=True):
        assert np.abs(got - wanted).max() <= 2 * step


def test_everything_is_given_to_somebody(quantized: delegraph.QuantizedModel) -> None:
    lowered = delegraph.lower(quantized, backends=["npu", "dsp", "cpu"])
    report = lowered.report.methods["forward"]
    assert not report.leftovers
    left_by_npu = delegraph.lower(quantized, backends=["npu"]).report.methods["forward"].leftovers
    assert all(entry.reasons["npu"] for entry in left_by_npu)


def test_kernels_compute_what_three_backends_leave(images: list[torch.Tensor]) -> None:
    bent = quantized_of(Bent, images)
    lowered = delegraph.lower(bent, backends=["npu", "dsp", "cpu"])
    assert set(delegates(lowered)) == {"NpuBackend", "DspBackend", "CpuBackend"}
    (left,) = lowered.report.methods["forward"].leftovers
    assert (left.operator, set(left.reasons)) == ("aten::special_i1", {"npu", "dsp", "cpu"})
    by_kernels = answers(delegraph.lower(bent, backends=[]), images)
    step = max(float(np.ptp(result)) for result in by_kernels) / 255
    for got, wanted in zip(answers(lowered, images), by_kernels, strict=True):
        assert np.abs(got - wanted).max() <= 2 * step


def test_a_backend_behind_others_takes_nothing_from_them(quantized: delegraph.QuantizedModel) -> None:
    alone = delegates(delegraph.lower(quantized, backends=["npu"]))
    behind = delegates(delegraph.lower(quantized, backends=["npu", "dsp", "cpu"]))
    assert behind["NpuBackend"] == alone["NpuBackend"]


def test_options_reach_the_backend_that_they_name(
    quantized: delegraph.QuantizedModel, images: list[torch.Tensor]
) -> None:
    small = delegraph.lower(quantized, backends=["npu{device=ethos-u55-128}", "dsp", "cpu"])
    large = delegraph.lower(quantized, backends=["npu{device=ethos-u85-512}", "dsp", "cpu"])
    assert bytes(small) != bytes(large)
    for one, other in zip(answers(small, images), answers(large, images), strict=True):
        np.testing.assert_array_equal(one, other)  # another device, the same arithmetic
    with pytest.raises(PluginError, match="device"):
        delegraph.lower(quantized, backends=["npu{devcie=ethos-u55-128}", "dsp", "cpu"])


def test_sessions_of_one_file_have_devices_of_their_own(
    quantized: delegraph.QuantizedModel, images: list[torch.Tensor]
) -> None:
    program = bytes(delegraph.lower(quantized, backends=["npu", "dsp", "cpu"]))
    run = delegraph.load(program)
    expected = [run(image.numpy())[0] for image in images]
    other = run.session()
    for image, wanted in zip(images, expected, strict=True):
        run(images[0].numpy())
        np.testing.assert_array_equal(other(image.numpy())[0], wanted)


def test_what_each_pass_made_is_dumped(
    quantized: delegraph.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELEGRAPH_DUMP", "compile")
    monkeypatch.setenv("DELEGRAPH_DUMP_DIR", str(tmp_path))
    lowered = delegraph.lower(quantized, backends=["npu", "dsp"])
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "convolution 3x3" in texts["compile.forward.NpuBackend_0.fusing.txt"]
    assert "layer_norm" in "".join(text for name, text in texts.items() if name.endswith(".kernels.txt"))
    assert str(tmp_path).encode() not in bytes(lowered)


@pytest.mark.parametrize("backends", [["openvino", "cpu"], ["cpu", "openvino"], ["npu", "cpu"]], ids=",".join)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_delegate_that_only_keeps_a_count_runs(backends: list[str], dtype: torch.dtype) -> None:
    """OpenVINO has no integers of 64 bits to add: what counts is a delegate of another backend, without a result."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("calls", torch.full((1,), 7, dtype=dtype))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return self.linear(x).relu()

    x = torch.ones(1, 4)
    run = delegraph.load(bytes(delegraph.lower(Counting(), (x,), backends=backends)))
    run(x.numpy())
    run(x.numpy())
    assert run.state["calls"] == 9
    run.state.reset()
    assert run.state["calls"] == 7


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)).transpose(1, 2)).softmax(-1)


@pytest.mark.parametrize(
    "backends", [["cpu", "dsp"], ["openvino", "dsp"], ["cpu", "npu", "dsp"], ["dsp", "npu", "cpu"]], ids=",".join
)
@pytest.mark.parametrize("recipe", ["int8", "int8_per_tensor"])
def test_a_quantizer_shares_no_grid_that_one_before_it_left_out(backends: list[str], recipe: str) -> None:
    """cpu gives floats behind a linear layer, where dsp's transpose would have had the layer's grid."""
    torch.manual_seed(0)
    model, data = Projected().eval(), [(torch.randn(2, 8, 16),) for _ in range(3)]
    quantized = delegraph.quantize(model, data, recipe=recipe, backends=backends)
    [(x,), *_] = data
    with torch.no_grad():
        wanted, expected = model(x), quantized.program.module()(x)
    got = np.array(delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))(x.numpy()))
    assert (expected - wanted).abs().max() < 0.03
    assert np.abs(got - expected.numpy()).max() < 0.01
