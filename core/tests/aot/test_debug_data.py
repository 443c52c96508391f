"""A program carries its origin: operators, modules, lines and weights' names, but no folder of this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.program import debug_data_of, deserialize_program

X = torch.randn(2, 8)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layers(x)) * 2


def test_instructions_come_from_modules_and_lines() -> None:
    program = deserialize_program(bytes(delegraph.lower(Net(), (X,))))
    data = debug_data_of(program)["forward"]
    rows = [data.nodes[handle] for handles in data.instructions.values() for handle in handles]
    told = [(row.operators[-1], row.module, row.weights) for row in rows]
    assert told == [
        ("aten::addmm", "layers.0", ("layers.0.bias", "layers.0.weight")),
        ("aten::tanh", "layers.1", ()),
        ("aten::relu", "", ()),
        ("aten::mul.Scalar", "", ()),
    ]
    assert {row.line.partition(":")[0] for row in rows[2:]} == {"tests/aot/test_debug_data.py"}, "as Python finds it"
    assert rows[0].results == ("float32 [2, 8]",)
    names = set(data.constants.values())
    assert names >= {("layers.0.weight",), ("layers.0.bias",)}, "the folded weight has its source's name"
    assert (data.weights["layers.0.weight"].dtype, data.weights["layers.0.weight"].shape) == ("float32", (8, 8))


@pytest.mark.parametrize("backend", ["cpu", "openvino"])
def test_steps_of_delegates_come_from_nodes(backend: str) -> None:
    program = deserialize_program(bytes(delegraph.lower(Net(), (X,), backends=[backend])))
    data = debug_data_of(program)["forward"]
    [steps] = data.delegates
    modules = {data.nodes[handle].module for handles in steps.values() for handle in handles}
    assert modules == {"layers.0", "layers.1", ""}
    assert set(data.instructions[0]) == {handle for handles in steps.values() for handle in handles}
    assert data.left == {}, "reading a delegate's result leaves nothing"


def test_no_folder_of_this_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "models" / "net.py"
    source.parent.mkdir()
    source.write_text(
        "import torch\n\n\nclass Double(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    )
    spec = importlib.util.spec_from_file_location("net_in_a_folder", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lowered = delegraph.lower(module.Double(), (X,))
    [node] = debug_data_of(deserialize_program(bytes(lowered)))["forward"].nodes.values()
    assert node.line == "models/net.py:6, in forward"
    assert str(tmp_path).encode() not in bytes(lowered)


def test_it_can_be_left_out() -> None:
    config = ExecutorchBackendConfig(emit_debug_data=False)
    assert debug_data_of(deserialize_program(bytes(delegraph.lower(Net(), (X,), config=config)))) == {}
