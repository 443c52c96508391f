"""ExecuTorch's managers, configuration and emission."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import torch
from torch import nn

from delegraph.errors import ETRecordError, LoweringError
from delegraph.program import deserialize_program
from delegraph.program import schema as records
from delegraph_executorch import exir
from delegraph_executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, emit_program, schema, to_edge
from delegraph_executorch.exir._serialize._dataclass import _DataclassEncoder, _json_to_dataclass
from delegraph_executorch.exir.dynamic_shape import DynamicMemoryPlanningMode
from delegraph_executorch.exir.error import ExportError
from delegraph_executorch.exir.passes.sym_shape_eval_pass import (
    ConstraintBasedSymShapeEvalPass,
    HintBasedSymShapeEvalPass,
)
from delegraph_executorch.exir.schema import Int, KernelCall, Null, Tensor


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu(self.linear(x)), 5, None


def edge() -> exir.EdgeProgramManager:
    return to_edge(torch.export.export(Model(), (torch.randn(1, 3),)), {"version": 3})


def test_records_are_executorchs() -> None:
    manager = edge().to_executorch()
    plans = {plan.name: plan for plan in manager.executorch_program.execution_plan}
    plan = plans["forward"]
    outputs = [plan.values[index].val for index in plan.outputs]
    assert isinstance(outputs[0], Tensor) and outputs[0].sizes == [1, 2]
    assert outputs[1:] == [Int(5), Null()]
    last = plan.chains[0].instructions[-1].instr_args
    assert isinstance(last, KernelCall) and plan.operators[last.op_index].name == "aten::relu"
    assert plans["version"].values[plans["version"].outputs[0]].val == Int(3)
    assert (manager.methods, manager.config_methods) == ({"forward"}, {"version"})


def test_a_call_without_a_value_gets_one() -> None:
    """Code of ExecuTorch may leave some: there `to_edge` traces all of a graph anew."""
    exported = torch.export.export(Model(), (torch.randn(1, 3),))
    relu = exported.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    del relu.meta["val"]
    manager = to_edge(exported)
    (relu,) = (node for node in manager.exported_program().graph.nodes if "relu" in node.name)
    assert relu.meta.pop("val").shape == (1, 2)
    assert manager.to_executorch().buffer


def test_records_have_executorchs_fields_in_its_order() -> None:
    assert [one.name for one in fields(Tensor)][4:8] == [
        "requires_grad",
        "layout",
        "data_buffer_idx",
        "allocation_info",
    ]
    assert get_type_hints(Tensor)["allocation_info"] == schema.AllocationDetails | None
    assert schema.ExtraTensorInfo() == schema.ExtraTensorInfo(0, None, schema.TensorDataLocation.SEGMENT)
    assert schema.EValue(Int(1)).val in [Int(1)] and Int in schema.KernelTypes.__args__
    numbers = [schema.Double(1.5), schema.Double(float("-inf"))]
    texts = [json.dumps(number, cls=_DataclassEncoder) for number in numbers]
    assert [_json_to_dataclass(json.loads(text), schema.Double) for text in texts] == numbers
    with pytest.raises(TypeError, match="stacktrace"):
        schema.Chain([], [], [])


def test_constants_have_their_own_bytes() -> None:
    manager = edge().to_executorch()
    constants = manager.executorch_program.constant_buffer
    bias = manager.delegraph.exported_program().state_dict["linear.bias"].detach()
    assert constants[0].storage == b""
    # 8 bytes, fewer than constants are aligned to: padding is not taken for a constant's bytes
    assert bias.numpy().tobytes() in [constant.storage for constant in constants]


def test_a_copy_is_lowered_like_the_original() -> None:
    manager = edge()
    copy = deepcopy(manager)
    assert type(copy) is exir.EdgeProgramManager
    assert copy.to_executorch().buffer == manager.to_executorch().buffer
    program = manager.to_executorch()
    assert deepcopy(program).buffer == program.buffer


def test_files(tmp_path: Any) -> None:
    manager = edge().to_executorch(ExecutorchBackendConfig(external_constants=True))
    with pytest.raises(ValueError, match=r"does not end with \.pte"):
        manager.save(str(tmp_path / "model"))
    manager.save(str(tmp_path / "model.pte"))
    assert (tmp_path / "model.pte").read_bytes() == manager.buffer
    file = tmp_path / "_default_external_constant.ptd"
    assert file.read_bytes() == bytes(manager._tensor_data["_default_external_constant"])
    files = manager._emitter_output.external_constant_map
    assert files is not None
    assert files["_default_external_constant"].keys() == {"linear.weight", "linear.bias"}


def test_programs_are_merged_by_emitting_them_again() -> None:
    first, second = edge().to_executorch(), edge().to_executorch()
    merged = emit_program({"a": first.exported_program(), "b": second.exported_program()}).program
    assert [plan.name for plan in merged.execution_plan] == ["a", "b"]
    assert merged.execution_plan[0].operators == first.executorch_program.execution_plan[0].operators
    with pytest.raises(LoweringError, match=r"methods \['forward'\]: emit_program takes ExportedPrograms"):
        emit_program(3)  # type: ignore[arg-type]


def test_the_execution_dialect_has_out_variants_and_specs() -> None:
    manager = edge().to_executorch()
    graph = manager.exported_program().graph
    (relu,) = (node for node in graph.nodes if node.target == torch.ops.aten.relu.out)
    assert relu.kwargs["out"].meta["spec"] is relu.meta["spec"]
    plan = manager.executorch_program.execution_plan[0]
    value = plan.values[plan.outputs[0]].val
    assert isinstance(value, Tensor) and value.allocation_info is not None
    assert relu.meta["spec"].mem_offset == value.allocation_info.memory_offset


def test_names_of_buffers_are_written_on_demand() -> None:
    class State(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(2))

        def forward(self, x):
            self.state.add_(x)
            return self.state * 2

    def names(**options: Any) -> list[str | None]:
        program = to_edge(torch.export.export(State(), (torch.ones(2),))).to_executorch(
            ExecutorchBackendConfig(**options)
        )
        values = deserialize_program(program.buffer).execution_plan[0].values
        infos = [value.extra_tensor_info for value in values if isinstance(value, records.Tensor)]
        return [info.fully_qualified_name for info in infos if info is not None]

    assert names(emit_mutable_buffer_names=True) == ["state"]
    assert names() == []


class OwnToOutVarPass:
    """Not ExecuTorch's."""


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"dynamic_memory_planning_mode": DynamicMemoryPlanningMode.SYMBOLIC}, "use UPPER_BOUND"),
        ({"to_out_var_pass": OwnToOutVarPass()}, r"give a pass over the edge program as passes=\[…\]"),
    ],
)
def test_what_has_no_meaning_here_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        edge().to_executorch(ExecutorchBackendConfig(**option))


