"""Memory planning by code written for ExecuTorch: what it writes into specs is what the file says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from delegraph.errors import LoweringError, PluginError
from delegraph_executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from delegraph_executorch.exir.memory_planning import (
    MemoryAlgoResult,
    MemoryPlanningAlgorithmSuite,
    SpecAllocResult,
    Verifier,
    get_node_tensor_specs,
    greedy,
    naive,
)
from delegraph_executorch.exir.passes.memory_planning_pass import MemoryPlanningPass
from delegraph_executorch.exir.schema import ExecutionPlan, Tensor
from delegraph_executorch.exir.tensor import TensorSpec

pytestmark = pytest.mark.executorch

aten = torch.ops.aten


class Pools(nn.Module):
    def forward(self, a):
        b = a + a
        c = a * b
        d = c + b
        return c * d


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x):
        self.cache.add_(x)
        return (self.cache * 2).view(2, 2) + 1


def edge(model: nn.Module, *args: torch.Tensor) -> EdgeProgramManager:
    return to_edge(torch.export.export(model, args))


def finished(model: nn.Module, *args: torch.Tensor, **options: Any) -> ExecutorchProgramManager:
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(**options))
    return edge(model, *args).to_executorch(config)


def plan_of(manager: ExecutorchProgramManager) -> ExecutionPlan:
    return manager.executorch_program.execution_plan[0]


def places(manager: ExecutorchProgramManager) -> list[tuple[int, int]]:
    tensors = [value.val for value in plan_of(manager).values if isinstance(value.val, Tensor)]
    found = [tensor.allocation_info for tensor in tensors if tensor.allocation_info is not None]
    return [(place.memory_id, place.memory_offset) for place in found]


class SumsInMemory3(MemoryPlanningPass):
    """As backends with several memories do it: sets `spec.mem_id` by operator, then plans."""

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> Any:
        for node in graph_module.graph.nodes:
            if node.target == aten.add.out:
                node.meta["spec"].mem_id = 3
            elif node.op == "placeholder" or node.target == aten.mul.out:
                node.meta["spec"].mem_id = 1
        return super().run(graph_module, graph_signature)


@pytest.mark.parametrize(
    ("algorithm", "expected", "sizes"),
    [
        (naive, [(1, 0), (3, 0), (1, 4), (3, 4), (1, 8)], [0, 12, 0, 8]),
        (greedy, [(1, 0), (3, 0), (1, 4), (3, 4), (1, 0)], [0, 8, 0, 8]),
    ],
)
def test_custom_pools(algorithm: Any, expected: list[tuple[int, int]], sizes: list[int]) -> None:
    """The figures are those of ExecuTorch's own test of it (`exir/tests/test_memory_planning.py`)."""
    planning = SumsInMemory3(MemoryPlanningAlgorithmSuite([algorithm]), alignment=1)
    manager = edge(Pools(), torch.ones(1)).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    assert [place[0] for place in places(manager)] == [place[0] for place in expected]
    assert sorted(places(manager)) == sorted(expected) or algorithm is greedy
    assert plan_of(manager).non_const_buffer_sizes == sizes
    assert manager.exported_program().graph_module.meta["non_const_buffer_sizes"] == sizes


def backwards(
    alignment: int, specs: list[TensorSpec], graph_module: GraphModule, graph_signature: Any, extra_padding: int = 0
) -> MemoryAlgoResult:
    """An algorithm of one's own: the last tensor first."""
    found, end = {}, 0
    for index, spec in enumerate(reversed(list(specs))):
        found[spec] = SpecAllocResult(1, index, end)
        end += spec.realign(alignment)
    return MemoryAlgoResult(found, [0, end])


def test_an_algorithm_of_ones_own_decides() -> None:
    manager = finished(Pools(), torch.ones(4), memory_planning_algo=MemoryPlanningAlgorithmSuite([backwards]))
    plan = plan_of(manager)
    first, last = plan.values[plan.inputs[0]].val, plan.values[plan.outputs[0]].val
    assert isinstance(first, Tensor) and isinstance(last, Tensor)
    assert first.allocation_info is not None and last.allocation_info is not None
    assert (first.allocation_info.memory_offset, last.allocation_info.memory_offset) == (64, 0)


