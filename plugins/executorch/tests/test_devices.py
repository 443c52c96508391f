"""Devices under ExecuTorch's names: specs of graphs, and planning by algorithms that only know specs."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from delegraph_executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge
from delegraph_executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from delegraph_executorch.exir.backend.compile_spec_schema import CompileSpec
from delegraph_executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from delegraph_executorch.exir.passes.memory_planning_pass import MemoryPlanningPass
from delegraph_executorch.exir.passes.propagate_device_pass import PropagateDevicePass
from delegraph_executorch.exir.passes.spec_prop_pass import SpecPropPass
from delegraph_executorch.exir.schema import DeviceType, ExecutionPlan, Tensor
from delegraph_executorch.exir.tensor import TensorSpec

OF_THE_WHEEL = pytest.mark.skipif(find_spec("executorch") is None, reason="the algorithms are the wheel's own")


class DeviceSums(BackendDetails):
    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        return PreprocessResult(b"sum")


class SumsOnCuda1(Partitioner):
    """Every addition a delegate for cuda:1."""

    def partition(self, exported_program: Any) -> PartitionResult:
        tags = {}
        for i, node in enumerate(n for n in exported_program.graph.nodes if n.target == torch.ops.aten.add.Tensor):
            node.meta["delegation_tag"] = f"tag{i}"
            tags[f"tag{i}"] = DelegationSpec("DeviceSums", [CompileSpec("target_device", b"cuda:1")])
        return PartitionResult(exported_program, tags)


class Model(nn.Module):
    def forward(self, a, b):
        return ((a + b) * a) + b


def lowered() -> EdgeProgramManager:
    manager = to_edge(torch.export.export(Model(), (torch.ones(4), torch.ones(4))))
    return manager.to_backend(SumsOnCuda1())


def devices_by_node(module: GraphModule) -> dict[str, tuple[DeviceType, int]]:
    """Of each node that has one spec."""
    specs = {node.name: node.meta.get("spec") for node in module.graph.nodes}
    return {name: (spec.device, spec.device_index) for name, spec in specs.items() if isinstance(spec, TensorSpec)}


@pytest.mark.parametrize("copies", [True, False], ids=["with copies", "tags alone"])
def test_the_pass_says_in_specs_where_tensors_lie(copies: bool) -> None:
    module = SpecPropPass()(lowered().exported_program().graph_module).graph_module
    PropagateDevicePass(enable_non_cpu_memory_planning=copies)(module)
    on_device = {name for name, device in devices_by_node(module).items() if device == (DeviceType.CUDA, 1)}
    copied = [node for node in module.graph.nodes if "h2d_copy" in str(node.target)]
    assert len(copied) == (4 if copies else 0)
    assert {node.name for node in copied} <= on_device
    assert on_device.isdisjoint({"a", "b"}) is copies
    assert all(spec.mem_id is None for node in copied for spec in [node.meta["spec"]])


def algorithms() -> dict[str, Any]:
    """ExecuTorch's, and one that the core does not know; the wheel has them."""
    planning = import_module("delegraph_executorch.exir.memory_planning")
    suite = planning.MemoryPlanningAlgorithmSuite
    return {
        "greedy": suite([planning.greedy]),
        "naive": suite([planning.naive]),
        "own": suite([partial(planning.naive)]),
    }


@pytest.mark.parametrize(
    "algorithm", [None, *(pytest.param(name, marks=OF_THE_WHEEL) for name in ("greedy", "naive", "own"))]
)
def test_each_device_is_planned_by_itself(algorithm: str | None) -> None:
    planning = MemoryPlanningPass(algorithms()[algorithm] if algorithm else None)
    manager = lowered().to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    plan: ExecutionPlan = manager.executorch_program.execution_plan[0]
    (device,) = plan.non_const_buffer_device or []
    assert (device.buffer_idx, device.device_type, device.device_index) == (2, DeviceType.CUDA, 1)
    tensors = [value.val for value in plan.values if isinstance(value.val, Tensor)]
    memories = {t.allocation_info.memory_id for t in tensors if t.extra_tensor_info and t.allocation_info}
    assert memories == {2}
    assert plan.non_const_buffer_sizes[2] >= 3 * 16
    meta = manager.exported_program().graph_module.meta
    assert [one.buffer_idx for one in meta["non_const_buffer_device"]] == [2]
    assert (DeviceType.CUDA, 1) in devices_by_node(manager.exported_program().graph_module).values()


@OF_THE_WHEEL
def test_an_algorithm_of_ones_own_without_memory_on_devices() -> None:
    planning = MemoryPlanningPass(algorithms()["own"])
    config = ExecutorchBackendConfig(memory_planning_pass=planning, enable_non_cpu_memory_planning=False)
    plan = lowered().to_executorch(config).executorch_program.execution_plan[0]
    assert plan.non_const_buffer_device is None
    assert len(plan.non_const_buffer_sizes) == 2
