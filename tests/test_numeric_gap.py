"""`numeric_gap` and `delegraph debug m.pte --against MODEL`: the layer at which a program leaves torch, by module."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import delegraph
from delegraph.cli import main
from delegraph.debugging.numeric_gap import backend_names
from delegraph.errors import InvalidArgument


class Block(nn.Module):
    """A layer, and what its module does with it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(x)) + x


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(4))).eval()


X = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
BACKENDS = ["", "cpu", "openvino"]


def lowered(model: Any, backend: str) -> bytes:
    return bytes(delegraph.lower(model, (X,), backends=[backend] if backend else []))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sound_program(backend: str) -> None:
    gap = delegraph.numeric_gap(lowered(net(), backend), net(), (X,))
    assert not gap and not gap.begins
    assert {layer.module for layer in gap.layers} >= {"0", "1.fc", "2.fc", "3"}
    assert all(layer.error < 1e-5 and layer.sqnr > 80 for layer in gap.layers)
    assert str(gap).startswith(f"right: {len(gap.layers)} layers and all outputs are within tolerance of torch")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lossy_layer_is_named(backend: str) -> None:
    other = net()
    with torch.no_grad():
        other[2].fc.weight.mul_(1.5)
    gap = delegraph.numeric_gap(lowered(other, backend), net(), (X,))
    assert gap
    (begins,) = gap.begins
    assert begins.module == "2.fc" and "test_numeric_gap.py:" in begins.line
    assert {layer.module for layer in gap.layers if layer.is_wrong} <= {"2.fc", "2", "3.fc", "3"}
    assert "wrong numbers begin at: aten::" in str(gap) and "  2.fc  " in str(gap)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_source_of_nan_is_named(backend: str) -> None:
    other = net()
    with torch.no_grad():
        other[1].fc.weight[0, 0] = torch.nan
    gap = delegraph.numeric_gap(lowered(other, backend), net(), (X,))
    assert gap.first_nonfinite is not None and gap.first_nonfinite.module == "1.fc"
    assert str(gap).startswith("NaN or infinity begins at: aten::")
    assert [layer.module for layer in gap.begins] == ["1.fc"]


def test_a_program_of_another_model() -> None:
    with pytest.raises(InvalidArgument, match="was not lowered from this model: none of the 12 layers of forward"):
        delegraph.numeric_gap(lowered(net(), ""), nn.Conv1d(2, 2, 3).eval(), (torch.randn(1, 2, 8),))


def test_a_program_without_debug_data() -> None:
    config = delegraph.ExecutorchBackendConfig(emit_debug_data=False)
    program = bytes(delegraph.lower(net(), (X,), backends=[], config=config))
    with pytest.raises(InvalidArgument, match="has no debug data of forward; lower it without --no-debug-data"):
        delegraph.numeric_gap(program, net(), (X,))


QUANTIZED = ["cpu", "npu", "dsp"]


def quantized_gap(backend: str, model: nn.Module, x: Tensor, **options: bool) -> delegraph.NumericGap:
    quantized = delegraph.quantize(model, [(x,)], (x,), recipe="int8", backends=[backend])
    program = bytes(delegraph.lower(quantized, backends=[backend]))
    return delegraph.numeric_gap(program, quantized.program, (x,), backend_options={backend: options})


def conv_net() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))
    return nn.Sequential(*layers).eval(), torch.randn(1, 3, 12, 12)


@pytest.mark.parametrize("backend", QUANTIZED)
def test_codes_are_those_of_the_call_that_computes_them(backend: str) -> None:
    gap = quantized_gap(backend, *conv_net())
    inside = [layer for layer in gap.layers if layer.delegate is not None]
    assert not gap and not any(layer.alone for layer in inside)
    computed = {(layer.operator.partition(".")[0], layer.module) for layer in inside}
    first = {("aten::relu", "1"), ("aten::relu", "3")}  # the DSP has no convolutions of images
    if backend != "dsp":
        first = {(f"aten::{'conv2d' if backend == 'cpu' else 'convolution'}", module) for module in "02"}
    assert {("aten::linear", "5"), *first} <= computed


@pytest.mark.parametrize("backend", QUANTIZED)
def test_a_delegate_that_reports_no_values_is_cut_out(backend: str) -> None:
    gap = quantized_gap(backend, *conv_net(), intermediate_outputs=False)
    inside = [layer for layer in gap.layers if layer.delegate is not None]
    assert not gap and all(layer.alone for layer in inside)
    assert "3" in {layer.module for layer in inside}


def test_what_has_no_value_is_named() -> None:
    """The NPU copies no more than it must: what a flattened image is nowhere lies by itself."""
    assert quantized_gap("npu", *conv_net()).notes == ("delegate 0, NpuBackend: it tells no value of 4",)


def test_a_backend_that_is_lowered_for_under_several_names() -> None:
    """Two partitioners of one distribution: which of them it was nobody can tell from the file."""
    offers = {"partitioners": [SimpleNamespace(name=name, distribution="acme") for name in ("fast", "small")]}
    found = SimpleNamespace(distribution="acme")
    made = SimpleNamespace(delegation_spec=SimpleNamespace(backend_id="AcmeBackend"))
    plugins: Any = SimpleNamespace(find=lambda *_: found, offers=offers.get, create=lambda *_: made)
    program: Any = SimpleNamespace(backend_ids={"AcmeBackend"})
    with pytest.raises(InvalidArgument, match="AcmeBackend of acme is lowered for as fast, small: say which"):
        backend_names(program, None, plugins)
    others = SimpleNamespace(delegation_spec=SimpleNamespace(backend_id="OtherBackend"))
    plugins.create = lambda _, name, options: made if name == "small" else others
    assert backend_names(program, None, plugins)["AcmeBackend"].name == "small"


MODEL = """
import torch
from tests.test_numeric_gap import X, net

def make():
    return net(), (X,)
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(MODEL, "utf-8")
    other = net()
    with torch.no_grad():
        other[2].fc.bias.add_(1)
    (tmp_path / "m.pte").write_bytes(lowered(other, "cpu"))
    command = ["debug", str(tmp_path / "m.pte"), "--against", f"{tmp_path / 'model.py'}:make"]
    assert main(command) == 1
    assert "2.fc" in capsys.readouterr().out
    assert main([*command, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["wrong"] and [layer["module"] for layer in told["layers"] if layer["begins"]] == ["2.fc"]
    assert main(["debug", str(tmp_path / "m.pte")]) != 0
    assert (
        "name the backends to try: --backends npu,cpu; or, for a .pte, the model: --against" in capsys.readouterr().err
    )
