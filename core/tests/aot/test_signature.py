"""The resolved signature: of a whole program, of an edge program, and of a partition."""

from __future__ import annotations

import torch
from torch import nn
from torch.export.graph_signature import InputKind

from delegraph.aot import ResolvedSignature, to_edge


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("unread", torch.zeros(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        self.total.add_(x)
        y.mul_(2)
        return x * self.weight * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0]), n


def resolved() -> tuple[Model, ResolvedSignature]:
    model = Model()
    edge = to_edge(torch.export.export(model, (torch.ones(4), torch.ones(4), 3)))
    return model, ResolvedSignature.of(edge.exported_program())


def test_every_placeholder_has_its_meaning() -> None:
    model, signature = resolved()
    assert [node.name for node in signature.inputs] == ["x", "y", "n"]
    kinds = {held.name: held.kind for held in signature.constants.values()}
    assert kinds["weight"] is InputKind.PARAMETER
    assert kinds["scale"] is kinds["unread"] is InputKind.BUFFER
    assert list(kinds.values()).count(InputKind.CONSTANT_TENSOR) == 2  # what `mul_` multiplies by is one
    assert [held.name for held in signature.states.values()] == ["total"]
    assert signature.others == {}
    assert signature.weights["p_weight"].data_ptr() == model.weight.data_ptr()
    assert set(signature.weights) == {node.name for node in (*signature.constants, *signature.states)}


def test_outputs_and_new_values() -> None:
    _, signature = resolved()
    assert signature.outputs[1] == 3
    written = {write_back.target.name: write_back.source.target for write_back in signature.write_backs}
    assert set(written) == {"b_total", "y"}
    assert written["b_total"] == torch.ops.aten.add.Tensor
    assert signature.results == [*signature.outputs, *(write_back.source for write_back in signature.write_backs)]
