"""Lifetimes and places of a method's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from delegraph.aot.emission.planners import greedy, naive
from delegraph.errors import InvalidState, LoweringError, PluginError, PluginNotFound
from delegraph.interfaces import Lifetime, Plan
from delegraph.program.memory.memory_maps import memory_map
from delegraph.program.schema import AllocationDetails, ExecutionPlan, Tensor
from delegraph.runtime import Runtime


class Chain(nn.Module):
    def forward(self, x):
        return (x + 1).relu().exp()


class State(nn.Module):
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(size, dtype=torch.float32))

    def forward(self, x):
        self.state.add_(x)
        return self.state * 2


def plan_of(manager: Any, name: str = "forward") -> ExecutionPlan:
    return next(plan for plan in manager.executorch_program.execution_plan if plan.name == name)


def place(plan: ExecutionPlan, index: int) -> AllocationDetails | None:
    value = plan.values[index]
    assert isinstance(value, Tensor)
    return value.allocation_info


def recording(seen: list[Lifetime]) -> Any:
    def planner(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
        seen.extend(lifetimes)
        return greedy(lifetimes, alignment)

    return planner


def test_lifetimes_run_from_the_first_write_to_the_last_use(lower_model) -> None:
    seen: list[Lifetime] = []
    plan = plan_of(lower_model(Chain(), (torch.randn(4),), memory_planner=recording(seen)))
    spans = {lifetime.id: (lifetime.first, lifetime.last) for lifetime in seen}
    assert spans[plan.inputs[0]] == (-1, 0)
    assert spans[plan.outputs[0]] == (2, 3)
    assert sorted(spans.values()) == [(-1, 0), (0, 1), (1, 2), (2, 3)]


def test_planners_go_by_name(lower_model) -> None:
    assert lower_model(Chain(), (torch.randn(4),)).memory["forward"].planned_bytes == 32
    assert lower_model(Chain(), (torch.randn(4),), memory_planner="naive").memory["forward"].planned_bytes == 64
    assert lower_model(Chain(), (torch.randn(4),), memory_planner=naive).memory["forward"].planned_bytes == 64
    with pytest.raises(PluginNotFound, match="greddy"):
        lower_model(Chain(), (torch.randn(4),), memory_planner="greddy")


def test_an_unsound_planner_is_caught(lower_model) -> None:
    def all_at_zero(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
        return Plan((0,) * len(lifetimes), (0, 1024), 0)

    with pytest.raises(PluginError, match=r"method 'forward': the memory planner's plan is unsound: .* share bytes"):
        lower_model(Chain(), (torch.randn(4),), memory_planner=all_at_zero)


def test_inputs_and_outputs_may_be_given_at_run_time(lower_model) -> None:
    plan = plan_of(lower_model(Chain(), (torch.randn(4),), alloc_graph_input=False, alloc_graph_output=False))
    assert place(plan, plan.inputs[0]) is None
    assert place(plan, plan.outputs[0]) is None


def test_a_method_that_plans_nothing_has_a_memory_of_no_bytes(lower_model) -> None:
    given = {"alloc_graph_input": False, "alloc_graph_output": False}
    assert plan_of(lower_model(nn.ReLU(), (torch.randn(4),), **given)).non_const_buffer_sizes == (0, 0)


def test_a_static_view_shares_its_base_and_keeps_it_alive(lower_model) -> None:
    class Views(nn.Module):
        def forward(self, x):
            y = x + 1
            z = y.view(2, 2).unsqueeze(0)
            return (x * 3).relu() + z.sum()

    plan = plan_of(lower_model(Views(), (torch.randn(4),)))
    assert not any("view" in str(op) or "squeeze" in str(op) for op in plan.operators)
    by_shape = {v.sizes: v for v in plan.values if isinstance(v, Tensor)}
    assert by_shape[(2, 2)].allocation_info == by_shape[(1, 2, 2)].allocation_info
    kept = plan_of(lower_model(Views(), (torch.randn(4),), remove_view_copy=False))
    assert "aten::view_copy.out" in {str(op) for op in kept.operators}


def test_a_view_of_a_state_is_a_copy(lower_model) -> None:
    class Model(State):
        def forward(self, x):
            before = self.state.view(2, 2)
            self.state.add_(x)
            return before * 1, before

    plan = plan_of(lower_model(Model(), (torch.randn(4),)))
    assert "aten::view_copy.out" in {str(op) for op in plan.operators}


def test_a_state_has_its_name_its_first_value_and_a_place_of_its_own(lower_model) -> None:
    manager = lower_model(State(), (torch.randn(4),))
    plan, program = plan_of(manager), manager.executorch_program
    (state,) = [v for v in plan.values if isinstance(v, Tensor) and v.extra_tensor_info is not None]
    assert state.extra_tensor_info.fully_qualified_name == "state"
    assert bytes(program.mutable_data[state.data_buffer_idx]) == torch.arange(4.0).numpy().tobytes()
    others = [v for v in plan.values if isinstance(v, Tensor) and v is not state and v.allocation_info]
    assert all(v.allocation_info != state.allocation_info for v in others)


def test_a_state_of_zeros_takes_no_bytes_in_the_file(lower_model) -> None:
    model = State()
    model.state.zero_()
    assert lower_model(model, (torch.randn(4),)).executorch_program.mutable_data == ()


def test_states_may_be_given_at_run_time(lower_model) -> None:
    plan = plan_of(lower_model(State(), (torch.randn(4),), alloc_mutable_buffers=False))
    (state,) = [v for v in plan.values if isinstance(v, Tensor) and v.extra_tensor_info is not None]
    assert (state.allocation_info, state.data_buffer_idx) == (None, 0)


def test_a_state_that_nobody_has_set_is_not_computed_with(lower_model) -> None:
    model = State()
    manager = lower_model(model, (torch.randn(4),), alloc_mutable_buffers=False)
    method = Runtime.get().load_program(manager.buffer).load_method("forward")
    x = torch.ones(4)
    with pytest.raises(InvalidState, match=r"'state' holds at first.*alloc_mutable_buffers=False(?s:.*)get_attribute"):
        method.execute([x])
    method.get_attribute("state")[:] = 5
    model.state.fill_(5)
    for _ in range(2):
        torch.testing.assert_close(method.execute([x])[0], model(x))


def test_methods_share_states_in_a_memory_of_their_own(lower_model) -> None:
    manager = lower_model({"a": State(), "b": State()}, (torch.randn(4),), share_mutable_buffers=True)
    for name in ("a", "b"):
        plan = plan_of(manager, name)
        (state,) = [v for v in plan.values if isinstance(v, Tensor) and v.extra_tensor_info is not None]
        assert state.allocation_info == AllocationDetails(2, 0)
        assert plan.non_const_buffer_sizes[2] == 16


def test_states_of_one_name_and_two_sizes_cannot_be_shared(lower_model) -> None:
    class Other(State):
        def __init__(self) -> None:
            super().__init__(8)

        def forward(self, x):
            self.state[:4].add_(x)
            return self.state * 2

    with pytest.raises(LoweringError, match="buffer 'state' has 16 bytes in one method and 32 in another"):
        lower_model({"a": State(), "b": Other()}, (torch.randn(4),), share_mutable_buffers=True)


def test_a_pass_may_put_tensors_into_other_memories(lower_model) -> None:
    def relu_to_memory_3(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target == torch.ops.aten.relu.default:
                node.meta["memory_id"] = 3

    manager = lower_model(Chain(), (torch.randn(4),), passes=[relu_to_memory_3])
    assert manager.memory["forward"].buffer_sizes == (0, 32, 0, 16)
    ids = [v.allocation_info.memory_id for v in plan_of(manager).values if isinstance(v, Tensor)]
    assert sorted(ids) == [1, 1, 1, 3]


def test_a_value_that_a_loop_uses_lives_to_its_end(lower_model) -> None:
    """Memory of `y`, which every round reads, must not be taken by what a round computes after its last use in it."""
    from torch._higher_order_ops.map import map as torch_map

    class Loop(nn.Module):
        def forward(self, xs, y):
            y = y + 1
            return torch_map(lambda x, y: (x * y).exp().sin().cos(), xs, y)

    seen: list[Lifetime] = []
    manager = lower_model(Loop(), (torch.randn(3, 4), torch.randn(4)), memory_planner=recording(seen))
    instructions = plan_of(manager).chains[0].instructions
    jump = max(i for i, call in enumerate(instructions) if type(call).__name__ == "JumpFalseCall")
    spans = {lifetime.id: (lifetime.first, lifetime.last) for lifetime in seen}
    (y,) = [index for index, (first, _) in spans.items() if first == 0]
    assert spans[y][1] == jump
    stacked = plan_of(manager).outputs[0]
    assert spans[stacked][0] <= instructions[jump].destination_instruction


class Views(nn.Module):
    def forward(self, x):
        y = (x + 1).view(2, 2)
        return y.relu().sum() + y.exp()


class Loop(nn.Module):
    def forward(self, xs):
        from torch._higher_order_ops.map import map as torch_map

        y = xs.sum(0)
        return torch_map(lambda x, y: (x * y).exp().sin(), xs, y) + 1


@pytest.mark.parametrize(
    ("model", "shape"), [(Chain(), (4,)), (State(), (4,)), (Views(), (4,)), (Loop(), (3, 4))], ids=str
)
def test_a_file_tells_the_lifetimes_that_it_was_planned_by(lower_model, model: nn.Module, shape: Any) -> None:
    seen: list[Lifetime] = []
    manager = lower_model(model, (torch.ones(shape),), memory_planner=recording(seen))
    told = memory_map(plan_of(manager))
    assert {(one.value, one.nbytes, one.first, one.last, one.memory_id) for one in told.tensors} == {
        (one.id, one.nbytes, one.first, one.last, one.memory_id) for one in seen
    }
    (memory,) = told.memories
    assert (memory.planned_nbytes, memory.peak >= -1) == (manager.memory["forward"].planned_bytes, True)
    assert memory.lower_bound == sum(one.nbytes for one in told.tensors if one.at_peak)
