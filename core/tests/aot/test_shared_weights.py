"""A weight that several methods have is stored once, by a backend that does not build a store by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram, export

import delegraph
from delegraph.aot import BackendDetails, CompileSpec, PreprocessResult, SharedWeights
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.contract import CONTRACT_KEY
from delegraph.program.debug_data import DEBUG_DATA_KEY
from delegraph.runtime import BackendInterface
from delegraph_partitioners import OperatorsPartitioner


class Shares(BackendDetails):
    """A blob is the key of the weight of its one linear."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        raise AssertionError("partitions are compiled together")

    @classmethod
    def preprocess_multimethod(
        cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: Any
    ) -> dict[str, list[PreprocessResult]]:
        shared = SharedWeights("Shares", edge_programs)
        return {
            method: [
                PreprocessResult(
                    shared.keys(program).get("p_linear_weight", "").encode(), data_store_output=shared.store(program)
                )
                for program in programs
            ]
            for method, programs in edge_programs.items()
        }


class Runs(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        weight = np.frombuffer(context.named_data[bytes(processed).decode()], np.float32)
        return weight.reshape(64, 64)

    def execute(self, context: Any, handle: Any, args: Sequence[Any]) -> None:
        x, out = args
        np.matmul(x, handle.T, out=out)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


def plugins() -> PluginRegistry:
    registry = PluginRegistry.discover()
    registry.register("lowerings", "Shares", Shares)
    registry.register("backends", "Shares", Runs())
    return registry


def lowered(methods: Mapping[str, ExportedProgram], registry: PluginRegistry) -> delegraph.Lowered:
    takes = OperatorsPartitioner("Shares", ["aten::linear"], keep_whole=[torch.ops.aten.linear.default])
    return delegraph.lower(methods, backends=[takes], plugins=registry)


def test_two_methods_that_share_a_linear_store_it_once() -> None:
    model, registry = Net(), plugins()
    one, many = torch.randn(1, 64), torch.randn(5, 64)
    both = lowered({"decode": export(model, (one,)), "prefill": export(model, (many,))}, registry)
    own = (CONTRACT_KEY, DEBUG_DATA_KEY)
    [named] = [data for key, data in both.program.executorch_program.named_data.items() if key not in own]
    assert len(named.data) == 64 * 64 * 4
    assert len(bytes(both)) < 2 * 64 * 64 * 4
    run = delegraph.load(bytes(both), method="decode", plugins=registry)
    torch.testing.assert_close(torch.from_numpy(run(one.numpy())), model(one).detach())
    run = delegraph.load(bytes(both), method="prefill", plugins=registry)
    torch.testing.assert_close(torch.from_numpy(run(many.numpy())), model(many).detach())


def test_what_one_partition_alone_has_stays_with_it() -> None:
    programs = {"forward": [export(Net(), (torch.randn(1, 64),))], "other": [export(Net(), (torch.randn(2, 64),))]}
    shared = SharedWeights("Shares", programs)
    assert [shared.keys(program) for own in programs.values() for program in own] == [{}, {}]


def test_equal_copies_are_one_and_small_ones_stay() -> None:
    first, second = Net(), Net()
    second.load_state_dict(first.state_dict())
    programs = {name: [export(net, (torch.randn(1, 64),))] for name, net in (("a", first), ("b", second))}
    keys = [SharedWeights("Shares", programs).keys(own[0]) for own in programs.values()]
    assert keys[0] == keys[1] != {}
    small = SharedWeights("Shares", programs, minimum_nbytes=64 * 64 * 4 + 1)
    assert small.keys(programs["a"][0]) == {}
