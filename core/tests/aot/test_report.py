"""The report says where every node went, and why."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from core.tests.aot.delegating import to_backend
from torch.export import ExportedProgram, export

from delegraph.aot.delegation.compose import Delegated
from delegraph.aot.delegation.partition import TAG
from delegraph.aot.delegation.report import LoweringReport, make_report, suggestions
from delegraph.aot.graph.bodies import graph_modules
from delegraph.interfaces import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.plugins.registry import PluginRegistry


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().sigmoid()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x).tanh()  # type: ignore[no-any-return]


class Branch(torch.nn.Module):
    def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(p, lambda x: x.relu(), lambda x: x.sigmoid(), (x,))  # type: ignore[no-any-return]


class Takes(Partitioner):
    def __init__(self, *names: str) -> None:
        self.names = names

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags, declined = {}, {}
        for path, module in graph_modules(exported_program.graph_module):
            for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.sigmoid.default):
                declined[f"{path}.{node.name}" if path else node.name] = "has no [unit] for it"
            for node in module.graph.nodes:
                if node.name in self.names:
                    node.meta[TAG] = f"{node.name}_tag"
                    tags[f"{node.name}_tag"] = DelegationSpec("Blank")
        return PartitionResult(exported_program, tags, declined)


class Blank(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"x" * 1234)


def registry(**partitioners: Any) -> PluginRegistry:
    result = PluginRegistry()
    result.register("lowerings", "Blank", Blank)
    for name, partitioner in partitioners.items():
        result.register("partitioners", name, lambda options, made=partitioner: made)
    return result


X = torch.randn(2, 4)


def delegated(model: torch.nn.Module, *args: Any, by: tuple[Partitioner, ...]) -> Delegated:
    return to_backend({"forward": export(model, args).run_decompositions()}, by, registry())


def report(model: torch.nn.Module, *args: Any, by: tuple[Partitioner, ...], **installed: Any) -> LoweringReport:
    result = delegated(model, *args, by=by)
    made = make_report(result.programs, result)
    return made if by else replace(made, suggestions=tuple(suggestions(result.programs, registry(**installed))))


def test_every_node_is_accounted_for() -> None:
    method = report(Model(), X, by=(Takes("relu"),)).methods["forward"]
    [delegate] = method.delegates
    assert (delegate.backend, delegate.tag, delegate.partitioner) == ("Blank", "relu_tag", "Takes")
    assert (delegate.nodes, delegate.operators, delegate.blob_nbytes) == (("relu",), {"aten::relu": 1}, 1234)
    sigmoid, tanh = method.leftovers
    assert (sigmoid.name, sigmoid.operator, sigmoid.module_path) == ("sigmoid", "aten::sigmoid", "block")
    assert sigmoid.location is not None
    assert sigmoid.location.endswith("in forward: return x.relu().sigmoid()")
    assert "test_report.py" in sigmoid.location
    assert sigmoid.reasons == {"Takes": "has no [unit] for it"}
    assert tanh.reasons == {"Takes": "gave no reason"}
    assert method.delegated_nodes == 1


def test_every_partitioner_gives_its_own_reason() -> None:
    method = report(Model(), X, by=(Takes("relu"), Takes("tanh"))).methods["forward"]
    assert [entry.partitioner for entry in method.delegates] == ["Takes", "Takes (2)"]
    [sigmoid] = method.leftovers
    assert sigmoid.reasons == {"Takes": "has no [unit] for it", "Takes (2)": "has no [unit] for it"}


def test_bodies_of_control_flow_are_listed_by_path() -> None:
    method = report(Branch(), torch.tensor(True), X, by=(Takes("relu"),)).methods["forward"]
    assert [(entry.graph, entry.nodes) for entry in method.delegates] == [("true_graph_0", ("relu",))]
    leftovers = {(entry.graph, entry.name): entry.reasons["Takes"] for entry in method.leftovers}
    assert leftovers == {("", "cond"): "gave no reason", ("false_graph_0", "sigmoid"): "has no [unit] for it"}


class Broken(Partitioner):
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        raise OSError("no licence")


class Slow(Broken):
    is_suggested = False


def test_without_backends_the_installed_ones_are_asked() -> None:
    result = delegated(Model(), X, by=())
    installed = registry(npu=Takes("relu", "tanh"), dsp=Takes(), old=Broken(), slow=Slow())
    made = replace(make_report(result.programs, result), suggestions=tuple(suggestions(result.programs, installed)))
    assert [entry.reasons for entry in made.methods["forward"].leftovers] == [{"": "no partitioner asked"}] * 3
    assert [(s.partitioner, s.nodes, s.problem) for s in made.suggestions] == [
        ("dsp", {"forward": 0}, ""),
        ("npu", {"forward": 2}, ""),
        ("old", {}, "partitioner old, method 'forward': it raised OSError: no licence"),
    ]
    assert "backends=['npu'] would take 2 of forward" in str(made)
    assert "old: could not be asked" in str(made)
    assert not any(TAG in node.meta for node in result.programs["forward"].graph.nodes)


def test_with_backends_nobody_else_is_asked() -> None:
    assert report(Model(), X, by=(Takes("relu"),), old=Broken()).suggestions == ()


def test_text_is_a_table() -> None:
    lines = str(report(Model(), X, by=(Takes("relu"),))).splitlines()
    assert lines[0] == "forward: 1 node in 1 delegate, 2 nodes left to kernels"
    assert lines[1].split() == ["delegate", "backend", "by", "nodes", "blob", "bytes", "operators"]
    assert lines[2].split() == ["relu_tag", "Blank", "Takes", "1", "1,234", "aten::relu"]
    assert "sigmoid    aten::sigmoid  Takes: has no [unit] for it  block" in lines[5]


def test_json_is_plain() -> None:
    made = report(Model(), X, by=(Takes("relu"),)).to_json()
    assert json.loads(json.dumps(made)) == made
    method = made["methods"]["forward"]
    assert (method["delegated_nodes"], method["leftover_nodes"]) == (1, 2)
    assert method["leftovers"][0]["reasons"] == {"Takes": "has no [unit] for it"}


def test_print_shows_everything_with_and_without_rich(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = report(Model(), X, by=(Takes("relu"),))
    monkeypatch.setenv("COLUMNS", "300")
    made.print()
    assert "has no [unit] for it" in capsys.readouterr().out
    original = builtins.__import__

    def without_rich(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("rich"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    made.print()
    assert capsys.readouterr().out.split("\n\n") == [*str(made).split("\n\n"), ""]
