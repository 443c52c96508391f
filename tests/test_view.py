"""A fault that is put into a model is named by module and line: a slow layer, a large weight, a wrong kernel, a lossy
layer. The numbers are those that the tools print, as `delegraph view --overlay` takes them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.test_debug import broken, faults
from torch import nn

import delegraph
from delegraph.cli import main
from delegraph.devtools import load_model, view
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.runtime import KernelLibrary

X = torch.linspace(-1, 1, 4 * 16).reshape(4, 16)


class Block(nn.Module):
    def __init__(self, hidden: int, act: nn.Module) -> None:
        super().__init__()
        self.wide = nn.Linear(16, hidden)
        self.act = act
        self.back = nn.Linear(hidden, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(self.act(self.wide(x))) + x  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(Block(16, nn.ReLU()), Block(200, nn.Tanh()), Block(16, nn.Sigmoid()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(self.blocks(x).abs() + 1)


def saved(tmp_path: Path, backends: list[str]) -> str:
    path = tmp_path / "m.pte"
    delegraph.lower(Net().eval(), (X,), backends=backends).save(path)
    return str(path)


def largest(path: str, name: str, numbers: Any = None) -> tuple[str, str]:
    """The module and the line that a view names first."""
    shown = view(path, overlays={} if numbers is None else {name: numbers}, start=name)
    row = shown.largest(name)[0]
    return row.node.module, row.node.lines[0].partition(":")[0]


HERE = "tests/test_view.py"


def test_a_slow_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that sleeps for longer than all the others take."""
    slow = KernelLibrary("slow")

    @slow.kernel("aten::tanh.out")
    def tanh_out(context: Any, x: Any, out: Any) -> None:
        time.sleep(0.1)
        np.tanh(x, context.resize(out, x.shape))

    file, registry = saved(tmp_path, []), PluginRegistry.discover()
    registry.register("kernels", "slow", slow)
    with use_registry(registry):
        assert main(["run", file, "--kernels", "slow,portable,special", "--trace", "--repeat", "3", "--json"]) == 0
    assert largest(file, "time", json.loads(capsys.readouterr().out)) == ("blocks.1.act", HERE)


def test_a_large_weight(tmp_path: Path) -> None:
    assert largest(saved(tmp_path, ["cpu"]), "bytes") in [("blocks.1.wide", HERE), ("blocks.1", HERE)]


def test_a_wrong_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path, ["cpu"])
    broken(monkeypatch, lambda builder, name: "Tan" if name == "Tanh" else name)
    numbers = {"faults": [fault.to_json() for fault in faults(Net(), X)]}
    assert largest(file, "error", numbers)[0] in ("blocks.1.act", "blocks.1")


def test_a_lossy_layer(tmp_path: Path) -> None:
    """Weights with one scale for all, and among them a thousand times larger ones for what is always 0."""
    model, x = Net().eval(), X.clone()
    x[:, 0] = 0
    with torch.no_grad():
        for block in model.blocks:
            block.back.weight[0] = block.back.bias[0] = 0  # type: ignore[union-attr, index]
        model.blocks[2].wide.weight[:, 0] = 100.0  # type: ignore[union-attr, index]
    quantized = delegraph.quantize(model, [(x,)], recipe="int8_per_tensor", backends=["cpu"])
    path = tmp_path / "q.pte"
    delegraph.lower(quantized, (x,), backends=["cpu"]).save(path)
    assert largest(str(path), "error", quantized.report.to_json()) == ("blocks.2.wide", HERE)


def test_a_layer_that_is_wrong_in_the_file(tmp_path: Path) -> None:
    model, other = Net(), Net()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.blocks[2].wide.bias.add_(1)  # type: ignore[union-attr, operator]
    path = tmp_path / "m.pte"
    delegraph.lower(other.eval(), (X,), backends=["cpu"]).save(path)
    gap = delegraph.numeric_gap(path, model.eval(), (X,))
    rows = view(path, overlays={"error": gap.to_json()}).largest("error", 100)
    wrong = {row.node.module for row in rows if row.value > 0.001}
    assert wrong & {"blocks.2.wide", "blocks.2"} and not any(
        name.startswith(("blocks.0", "blocks.1")) for name in wrong
    )


def test_a_file_says_why_a_node_was_left(tmp_path: Path) -> None:
    """As the report does; a node of a delegate, or one that nobody was asked about, has no reason."""
    lowered = delegraph.lower(Net().eval(), (X,), backends=["cpu"])
    (left,) = lowered.report.methods["forward"].leftovers
    reasons = {row.operator: row.reason for row in load_model(bytes(lowered)).nodes if row.reason}
    assert reasons == {"aten::lgamma.out": f"cpu: {left.reasons['cpu']}"}
    assert not any(row.reason for row in load_model(saved(tmp_path, [])).nodes)
    assert "no converter" in next(
        node.reason for node in view(lowered).programs[0].graphs[0].nodes if node.label == "lgamma"
    )
