"""A slow layer, a large weight, a wrong kernel and a lossy layer are named by module and line, on every backend."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

import delegraph
from delegraph.cli import main
from delegraph.devtools import load_model
from delegraph.interfaces import BlobFormat, Buffer
from delegraph.program import deserialize_program, serialize_program
from delegraph_cpu import blob as cpu_blob
from delegraph_dsp.runtime.kernels import TABLE
from delegraph_mnn import blob as mnn_blob
from delegraph_npu.runtime.output_stage import OutputStage
from delegraph_openvino import blob as openvino_blob
from delegraph_providers.blob import format_of
from delegraph_providers.providers import WEBGPU

WIDTH = 16
SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    """Each layer of the model but one is such a block."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x))


class Odd(nn.Module):
    """The layer to be named: its function is in no other."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.fc, self.back = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.back(torch.tanh(self.fc(x)))  # type: ignore[no-any-return]


ODD = "2"
LINE = f"{Path(__file__).name}:{inspect.getsourcelines(Odd.forward)[1] + 1}"

X = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(1))


def net(hidden: int = WIDTH) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), Odd(hidden), Block(), nn.Softmax(-1)).eval()


QUANTIZED = ("npu", "dsp")
ON_QNN = pytest.param("qnn", marks=pytest.mark.accelerators)
BACKENDS = ["", "cpu", "openvino", "npu", "dsp", "mnn"]
"""Those that tell what is in their delegates; `webgpu` is tried with its other tests."""


def prepared(backend: str, model: nn.Module) -> Any:
    """What is lowered for a backend, and compared with: a model, or the program that quantizing made of it."""
    if backend not in QUANTIZED:
        return model
    return delegraph.quantize(model, [(X,)], (X,), recipe="int8", backends=[backend]).program


def lowered(backend: str, model: Any) -> bytes:
    program = bytes(delegraph.lower(model, (X,), backends=[backend] if backend else []))
    assert not backend or load_model(program).delegates, f"{backend} took nothing"
    return program


@pytest.mark.parametrize("backend", [*BACKENDS, ON_QNN])
def test_a_slow_layer(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In numbers, in the flame graph and in the trace. It has forty times as much work as the layers around it."""
    rows = X.repeat(1 if backend in (*QUANTIZED, "qnn") else 64, 1)  # simulations take a while
    backends = [backend] if backend else []
    quantizers = {"quantizers": backends, "calibration_data": [(rows,)]} if backend in QUANTIZED else {}
    pte, svg, trace = (tmp_path / name for name in ("m.pte", "flame.svg", "trace.json"))
    delegraph.lower(net(1024), (rows,), backends=backends, **quantizers).save(pte)  # type: ignore[arg-type]
    words = ["--warmup", "1", "--repeat", "5", "--json", "--flame", str(svg), "--perfetto", str(trace)]
    for _ in range(5):  # whatever else this machine does may slow another layer down
        assert main(["profile", str(pte), *words]) == 0
        told = json.loads(capsys.readouterr().out)
        if LINE in told["lines"][0]["name"] and LINE in told["nodes"][0]["line"]:
            break

    modules = {row["name"]: row for row in told["modules"]}
    assert max("0123", key=lambda name: modules.get(name, {"share": 0})["share"]) == ODD
    assert LINE in told["lines"][0]["name"]
    assert told["nodes"][0]["module"].startswith(ODD) and LINE in told["nodes"][0]["line"]
    assert sum(row["share"] for row in told["nodes"]) == pytest.approx(1)
    assert [bool(row["nodes"]) for row in told["delegates"]] == [True] * len(backends), "it reports its nodes"
    assert {"cycles", "energy_pj"} <= set(modules[ODD]["counters"]) or backend not in QUANTIZED

    boxes = [box for box in ElementTree.parse(svg).getroot().iter(f"{SVG}rect") if box.get("class") == "line"]
    widest = max(boxes, key=lambda box: float(box.get("width", 0)) if len(box) else 0.0)
    assert LINE in (widest[0].text or "")
    events = json.loads(trace.read_text())["traceEvents"]
    engines = {row["tid"] for row in events if row["name"] == "thread_name" and row["args"]["name"] != "host"}
    spent: dict[str, float] = {}
    for row in (row for row in events if row["ph"] == "X" and (row["tid"] in engines or not backends)):
        lines = row["args"].get("lines", "")
        spent[lines] = spent.get(lines, 0.0) + row["dur"] * bool(lines)
    assert LINE in max(spent, key=spent.__getitem__)