def test_a_pass_gets_a_line_in_the_error() -> None:
    with pytest.raises(LoweringError, match=r"ExecutorchBackendConfig\.passes"):
        edge().to_executorch(ExecutorchBackendConfig(passes=[3]))


def test_what_is_gone_says_what_to_use() -> None:
    with pytest.raises(LoweringError, match=r"use torch\.export\.export"):
        exir._capture_legacy_do_not_use(Model(), (torch.randn(1, 3),))
    with pytest.raises(ETRecordError, match="lower with generate_etrecord=True"):
        edge().to_executorch().get_etrecord()
    for lowering in (to_edge, exir.to_edge_transform_and_lower):
        finished = lowering(torch.export.export(Model(), (torch.randn(1, 3),)), generate_etrecord=True).to_executorch()
        assert finished.get_etrecord()._debug_handle_map == finished.debug_handle_map


def test_sizes_are_evaluated_for_each_method_as_it_asks() -> None:
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    program = to_edge(torch.export.export(Model(), (torch.randn(2, 3),), dynamic_shapes=shapes)).exported_program()
    passes = {"example": HintBasedSymShapeEvalPass(), "bounded": ConstraintBasedSymShapeEvalPass()}
    manager = exir.EdgeProgramManager(dict.fromkeys(passes, program))
    plans = manager.to_executorch(ExecutorchBackendConfig(sym_shape_eval_pass=passes)).executorch_program.execution_plan
    inputs = {plan.name: plan.values[plan.inputs[0]].val for plan in plans}
    assert {name: value.sizes for name, value in inputs.items()} == {"example": [2, 3], "bounded": [8, 3]}


class Twice(nn.Module):
    def forward(self, x):
        return x + 1

    def other(self, x):
        return x * 2


@pytest.mark.parametrize("traced", [lambda x: x * 2, Twice().other], ids=["function", "method"])
@pytest.mark.filterwarnings("ignore:exir.capture is deprecated")
def test_capture_is_export(traced: Any) -> None:
    x = torch.arange(3.0)
    program = exir.capture(traced, (x,), exir.CaptureConfig(enable_aot=True)).to_edge()
    assert torch.equal(program(x), x * 2)
    assert deserialize_program(program.to_executorch().buffer).execution_plan[0].name == "forward"


@pytest.mark.filterwarnings("ignore:exir.capture is deprecated")
def test_what_capture_cannot_do_is_refused() -> None:
    with pytest.raises(ExportError, match=r"CaptureConfig\._unlift: .* leave it out"):
        exir.capture(Model(), (torch.randn(1, 3),), exir.CaptureConfig(_unlift=True))
    with pytest.raises(ExportError, match=r"args is a tuple of inputs, not list"):
        exir.capture(Model(), [torch.randn(1, 3)])  # type: ignore[arg-type]


def test_text() -> None:
    manager = edge().to_executorch()
    short, long = io.StringIO(), io.StringIO()
    manager.dump_executorch_program(out=short)
    manager.dump_executorch_program(verbose=True, out=long)
    assert "aten::relu.out(" in short.getvalue()
    assert "'data_buffer_idx': 0" in long.getvalue()


def test_a_saved_program_is_the_same(tmp_path: Any) -> None:
    program = edge().exported_program()
    exir.save(program, tmp_path / "program.pt2")
    x = torch.randn(1, 3)
    loaded = exir.load(tmp_path / "program.pt2")
    assert loaded.dialect == program.dialect == "EDGE"
    assert torch.equal(loaded.module()(x)[0], program.module()(x)[0])
    assert [str(node.target) for node in loaded.graph.nodes] == [str(node.target) for node in program.graph.nodes]
    assert (
        exir.EdgeProgramManager(loaded).to_executorch().buffer
        == exir.EdgeProgramManager(program).to_executorch().buffer
    )


def test_a_config_that_the_wheel_made_is_taken() -> None:
    config: Any = SimpleNamespace(
        _check_ir_validity=False, _skip_dim_order=True, _core_aten_ops_exception_list=(), preserve_ops=()
    )
    manager = to_edge(torch.export.export(nn.ReLU(), (torch.ones(2, 3),)), compile_config=config)
    assert manager.compile_config == EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
