"""`exir_ops`: operators of edge programs under ExecuTorch's names."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from delegraph.aot import (
    BackendOpOverload,
    EdgeOpOverload,
    EdgeOpOverloadPacket,
    exir_ops,
    to_edge,
)
from delegraph.errors import MissingOutVariant

EDGE_ADD = exir_ops.edge.aten.add.Tensor
TORCH_ADD = torch.ops.aten.add.Tensor


class Small(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x + x, lambda x: x * x, (x,))
        return chosen.relu()


@pytest.fixture(scope="module")
def edge() -> torch.export.ExportedProgram:
    return to_edge(torch.export.export(Small(), (torch.ones(2),))).exported_program()


def test_calls_of_an_edge_program_are_edge_operators_under_executorchs_names(
    edge: torch.export.ExportedProgram,
) -> None:
    modules = [module for module in edge.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    operators = [n.target for m in modules for n in m.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    assert all(isinstance(op, EdgeOpOverload) for op in operators)
    assert {op.__name__ for op in operators} >= {"aten.add.Tensor", "aten.mul.Tensor", "aten.relu.default"}
    assert "executorch_exir_dialects_edge__ops_aten_relu_default" in edge.graph_module.code
    assert torch.equal(edge.module()(torch.ones(2)), torch.full((2,), 2.0))


def test_edge_nodes_are_named_after_their_operators(edge: torch.export.ExportedProgram) -> None:
    modules = [module for module in edge.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    names = {n.name for m in modules for n in m.graph.nodes if isinstance(n.target, EdgeOpOverload)}
    assert names >= {"aten_add_tensor", "aten_mul_tensor", "aten_relu_default"}
    assert list(edge.graph_signature.user_outputs) == ["aten_relu_default"]
    again = to_edge(edge).exported_program()
    assert [node.name for node in again.graph.nodes] == [node.name for node in edge.graph.nodes]


def test_an_edge_operator_equals_torchs_own_in_any_table() -> None:
    assert EDGE_ADD == TORCH_ADD and TORCH_ADD == EDGE_ADD and EDGE_ADD is not TORCH_ADD
    assert {TORCH_ADD: 1}[EDGE_ADD] == 1 and {EDGE_ADD: 1}[TORCH_ADD] == 1
    assert torch.ops.aten.add.Scalar != EDGE_ADD and exir_ops.edge.aten.add.Scalar != EDGE_ADD
    assert EDGE_ADD is exir_ops.edge.aten.add.Tensor
    assert EDGE_ADD is pickle.loads(pickle.dumps(EDGE_ADD)) and EDGE_ADD is copy.deepcopy(EDGE_ADD)


def test_an_edge_operator_tells_of_itself_what_torchs_does_and_its_own_name() -> None:
    assert (EDGE_ADD.__name__, str(EDGE_ADD), EDGE_ADD.name()) == (
        "aten.add.Tensor",
        "aten.add.Tensor",
        TORCH_ADD.name(),
    )
    assert repr(EDGE_ADD).startswith("<EdgeOpOverload: aten.add.Tensor>: schema = aten::add.Tensor(Tensor self")
    assert EDGE_ADD._op is TORCH_ADD and EDGE_ADD.namespace == "aten" and EDGE_ADD.tags == TORCH_ADD.tags
    assert EDGE_ADD._schema.name == "aten::add" and EDGE_ADD.overloadpacket is torch.ops.aten.add
    assert torch.equal(EDGE_ADD(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


def test_the_out_variant_of_an_edge_operator() -> None:
    assert EDGE_ADD.to_out_variant() is torch.ops.aten.add.out
    assert exir_ops.edge.aten.add.out.to_out_variant() is torch.ops.aten.add.out
    assert exir_ops.edge.aten.topk.default.to_out_variant() is torch.ops.aten.topk.values
    with torch.library._scoped_library("edge_ops_test", "DEF") as library:
        library.define("bare(Tensor x) -> Tensor")
        with pytest.raises(MissingOutVariant, match=r"edge_ops_test::bare.* has no out variant"):
            exir_ops.edge.edge_ops_test.bare.default.to_out_variant()
        with pytest.raises(RuntimeError):  # what code written for ExecuTorch catches
            exir_ops.edge.edge_ops_test.bare.default.to_out_variant()


def test_a_packet_holds_all_overloads() -> None:
    packet = exir_ops.edge.aten.add
    assert isinstance(packet, EdgeOpOverloadPacket) and packet == torch.ops.aten.add
    assert packet.overloads() == torch.ops.aten.add.overloads()  # type: ignore[no-untyped-call]
    assert str(packet) == "aten.add" and packet.__name__ == "aten.add"
    assert repr(packet) == "<EdgeOpOverloadPacket(op='aten.add', parent_op='aten.add')>"
    assert torch.equal(packet(torch.ones(2), 1), torch.full((2,), 2.0))
    with pytest.raises(AttributeError, match="no overload name 'nothing'"):
        packet.nothing  # noqa: B018 - the access is what raises
    with pytest.raises(AttributeError, match="no_such_operator"):
        exir_ops.edge.aten.no_such_operator  # noqa: B018


def test_backend_operators_are_those_that_passes_add() -> None:
    with torch.library._scoped_library("edge_ops_backend", "DEF") as library:
        library.define("fused(Tensor x) -> Tensor")
        with pytest.raises(AssertionError, match="nothing tells the shapes of its results"):
            exir_ops.backend.edge_ops_backend.fused.default  # noqa: B018
        library.impl("fused", torch.relu, "CompositeExplicitAutograd")
        fused = exir_ops.backend.edge_ops_backend.fused.default
        assert isinstance(fused, BackendOpOverload) and fused._equivalent_callable is None
        assert torch.equal(fused(torch.tensor([-1.0])), torch.zeros(1))
    with pytest.raises(RuntimeError, match="aten op library does not belong to backend ops"):
        exir_ops.backend.aten  # noqa: B018


def test_operators_with_two_underscores_have_edge_names() -> None:
    assert exir_ops.edge.aten.__rshift__.Scalar == torch.ops.aten.__rshift__.Scalar
    for name in ("__file__", "__no_such__"):
        with pytest.raises(AttributeError):
            getattr(exir_ops.edge.aten, name)
