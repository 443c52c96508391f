"""A delegate call in eager mode, under fake tensors, under tracing and in export."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import Dim, export
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from delegraph.aot.delegation.lowered_module import (
    LoweredBackendModule,
    call_delegate,
    get_lowered_module,
    is_delegate_call,
)


class Affine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return y, y.relu()


X = torch.randn(2, 4)


@pytest.fixture
def lowered() -> LoweredBackendModule:
    program = export(Affine(), (X,), dynamic_shapes=({0: Dim("n", max=16)},)).run_decompositions()
    return LoweredBackendModule(program, "B", b"blob", [])


def reference(lowered: LoweredBackendModule, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return tuple(lowered.original_module.module()(x))


def test_eager_gives_a_tuple_of_what_the_program_gives(lowered: LoweredBackendModule) -> None:
    results = lowered(X)
    assert isinstance(results, tuple)
    torch.testing.assert_close(results, reference(lowered, X))


def test_the_weights_are_no_parameters_of_the_module(lowered: LoweredBackendModule) -> None:
    assert list(lowered.parameters()) == []
    assert lowered.state_dict() == {}


def test_a_call_without_tensors(lowered: LoweredBackendModule) -> None:
    class Full(torch.nn.Module):
        def forward(self, n: int) -> torch.Tensor:
            return torch.full((2,), 3.0) * n

    constant = LoweredBackendModule(export(Full(), (5,)).run_decompositions(), "B", b"", [])
    assert call_delegate(constant, 5).tolist() == [15, 15]


def test_fake_tensors_give_fake_tensors_of_the_inputs_shape(lowered: LoweredBackendModule) -> None:
    with FakeTensorMode() as mode:
        linear, relu = call_delegate(lowered, mode.from_tensor(torch.empty(7, 4)))
    assert isinstance(linear, FakeTensor)
    assert (linear.shape, relu.shape) == ((7, 3), (7, 3))


def test_tracing_makes_one_call_of_the_same_module(lowered: LoweredBackendModule) -> None:
    traced = make_fx(lambda x: call_delegate(lowered, call_delegate(lowered, x)[0] @ torch.ones(3, 4))[1])(X)
    calls = [node for node in traced.graph.nodes if is_delegate_call(node)]
    assert [get_lowered_module(traced, call) for call in calls] == [lowered, lowered]
    expected = reference(lowered, reference(lowered, X)[0] @ torch.ones(3, 4))[1]
    torch.testing.assert_close(traced(X), expected)


def test_export_and_decompose_keep_the_call(lowered: LoweredBackendModule) -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.delegate = lowered

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(self.delegate(x)[1])

    program = export(Outer(), (X,), dynamic_shapes=({0: Dim("n", max=16)},)).run_decompositions()
    assert sum(is_delegate_call(node) for node in program.graph.nodes) == 1
    assert isinstance(program.graph_signature, ExportGraphSignature)
    other = torch.randn(5, 4)
    torch.testing.assert_close(program.module()(other), torch.sigmoid(reference(lowered, other)[1]))


def test_a_copied_graph_refers_to_a_copy_with_the_same_blob_and_weights(lowered: LoweredBackendModule) -> None:
    traced = make_fx(lambda x: call_delegate(lowered, x)[0])(X)
    copied = copy.deepcopy(traced)
    assert isinstance(copied, GraphModule)
    [call] = [node for node in copied.graph.nodes if is_delegate_call(node)]
    other = get_lowered_module(copied, call)
    assert (other.backend_id, other.processed_bytes) == ("B", b"blob")
    assert other.original_module.state_dict["linear.weight"] is lowered.original_module.state_dict["linear.weight"]


def test_the_operator_is_the_one_that_torch_export_knows() -> None:
    assert torch.ops.higher_order.executorch_call_delegate is call_delegate
