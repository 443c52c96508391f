"""The insides of delegates, told by module and line with every backend here, from the file alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delegraph
from delegraph.cli import main
from delegraph.devtools import ProgramModel, load_model
from delegraph.devtools.program_model.sizes import sizes_of
from delegraph.devtools.summary import file_sizes
from delegraph.program import deserialize_program

QUANTIZED = ("npu", "dsp")
BACKENDS = ("cpu", "openvino", "mnn", *QUANTIZED, "kernels")


class Net(torch.nn.Module):
    """A network whose bytes are in one layer, `blocks.1.wide`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Linear(16, 24)
        self.blocks = torch.nn.ModuleList([Block(8), Block(96)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return x


class Block(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(24, hidden)
        self.back = torch.nn.Linear(hidden, 24, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.back(torch.relu(self.wide(x))) + x
        return result


@pytest.fixture(scope="module", params=BACKENDS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    net, x = Net().eval(), (torch.randn(4, 16),)
    backends = [] if request.param == "kernels" else [request.param]
    quantizers = {"quantizers": backends, "calibration_data": [x]} if request.param in QUANTIZED else {}
    path = tmp_path_factory.mktemp(request.param) / "m.pte"
    delegraph.lower(net, x, backends=backends, **quantizers).save(path)  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def model(file: Path) -> ProgramModel:
    return load_model(file)


def test_every_backend_describes_its_blobs(model: ProgramModel) -> None:
    assert [row.reason for row in model.delegates if row.described is None] == []
    assert all(row.described is not None and row.described.nodes for row in model.delegates)


def test_a_blob_of_two_methods_is_in_the_file_once() -> None:
    net, batch = Net().eval(), torch.export.Dim("batch", min=2, max=8)
    x = torch.randn(4, 16)
    programs = {
        "many": torch.export.export(net, (x,), dynamic_shapes=({0: batch},)),
        "one": torch.export.export(net, (x[:1],)),
    }
    content = bytes(delegraph.lower(programs, backends=["cpu"]))
    model = load_model(content)
    assert {row.place for row in model.delegates} == {"delegate 0 of many"}
    sizes = sizes_of(deserialize_program(content), model, file_sizes(content, len(content)))
    assert [part.name for part in sizes.parts if "delegate" in part.name and part.within == "file"] == [
        "delegate 0 of many, 0 of one (CpuBackend)"
    ]
    assert len(content) == sum(part.nbytes for part in sizes.parts if part.within == "file")
    assert all(part.nbytes >= 0 for part in sizes.parts)
    assert not sizes.repeated


def test_steps_come_from_modules_and_lines(model: ProgramModel) -> None:
    products = {
        row.origin.module for row in model.nodes if {"addmm", "linear", "mm"} & _operators(row.origin.operators)
    }
    assert products >= {"stem", "blocks.0.wide", "blocks.0.back", "blocks.1.wide", "blocks.1.back"}
    lines = {line for row in model.nodes for line in row.origin.lines}
    assert lines and all(line.startswith("tests/test_program_model.py:") for line in lines)
    assert all(row.origin.lines for row in model.nodes if row.debug_id is not None)


def _operators(names: tuple[str, ...]) -> set[str]:
    return {name.rpartition("::")[2].partition(".")[0] for name in names}


def test_bytes_add_up(file: Path, model: ProgramModel) -> None:
    content = file.read_bytes()
    sizes = sizes_of(deserialize_program(content), model, file_sizes(content, len(content)))
    (whole,) = (part.nbytes for part in sizes.parts if part.name == "file")
    assert whole == len(content) == sum(part.nbytes for part in sizes.parts if part.within == "file")
    assert all(part.nbytes >= 0 for part in sizes.parts)
    by_module = {size.module: size.nbytes for size in sizes.modules}
    assert by_module["blocks.1"] > by_module["blocks.0"] > 0
    assert by_module[""] == sum(row.nbytes for row in model.weights)


def test_an_event_of_a_trace_is_a_step(file: Path, model: ProgramModel) -> None:
    tracer = delegraph.EventTracer()
    options = {
        row.backend: {"profiling": True}
        for row in model.delegates
        if row.backend in ("CpuBackend", "MnnBackend", "OpenVinoIR")
    }
    run = delegraph.load(file, event_tracer=tracer, backend_options=options)
    run(torch.zeros(4, 16).numpy())
    events = [event for event in tracer.blocks[-1].profile_events if event.instruction >= 0]
    inside = [event for event in events if event.delegate_debug_id is not None]
    rows = [model.node_of("forward", event.instruction, event.delegate_debug_id) for event in inside or events]
    assert all(row is not None and row.origin.lines for row in rows)
    modules = {row.origin.module for row in rows if row is not None}
    fused = any(row.backend == "OpenVinoIR" for row in model.delegates)  # at load, and told as the first of them
    assert modules >= ({"stem"} if fused else {"stem", "blocks.1.wide", "blocks.1.back"})


LOADS = """
import sys, numpy, delegraph
delegraph.load(sys.argv[1])(numpy.zeros((4, 16), numpy.float32))
print([name for name in sys.modules if name.startswith(("delegraph.devtools", "delegraph.interfaces.description",
    "delegraph.program.debug_data")) or name.endswith(".describing")])
"""


def test_who_only_runs_imports_none_of_it(file: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOADS, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_external_weights_are_compared_by_their_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, factor in (("a", 1.0), ("b", 1.5)):
        model = torch.nn.Linear(4, 2)
        with torch.no_grad():
            model.weight.fill_(factor)[0, 0] = 1.0
            model.bias.fill_(0.5)
        config = delegraph.ExecutorchBackendConfig(external_constants=True)
        (tmp_path / name).mkdir()
        delegraph.lower(model, (torch.ones(1, 4),), backends=[], config=config).save(tmp_path / name / "m.pte")
        (data,) = (tmp_path / name).glob("*.ptd")
        paths.append((str(tmp_path / name / "m.pte"), str(data)))
    (before, before_data), (after, after_data) = paths
    assert main(["diff", before, after, "--data", before_data, "--after-data", after_data, "--json"]) == 1
    told = [change for change in json.loads(capsys.readouterr().out)["changes"] if change["kind"] == "weight"]
    assert [(change["what"], change["after"], change["how"]) for change in told] == [
        ("weight", "7 of 8 differ, 6.6 dB", "changed")
    ]
    assert main(["diff", before, before, "--data", before_data, "--after-data", before_data]) == 0
