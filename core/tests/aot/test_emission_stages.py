"""Emission stage by stage: blobs are read by the last one only, and what can be refused is refused before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.lowered_module import LoweredBackendModule, with_blobs
from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.delegation.partition import TAG, DelegationSpec, Partitioner, PartitionResult
from delegraph.aot.emission import stages
from delegraph.aot.emission.assemble import assemble
from delegraph.aot.emission.planners import greedy
from delegraph.aot.lower import EdgeProgramManager, lower, to_edge
from delegraph.errors import InvalidArgument, LoweringError, PluginError, PluginNotFound
from delegraph.interfaces import BackendDetails, Lifetime, Plan, PreprocessResult
from delegraph.plugins.registry import PluginRegistry

ARGS = (torch.randn(4),)


class Negate(BackendDetails):
    """Its blob is the text "negate"."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        return PreprocessResult(b"negate", {0: [1]})


class TakesNegations(Partitioner):
    def __init__(self, backend: str = "Negate") -> None:
        self.backend = backend

    def partition(self, exported_program: Any) -> PartitionResult:
        tags = {}
        for node in exported_program.graph.nodes:
            if node.target == torch.ops.aten.neg.default:
                node.meta[TAG] = node.name
                tags[node.name] = DelegationSpec(self.backend)
        return PartitionResult(exported_program, tags)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (-x * self.weight).max(0)[0] - (-self.weight)


def registry(**backends: type[BackendDetails]) -> PluginRegistry:
    plugins = PluginRegistry()
    plugins.register("memory_planners", "greedy", greedy)
    for name, backend in (backends or {"Negate": Negate}).items():
        plugins.register("lowerings", name, backend)
    return plugins


def edge(plugins: PluginRegistry | None = None) -> EdgeProgramManager:
    return to_edge(torch.export.export(Model(), ARGS), plugins=plugins or registry())


def test_blobs_are_read_when_the_program_is_assembled_and_not_before() -> None:
    lowered = edge().to_backend(TakesNegations())
    program = lowered.exported_program()
    delegates = [module for name, module in program.graph_module.named_children() if name.startswith("lowered_module")]
    compiled = {LoweredBackendModule(d.original_module, d.backend_id, b"", []): d for d in delegates}
    program = with_blobs(program, {delegate: empty for empty, delegate in compiled.items()})
    config = ExecutorchBackendConfig(check_kernels=False, emit_debug_data=False)  # which has the report
    request = stages.make_request(["forward"], config, {}, registry())
    methods = stages.prepare({"forward": program}, request)
    stages.check_emittable(methods)
    planned = stages.plan(stages.emit(methods, request), request)
    manager = assemble(planned, config, compiled)
    assert len(delegates) == 2
    assert [bytes(blob) for blob in manager.executorch_program.delegate_data] == [b"negate", b"negate"]
    assert [info["delegate_map"] for info in manager.delegate_map["forward"].values()] == [{0: [1]}, {0: [1]}]
    assert manager.buffer == lowered.to_executorch(config).buffer


