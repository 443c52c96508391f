"""`MemoryPlanningPass`: options by method, planners, and planning that sees the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from delegraph.aot import ExecutorchBackendConfig, MemoryPlanningPass, MethodMemory, MethodPlan
from delegraph.aot.emission.planners import naive
from delegraph.errors import LoweringError, PluginError
from delegraph.interfaces import MemoryPlanner, Plan
from delegraph.program.schema import DeviceType, ExecutionPlan, NonConstBufferDevice, Tensor


class Sum(nn.Module):
    def forward(self, x, y):
        return (x + y) * y


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x):
        self.state.add_(x)
        return self.state * 2


INPUTS = (torch.randn(4), torch.randn(4))


def plan_of(manager: Any, name: str = "forward") -> ExecutionPlan:
    return next(plan for plan in manager.executorch_program.execution_plan if plan.name == name)


def tensors(plan: ExecutionPlan) -> list[Tensor]:
    return [value for value in plan.values if isinstance(value, Tensor)]


def is_planned(plan: ExecutionPlan, index: int) -> bool:
    value = plan.values[index]
    assert isinstance(value, Tensor)
    return value.allocation_info is not None


def test_the_options_are_those_of_the_configuration(lower_model) -> None:
    for name in ("alloc_graph_input", "alloc_graph_output"):
        here = lower_model(Sum(), INPUTS, **{name: False})
        there = lower_model(Sum(), INPUTS, memory_planning_pass=MemoryPlanningPass(**{name: False}))
        assert here.buffer == there.buffer


def test_each_method_has_its_own(lower_model) -> None:
    passes = {"a": MemoryPlanningPass(alloc_graph_input=False), "b": MemoryPlanningPass(alloc_graph_output=False)}
    manager = lower_model({"a": Sum(), "b": Sum(), "c": Sum()}, INPUTS, memory_planning_pass=passes)
    planned = {name: plan_of(manager, name) for name in "abc"}
    assert [is_planned(plan, plan.inputs[0]) for plan in planned.values()] == [False, True, True]
    assert [is_planned(plan, plan.outputs[0]) for plan in planned.values()] == [True, False, True]


def test_tensors_are_aligned_as_asked(lower_model) -> None:
    for alignment in (4, 64):
        planning = MemoryPlanningPass(memory_planning_algo="naive", alignment=alignment)
        plan = plan_of(lower_model(Sum(), (torch.randn(3), torch.randn(3)), memory_planning_pass=planning))
        offsets = [t.allocation_info.memory_offset for t in tensors(plan) if t.allocation_info is not None]
        size = -(-12 // alignment) * alignment
        assert sorted(offsets) == [i * size for i in range(4)]


class SumsApart(MemoryPlanningPass):
    """Results of `add` lie in memory 3."""

    def plan(self, method: MethodMemory, planner: MemoryPlanner) -> MethodPlan:
        apart = {index for (node, _), index in method.values.items() if node.target == torch.ops.aten.add.Tensor}
        assert apart
        lifetimes = tuple(replace(one, memory_id=3) if one.id in apart else one for one in method.lifetimes)
        return MethodPlan(lifetimes, planner(lifetimes, self.alignment))


def test_planning_that_sees_the_graph_is_what_the_file_says(lower_model) -> None:
    plan = plan_of(lower_model(Sum(), INPUTS, memory_planning_pass=SumsApart(naive)))
    memories = [t.allocation_info.memory_id for t in tensors(plan) if t.allocation_info is not None]
    assert sorted(memories) == [1, 1, 1, 3]
    assert plan.non_const_buffer_sizes == (0, 48, 0, 16)


class OnADevice(SumsApart):
    """And the memory is said to be a device's, whose tensors they are not."""

    def plan(self, method: MethodMemory, planner: MemoryPlanner) -> MethodPlan:
        return replace(super().plan(method, planner), devices=(NonConstBufferDevice(3, DeviceType.CUDA, 1),))


def test_a_device_gets_no_tensor_of_the_cpu(lower_model) -> None:
    with pytest.raises(PluginError, match=r"which lies on cpu:0, into memory 3, which is on cuda:1; keep the memories"):
        lower_model(Sum(), INPUTS, memory_planning_pass=OnADevice(naive))


def everything_at_zero(lifetimes: Any, alignment: int) -> Plan:
    return Plan(tuple(0 for _ in lifetimes), (0, 1024), 0)


