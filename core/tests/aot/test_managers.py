"""The managers of lowering in steps: copies, names of methods, and what they keep of earlier stages."""

from __future__ import annotations

import io
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    PreprocessResult,
    is_delegate_call,
    to_edge,
    to_edge_transform_and_lower,
)
from delegraph.aot.emission.planners import greedy
from delegraph.errors import ETRecordError
from delegraph.plugins.registry import PluginRegistry
from delegraph_partitioners import OperatorsPartitioner

CONFIG = ExecutorchBackendConfig(check_kernels=False)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)).sin()


class Blob(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"blob")


def exported() -> ExportedProgram:
    return torch.export.export(Model(), (torch.randn(2, 4),))


def lowered() -> EdgeProgramManager:
    plugins = PluginRegistry()
    plugins.register("lowerings", "Blob", Blob)
    plugins.register("memory_planners", "greedy", greedy)
    partitioner = OperatorsPartitioner("Blob", [torch.ops.aten.relu.default])
    return to_edge_transform_and_lower(exported(), partitioner=[partitioner], generate_etrecord=True, plugins=plugins)


def test_a_copy_of_a_lowered_program_is_its_own() -> None:
    manager = lowered()
    copy = deepcopy(manager)
    graph = copy.exported_program().graph
    (sin,) = (node for node in graph.nodes if node.target == torch.ops.aten.sin.default)
    sin.target = torch.ops.aten.cos.default
    copy.exported_program().graph_module.recompile()
    x = torch.randn(2, 4) / 10  # asin undoes sin up to pi / 2
    relu = torch.asin(manager.exported_program().module()(x))
    torch.testing.assert_close(copy.exported_program().module()(x), torch.cos(relu))
    assert b"aten::cos" in copy.to_executorch(CONFIG).buffer
    assert b"aten::cos" not in manager.to_executorch(CONFIG).buffer


def test_a_copy_has_weights_of_its_own() -> None:
    manager = to_edge(exported())
    copy = deepcopy(manager)
    with torch.no_grad():
        copy.exported_program().state_dict["linear.weight"].zero_()
    assert manager.exported_program().state_dict["linear.weight"].abs().sum() > 0


def test_a_copy_of_a_finished_program_is_the_same() -> None:
    program = lowered().to_executorch(CONFIG)
    copy = deepcopy(program)
    assert copy.buffer == program.buffer
    assert copy.exported_program() is not program.exported_program()


def test_methods_and_config_methods() -> None:
    manager = to_edge({"run": exported()}, constant_methods={"version": 3})
    assert (manager.methods, manager.config_methods) == ({"run"}, {"version"})
    program = manager.to_executorch(CONFIG)
    assert (program.methods, program.config_methods) == ({"run"}, {"version"})


def test_transform_takes_a_new_configuration() -> None:
    manager = to_edge(exported())
    assert manager.compile_config._check_ir_validity
    assert not manager.transform([], EdgeCompileConfig(_check_ir_validity=False)).compile_config._check_ir_validity


def test_the_program_is_printed() -> None:
    program = to_edge(exported()).to_executorch(CONFIG)
    short, long = io.StringIO(), io.StringIO()
    program.dump_executorch_program(out=short)
    program.dump_executorch_program(verbose=True, out=long)
    assert "aten::relu.out(" in short.getvalue()
    assert "'shape_dynamism': 0" in long.getvalue()


def test_how_many_results_an_instruction_has() -> None:
    class Split(nn.Module):
        def forward(self, x):
            low, high = x.split(2)
            return low.relu() + high

    manager = to_edge(torch.export.export(Split(), (torch.randn(4),)))
    program = manager.to_executorch(CONFIG)
    assert program.instruction_id_to_num_outs_map["forward"] == {}, "only what delegates give is counted"


def test_earlier_stages_are_kept_on_demand() -> None:
    manager = lowered()
    program = manager.to_executorch(CONFIG)
    recorded = program.get_etrecord()
    assert recorded.exported_program is not None
    assert [node.target for node in recorded.exported_program.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.linear.default,
        torch.ops.aten.relu.default,
        torch.ops.aten.sin.default,
    ]
    assert isinstance(recorded.edge_dialect_program, ExportedProgram)
    assert not any(is_delegate_call(node) for node in recorded.edge_dialect_program.graph.nodes)
    assert any(is_delegate_call(node) for node in manager.exported_program().graph.nodes)
    for node in manager.exported_program().graph.nodes:
        node.meta["edited"] = True
    assert not any("edited" in node.meta for node in recorded.edge_dialect_program.graph.nodes)
    handles = [
        node.meta["debug_handle"] for node in recorded.edge_dialect_program.graph.nodes if node.op == "call_function"
    ]
    (delegate,) = program.delegate_map["forward"]
    in_delegate = program.debug_handle_map["forward"][delegate]
    assert in_delegate
    assert set(in_delegate) <= set(handles)
    assert program.instruction_id_to_num_outs_map["forward"] == {delegate: 1}
    with pytest.raises(ETRecordError, match="ETRecord was not generated; lower with generate_etrecord=True"):
        to_edge(exported()).to_executorch(CONFIG).get_etrecord()
