"""A backend that somebody wrote for ExecuTorch, outside of its wheel: handed to `lower` as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import delegraph
from delegraph.errors import InvalidPartition, PreprocessError
from delegraph.program import deserialize_program

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

seen: dict[str, Any] = {}


@pytest.fixture(scope="module")
def partitioner_class() -> Any:
    from executorch.exir.backend.backend_details import BackendDetails, CompileSpec, PreprocessResult
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
    from executorch.exir.dialects._ops import ops as exir_ops

    class StrangersBackend(BackendDetails):
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: list[Any]) -> Any:
            calls = [node for node in edge_program.graph.nodes if node.op == "call_function"]
            seen["names"] = [node.target.__name__ for node in calls]
            seen["handles"] = [node.meta["debug_handle"] for node in calls]
            if any(node.target == exir_ops.edge.aten.cos.default for node in calls):
                raise ValueError("no cosine here")
            return PreprocessResult(b"+".join(spec.value for spec in compile_specs), {1: (2,)})

    class StrangersPartitioner(Partitioner):
        def __init__(self, operators: list[str]) -> None:
            super().__init__()
            self.operators = operators

        def partition(self, exported_program: Any) -> Any:
            edge = [exir_ops.edge.aten.gelu.default, exir_ops.edge.aten.cos.default, exir_ops.edge.aten.sigmoid.default]
            for node in exported_program.graph.nodes:
                if node.target in edge and node.target.__name__ in self.operators:
                    node.meta["delegation_tag"] = "mine"
            spec = DelegationSpec(StrangersBackend.__name__, [CompileSpec("a", b"1"), CompileSpec("b", b"2")])
            return PartitionResult(exported_program, {"mine": spec})

        def ops_to_not_decompose(self, ep: Any) -> Any:
            return [torch.ops.aten.gelu.default, torch.ops.aten.add_.Tensor, torch.ops.aten.t.default], None

    return StrangersPartitioner


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(x).t()
        y += 1
        return y.cos().sigmoid()


def test_its_class_is_found_and_sees_its_own_dialect(partitioner_class: Any) -> None:
    partitioner = partitioner_class(["aten.gelu.default"])
    lowered = delegraph.lower(Model(), (torch.randn(2, 3),), backends=[partitioner])
    (entry,) = lowered.report.methods["forward"].delegates
    assert (entry.backend, entry.partitioner) == ("StrangersBackend", "StrangersPartitioner")
    assert seen["names"] == ["aten.gelu.default"]
    assert all(isinstance(handle, int) for handle in seen["handles"])
    program = deserialize_program(bytes(lowered))
    assert [bytes(blob) for blob in program.delegate_data] == [b"1+2"]
    specs = program.execution_plan[0].delegates[0].compile_specs
    assert [(spec.key, bytes(spec.value)) for spec in specs[:2]] == [("a", b"1"), ("b", b"2")]


def test_an_error_of_its_preprocess_names_the_partition(partitioner_class: Any) -> None:
    with pytest.raises(PreprocessError, match=r"(?s)StrangersBackend.*ValueError: no cosine here.*'mine'.*cos"):
        delegraph.lower(Model(), (torch.randn(2, 3),), backends=[partitioner_class(["aten.cos.default"])])


def test_a_cycle_is_refused_as_everybodys(partitioner_class: Any) -> None:
    partitioner = partitioner_class(["aten.gelu.default", "aten.sigmoid.default"])
    with pytest.raises(
        InvalidPartition, match=r"partitioner StrangersPartitioner.*dependency cycle through tag 'mine'"
    ):
        delegraph.lower(Model(), (torch.randn(2, 3),), backends=[partitioner])


def test_adding_ours_behind_it(partitioner_class: Any) -> None:
    backends = [partitioner_class(["aten.gelu.default"]), "cpu"]
    report = delegraph.lower(Model(), (torch.randn(2, 3),), backends=backends).report.methods["forward"]
    assert {entry.backend for entry in report.delegates} == {"StrangersBackend", "CpuBackend"}
    assert not report.leftovers