@pytest.mark.parametrize("algorithm", [naive, greedy, backwards])
@pytest.mark.parametrize("planning", [MemoryPlanningPass, SumsInMemory3])
def test_an_algorithm_may_be_given_bare(planning: type[MemoryPlanningPass], algorithm: Any) -> None:
    """As ExecuTorch's documentation gives it (`compiler-memory-planning.md`)."""
    bare, suite = (
        edge(Pools(), torch.ones(4)).to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=planning(memory_planning_algo=given))
        )
        for given in (algorithm, MemoryPlanningAlgorithmSuite([algorithm]))
    )
    assert places(bare) == places(suite)
    assert plan_of(bare).non_const_buffer_sizes == plan_of(suite).non_const_buffer_sizes


def on_one_place(
    alignment: int, specs: list[TensorSpec], graph_module: GraphModule, graph_signature: Any, extra_padding: int = 0
) -> MemoryAlgoResult:
    return MemoryAlgoResult({spec: SpecAllocResult(1, 0, 0) for spec in specs}, [0, 64])


def test_an_unsound_plan_is_refused_unless_it_is_allowed() -> None:
    suite = MemoryPlanningAlgorithmSuite([on_one_place])
    with pytest.raises(PluginError, match="both alive"):
        finished(Pools(), torch.ones(4), memory_planning_algo=suite)
    allowed = finished(Pools(), torch.ones(4), memory_planning_algo=suite, allow_lifetime_and_storage_overlap=True)
    assert set(places(allowed)) == {(1, 0)}


def test_states_and_views_are_seen_as_they_are() -> None:
    manager = finished(Cache(), torch.ones(4), memory_planning_algo=MemoryPlanningAlgorithmSuite([backwards]))
    module = manager.exported_program().graph_module
    Verifier(module, True, True, True, manager.exported_program().graph_signature).verify_storage_reuse()
    by_target = {str(node.target): node for node in module.graph.nodes}
    cache = next(node for node in module.graph.nodes if node.op == "placeholder" and "cache" in node.name)
    assert cache.meta["spec"].lifetime[1] is not None or cache.meta["spec"].mem_offset is not None
    assert any("copy_" in target for target in by_target)


def test_options_alone_leave_planning_to_delegraph() -> None:
    manager = finished(Pools(), torch.ones(4), alloc_graph_input=False)
    plan = plan_of(manager)
    given = plan.values[plan.inputs[0]].val
    assert isinstance(given, Tensor) and given.allocation_info is None
    specs = [spec for node in manager.exported_program().graph.nodes for spec in get_node_tensor_specs(node)]
    assert {(s.mem_id, s.mem_offset) for s in specs if s.mem_id is not None} == set(places(manager))


def test_sharing_needs_planned_buffers() -> None:
    with pytest.raises(ValueError, match="it needs alloc_mutable_buffers=True"):
        MemoryPlanningPass(alloc_mutable_buffers=False, share_mutable_buffers=True)


def spec_of(size: int, start: int, end: int) -> TensorSpec:
    spec = TensorSpec.from_tensor(torch.empty(size, dtype=torch.uint8))
    spec.lifetime, spec.alignment = [start, end], 1
    return spec


def test_inplace_base_is_the_name_of_1_4() -> None:
    base, spec = spec_of(8, 0, 1), spec_of(4, 0, 1)
    spec.inplace_base = base
    assert (spec.storage_base, spec.inplace_base) == (base, base)
    spec.storage_base_offset = 4
    with pytest.raises(LoweringError, match="at offset 0, for which storage_base_offset is 0; it is 4"):
        _ = spec.inplace_base
    with pytest.raises(LoweringError, match="read and set storage_base"):
        spec.inplace_base = None
