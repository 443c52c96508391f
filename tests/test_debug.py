"""`debug` and `delegraph debug` with a backend of this repository, sound and with a fault in its compiler."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import delegraph
from delegraph.cli import main
from delegraph.debugging.judge import Judge
from delegraph.debugging.prepared import Taken, prepared
from delegraph.debugging.search import Search
from delegraph.debugging.subgraph import Case
from delegraph.debugging.trial import tried
from delegraph.debugging.verdict import Kind, Verdict
from delegraph.errors import LoweringError, PluginError, UnsupportedOperator
from delegraph.plugins.plugin_spec import PluginSpec
from delegraph_onnx.graph_builder import GraphBuilder


class Here(Judge):
    """A judge without a process, so that faults of a test are in what it tries."""

    def prepared(
        self, exported: ExportedProgram, backends: Sequence[PluginSpec]
    ) -> tuple[ExportedProgram, list[Taken], str]:
        return *prepared(exported, backends), ""

    def __call__(self, case: Case, backends: Sequence[PluginSpec]) -> Verdict:
        return tried(case.program, case.expected, self.allowed(case), backends)


def faults(model: nn.Module, *args: Tensor, shapes: Any = None) -> list[delegraph.Fault]:
    program = torch.export.export(model.eval(), args, dynamic_shapes=shapes)
    with Here() as judge:
        search = Search("forward", program, [PluginSpec("cpu")], judge, lambda step: None)
        assert search.partitions
        return [fault for fault, _, _ in search.faults()]


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            x = torch.sin(x) + 1
        x = torch.atan(x)
        for _ in range(3):
            x = self.layer(x)
        return x.flatten()


def broken(monkeypatch: pytest.MonkeyPatch, make: Callable[[Any, str], str]) -> None:
    """Let the compiler write the operator that `make` says."""
    sound = GraphBuilder.op

    def op(self: Any, op_type: str, *args: Any, **kwargs: Any) -> Any:
        return sound(self, make(self, op_type), *args, **kwargs)

    monkeypatch.setattr(GraphBuilder, "op", op)


def test_a_wrong_operator_in_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda builder, name: "Tan" if name == "Atan" else name)
    (fault,) = faults(Chain(), torch.rand(2, 4))
    assert fault.verdict.kind is Kind.WRONG
    assert [call.operator for call in fault.calls] == ["aten::atan"]
    assert "in forward: x = torch.atan(x)" in fault.calls[0].location
    assert fault.total == 21
    assert "Greatest absolute difference" in fault.verdict.said


@pytest.mark.models
def test_a_wrong_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong only where a sine was written before, as in a fusion."""
    written: dict[int, set[str]] = {}

    def make(builder: Any, name: str) -> str:
        before = written.setdefault(id(builder), set())
        before.add(name)
        return "Tan" if name == "Atan" and "Sin" in before else name

    broken(monkeypatch, make)
    (fault,) = faults(Chain(), torch.rand(2, 4))
    assert [call.operator for call in fault.calls] == ["aten::sin", "aten::atan"]


def test_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(builder: Any, name: str) -> str:
        if name == "Atan":
            raise UnsupportedOperator("no arcs today")
        return name

    broken(monkeypatch, make)
    (fault,) = faults(Chain(), torch.rand(2, 4))
    assert fault.verdict.kind is Kind.REFUSED
    assert "no arcs today" in fault.verdict.said
    assert [call.operator for call in fault.calls] == ["aten::atan"]


@pytest.mark.models
def test_an_error_that_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(builder: Any, name: str) -> str:
        if name == "Atan":
            raise RuntimeError("the tables are lost")
        return name

    broken(monkeypatch, make)
    (fault,) = faults(Chain(), torch.rand(2, 4))
    assert fault.verdict.kind is Kind.ERROR
    assert "lowering: PreprocessError: " in fault.verdict.said and "the tables are lost" in fault.verdict.said
    assert [call.operator for call in fault.calls] == ["aten::atan"]


@pytest.mark.models
def test_with_dynamic_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda builder, name: "Tan" if name == "Atan" else name)
    (fault,) = faults(Chain(), torch.rand(2, 4), shapes={"x": {0: Dim("n", min=1, max=8)}})
    assert [call.operator for call in fault.calls] == ["aten::atan"]


def test_a_sound_backend() -> None:
    assert faults(Chain(), torch.rand(2, 4)) == []


def test_what_debug_refuses() -> None:
    model, args = nn.ReLU(), (torch.ones(2),)
    with pytest.raises(LoweringError, match=r"backends is a list, in order of priority: write backends=\['cpu'\]"):
        delegraph.debug(model, args, backends="cpu")
    with pytest.raises(LoweringError, match=r"backends has a object: another process has to find them"):
        delegraph.debug(model, args, backends=[object()])  # type: ignore[list-item]
    with pytest.raises(LoweringError, match=r"tolerance is -1 and timeout 120\.0; both are positive numbers"):
        delegraph.debug(model, args, backends=["cpu"], tolerance=-1)
    with pytest.raises(PluginError, match="cpo"):
        delegraph.debug(model, args, backends=["cpo"])


MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), (torch.randn(2, 4),)
"""


@pytest.mark.models
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(MODEL, "utf-8")
    command = ["debug", f"{tmp_path / 'model.py'}:make", "--backends", "cpu", "--out", str(tmp_path / "out"), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"faults": [], "partitions": {"forward": [{"backend": "cpu", "calls": 3}]}, "trials": 2}
    assert not (tmp_path / "out").exists()


@pytest.mark.models
def test_a_quantized_model_within_its_grid() -> None:
    model, data = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(8, 16)
    quantized = delegraph.quantize(model, [(data,)], (data,), recipe="int8", backends=["cpu"])
    debugged = delegraph.debug(quantized, backends=["cpu"])
    assert not debugged.faults, str(debugged)
    assert "within tolerance of torch" in str(debugged)