@pytest.mark.parametrize("backend", [*BACKENDS, ON_QNN])
def test_a_large_weight(backend: str) -> None:
    weights = load_model(lowered(backend, prepared(backend, net(hidden=512)))).weights
    if backend == "qnn":
        assert not weights  # its binary is its compiler's own
        return
    largest = max(weights, key=lambda weight: weight.nbytes)
    assert largest.module.startswith(f"{ODD}.") and largest.label.startswith(largest.module), largest
    assert LINE in " ".join(largest.origin.lines), largest


# ---- wrong numbers --------------------------------------------------------------------------------------------------


def another_function(form: BlobFormat, old: bytes, new: bytes) -> Callable[[bytes, pytest.MonkeyPatch], bytes]:
    """The engine gets another function, of a name as long, in place of tanh."""

    def changed(program: bytes, _: pytest.MonkeyPatch) -> bytes:
        records = deserialize_program(program)
        blobs = [repacked(blob) for blob in records.delegate_data]
        return serialize_program(replace(records, delegate_data=blobs))

    def repacked(blob: Buffer) -> bytes:
        content = form.unpack(blob)
        sections = {name: bytes(content.view(name)) for name in content.names}
        assert any(old in section for section in sections.values())
        return form.pack(content.header, {name: section.replace(old, new) for name, section in sections.items()})

    return changed


def another_kernel(program: bytes, _: pytest.MonkeyPatch) -> bytes:
    def sinh(kernel: Any) -> Any:
        return replace(kernel, name=kernel.name.replace("aten::tanh", "aten::sinh"))

    records = deserialize_program(program)
    plans = [replace(plan, operators=[sinh(o) for o in plan.operators]) for plan in records.execution_plan]
    return serialize_program(replace(records, execution_plan=plans))


def wrong_table(program: bytes, patch: pytest.MonkeyPatch) -> bytes:
    def wrong(arrays: Any, integers: Any, reals: Any) -> None:
        right.function(arrays, integers, reals)
        arrays[-1][...] = -arrays[-1]

    right = TABLE["table"]
    patch.setitem(TABLE, "table", replace(right, function=wrong))
    return program


def wrong_output_stage(program: bytes, patch: pytest.MonkeyPatch) -> bytes:
    made = OutputStage.__init__

    def init(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self._table = None if self._table is None else self._table[::-1].copy()

    patch.setattr(OutputStage, "__init__", init)
    return program


ONNX = b"\x22\x04Tanh", b"\x22\x04Relu"  # field 4 of a node: its operator; or of an attribute: what is fused with it
WRONG: dict[str, Callable[[bytes, pytest.MonkeyPatch], bytes]] = {
    "": another_kernel,
    "cpu": another_function(cpu_blob.FORMAT, *ONNX),
    "mnn": another_function(mnn_blob.FORMAT, *ONNX),
    "webgpu": another_function(format_of(WEBGPU), *ONNX),
    "openvino": another_function(openvino_blob.FORMAT, b'"Tanh"', b'"Sinh"'),
    "npu": wrong_output_stage,
    "dsp": wrong_table,
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_kernel(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(backend, net())
    right = lowered(backend, model)
    assert not delegraph.numeric_gap(right, model, (X,))
    gap = delegraph.numeric_gap(WRONG[backend](right, monkeypatch), model, (X,))
    (begins,) = gap.begins
    assert begins.module.startswith(ODD) and LINE in begins.line and not begins.alone


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lossy_layer(backend: str) -> None:
    program = lowered(backend, coarse(prepared(backend, net())))
    (begins,) = delegraph.numeric_gap(program, prepared(backend, net()), (X,)).begins
    assert begins.module.startswith(f"{ODD}.back") and LINE in begins.line and not begins.alone


def coarse(model: Any) -> Any:
    """The model, or quantized program, with a few steps for the weights of a layer."""
    state = model.state_dict() if isinstance(model, nn.Module) else model.state_dict
    for name, weight in state.items():
        if name.startswith(f"{ODD}.back.weight") and weight.dim() == 2:
            step = 64 if weight.dtype == torch.int8 else weight.abs().max() / 2
            weight.copy_((weight / step).round() * step)
    return model


@pytest.mark.accelerators
def test_a_binary_is_wrong_as_a_whole() -> None:
    """Only its compiler knows what is in it: the file's own fault is told of its outputs, what it computes otherwise
    of calls that are compiled once more."""
    other = net()
    with torch.no_grad():
        other[2].back.weight.mul_(2)
    gap = delegraph.numeric_gap(lowered("qnn", other), net(), (X,), tolerance=1e-2)  # it computes in float16
    assert [output.name for output in gap.outputs if output.is_wrong] == ["output 0"] and not gap.begins
    assert "a delegate is wrong as a whole" in str(gap)
    assert {layer.module for layer in gap.layers if layer.alone} >= {"0.fc", "2.fc", "2.back"}