def test_overlap_is_refused_unless_allowed(lower_model) -> None:
    with pytest.raises(PluginError, match="are both alive at step"):
        lower_model(Sum(), INPUTS, memory_planning_pass=MemoryPlanningPass(everything_at_zero))
    allowed = MemoryPlanningPass(everything_at_zero, allow_lifetime_and_storage_overlap=True)
    plan = plan_of(lower_model(Sum(), INPUTS, memory_planning_pass=allowed))
    assert {t.allocation_info.memory_offset for t in tensors(plan) if t.allocation_info is not None} == {0}


class Forgetful(MemoryPlanningPass):
    def plan(self, method: MethodMemory, planner: MemoryPlanner) -> MethodPlan:
        return MethodPlan(method.lifetimes[1:], planner(method.lifetimes[1:], self.alignment))


def test_a_tensor_left_out_is_refused(lower_model) -> None:
    with pytest.raises(PluginError, match="it has other tensors than were asked for"):
        lower_model(Sum(), INPUTS, memory_planning_pass=Forgetful())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"memory_planning_pass": "greedy"},
            "memory_planning_pass is str; it takes a delegraph.aot.MemoryPlanningPass",
        ),
        ({"memory_planning_pass": {"forwrad": MemoryPlanningPass()}}, "an entry for 'forwrad'.*did you mean"),
        (
            {"memory_planning_pass": MemoryPlanningPass(), "alloc_graph_input": False},
            "both memory_planning_pass and alloc_graph_input; say it once",
        ),
        (
            {"memory_planning_pass": MemoryPlanningPass(), "memory_planner": "naive"},
            r"MemoryPlanningPass\(memory_planning_algo=…\)",
        ),
        ({"memory_planning_pass": MemoryPlanningPass(3)}, "memory_planner is int"),  # type: ignore[arg-type]
        ({"memory_planning_pass": MemoryPlanningPass(alignment=12)}, "alignment is 12 bytes; it is a power of two"),
        (
            {"memory_planning_pass": MemoryPlanningPass(alloc_mutable_buffers=False, share_mutable_buffers=True)},
            "so it needs alloc_mutable_buffers=True",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(lower_model, config: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=f"(?i){message}"):
        lower_model(Sum(), INPUTS, **config)


def test_names_of_mutable_buffers(lower_model) -> None:
    def names(**config: Any) -> list[str | None]:
        plan = plan_of(lower_model(State(), (torch.randn(4),), **config))
        infos = [tensor.extra_tensor_info for tensor in tensors(plan)]
        return [info.fully_qualified_name for info in infos if info is not None]

    assert names() == ["state"]
    assert names(emit_mutable_buffer_names=False) == []
    assert names(emit_mutable_buffer_names=False, alloc_mutable_buffers=False) == ["state"]


def test_weights_that_are_trained_go_to_a_file() -> None:
    from torch.export.experimental import _export_forward_backward

    from delegraph.aot import to_edge

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("scale", torch.tensor([2.0, 3.0]))

        def forward(self, x, label):
            return nn.functional.cross_entropy(self.linear(x) * self.scale, label)

    joint = _export_forward_backward(
        torch.export.export(Loss(), (torch.randn(1, 3), torch.zeros(1, dtype=torch.int64)))
    )
    config = ExecutorchBackendConfig(external_mutable_weights=True, check_kernels=False)
    manager = to_edge(joint).to_executorch(config)
    assert {name: set(file.named_data) for name, file in manager.tensor_data.items()} == {
        "_default_external_constant": {"linear.weight", "linear.bias"}
    }


class Reader(nn.Module):
    """A buffer that one method changes and another only reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x):
        return self.state * x


def test_a_method_that_only_reads_a_shared_buffer_sees_its_changes(lower_model) -> None:
    methods = {"change": State(), "read": Reader()}
    manager = lower_model(methods, (torch.ones(4),), share_mutable_buffers=True)
    places = {
        name: [t.allocation_info for t in tensors(plan_of(manager, name)) if t.extra_tensor_info is not None]
        for name in methods
    }
    assert places["change"] == places["read"] != []
    apart = lower_model(methods, (torch.ones(4),))
    assert all(t.extra_tensor_info is None for t in tensors(plan_of(apart, "read")))


def test_weights_in_a_file_of_their_own_are_not_folded() -> None:
    from delegraph.aot import to_edge

    program = torch.export.export(nn.Linear(3, 2), (torch.randn(1, 3),))
    config = ExecutorchBackendConfig(external_constants=True, check_kernels=False)
    (file,) = to_edge(program).to_executorch(config).tensor_data.values()
    assert set(file.named_data) == {"weight", "bias"}