# ---- refused before the backends compile ------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"kernels": "portable"}, LoweringError, r"kernels is 'portable', but it takes a list: write \['portable'\]"),
        (
            {"kernels": ["portabel"], "check_kernels": True},
            PluginNotFound,
            "no installed distribution offers 'portabel'",
        ),
        ({"kernels": ["a", "a"]}, LoweringError, r"kernels names 'a' twice"),
        ({"passes": "fold"}, LoweringError, r"passes is 'fold', but it takes a list"),
        ({"passes": {"forwrd": []}}, LoweringError, r"'forwrd', but the methods are forward; did you mean 'forward'\?"),
        ({"passes": {"forward": print}}, LoweringError, r"passes\['forward'\] is <builtin_function_or_method>, but it"),
        ({"passes": print}, LoweringError, r"passes is <builtin_function_or_method>, but it takes a list"),
        ({"memory_planner": "gready"}, PluginNotFound, "did you mean 'greedy'"),
        ({"memory_planner": 3}, LoweringError, "memory_planner is int; it takes the name of an installed planner or"),
        ({"segment_alignment": 3}, InvalidArgument, "segment_alignment is 3; an alignment is a power of two"),
    ],
)
def test_settings_are_looked_up_before_anything_else(config: Any, error: type[Exception], message: str) -> None:
    class NeverReached(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("the model was looked at")

    options = ExecutorchBackendConfig(**{"check_kernels": False, **config})
    with pytest.raises(error, match=message):
        lower(NeverReached(), ARGS, config=options, plugins=registry())


def with_memory_id(target: Any, memory_id: Any) -> Callable[[torch.fx.GraphModule], None]:
    def assign(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target == target or (target == "x" and node.name == "x"):
                node.meta["memory_id"] = memory_id

    return assign


@pytest.mark.parametrize(
    ("target", "memory_id", "message"),
    [
        (torch.ops.aten.mul.Tensor, -3, r"is -3: -3 is out of range.*(?s:.)*node: aten_mul_tensor\n  at: .*weight\)"),
        (torch.ops.aten.mul.Tensor, 0, r"is 0: 0 is out of range. A memory id is a whole number from 1 to"),
        (torch.ops.aten.mul.Tensor, 2**16, r"is 65536: 65536 is out of range"),
        (torch.ops.aten.mul.Tensor, True, r"is True: bool is not a whole number"),
        (torch.ops.aten.mul.Tensor, "1", r"is '1': str is not a whole number"),
        (torch.ops.aten.mul.Tensor, [1], r"is \[1\]: a list, but this node gives one value"),
        (torch.ops.aten.max.dim, [1], r"is \[1\]: 1 ids for 2 results"),
        (torch.ops.aten.max.dim, [1, 0], r"is \[1, 0\]: 0 is out of range"),
        ("x", -1, r"is -1: -1 is out of range.*(?s:.)*node: x"),
    ],
)
def test_memory_ids_that_name_no_memory(target: Any, memory_id: Any, message: str) -> None:
    config = ExecutorchBackendConfig(check_kernels=False, passes=[with_memory_id(target, memory_id)])
    with pytest.raises(LoweringError, match=rf"meta\['memory_id'\] {message}"):
        edge().to_executorch(config)


def test_memory_ids_that_name_a_memory_each(lower_model: Any) -> None:
    passes = [with_memory_id(torch.ops.aten.max.dim, [3, 2]), with_memory_id("x", 2)]
    (plan,) = lower_model(Model(), ARGS, passes=passes).executorch_program.execution_plan
    assert [size > 0 for size in plan.non_const_buffer_sizes] == [False, True, True, True]


def test_an_unsound_plan_is_refused() -> None:
    def all_at_zero(lifetimes: list[Lifetime], alignment: int) -> Plan:
        return Plan((0,) * len(lifetimes), (0, 1 << 20), 0)

    with pytest.raises(PluginError, match="the memory planner's plan is unsound"):
        edge().to_executorch(ExecutorchBackendConfig(check_kernels=False, memory_planner=all_at_zero))


# ---- refused when the blobs come in -----------------------------------------------------------------


def test_delegates_that_store_different_data_under_one_key() -> None:
    class Clashing(BackendDetails):
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
            store = NamedDataStore()
            store.add_named_data("weights", str(edge_program.graph.output_node().args).encode())
            return PreprocessResult(b"", data_store_output=store.get_named_data_store_output())

    lowered = edge(registry(Negate=Clashing)).to_backend(TakesNegations())
    with pytest.raises(LoweringError, match=r"two delegates disagree, the second of backend 'Negate': named data"):
        lowered.to_executorch(ExecutorchBackendConfig(check_kernels=False))


def test_a_backends_external_data_may_not_replace_a_weight() -> None:
    class External(BackendDetails):
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
            store = NamedDataStore()
            store.add_named_data("weight", b"other", external_tag="model")
            return PreprocessResult(b"", data_store_output=store.get_named_data_store_output())

    lowered = edge(registry(Negate=External)).to_backend(TakesNegations())
    config = ExecutorchBackendConfig(check_kernels=False, external_constants=lambda node: "model")
    with pytest.raises(LoweringError, match=r"model\.ptd would have two entries 'weight'"):
        lowered.to_executorch(config)
