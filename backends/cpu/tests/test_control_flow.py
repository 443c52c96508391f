"""Conditionals and loops within a delegate: their results are torch's, whichever branch runs and however often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from backends.cpu.tests.harness import Function, as_array
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch.export import Dim
from torch.nn.functional import gelu

import delegraph
import delegraph.aot
from delegraph_cpu.aot.compiled.beside import bring_out_of_bodies, lay_beside, lies_beside, taken_out
from delegraph_onnx.ir_values import content_of

ROWS = Dim("ROWS", min=2, max=16)


class Layers(torch.nn.Module):
    """What the bodies below are made of, in evaluation and with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(12, 12)
        self.second = torch.nn.Linear(12, 12, bias=False)
        self.convolution = torch.nn.Conv1d(1, 1, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(1)
        self.requires_grad_(False)


class Choice(Layers):
    """Two branches that share a weight; one folds a batch norm, the other a constant that is larger than what stays in
    a graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def yes(x: torch.Tensor) -> torch.Tensor:
            return gelu(self.first(x) + torch.ones(12, 12)[:1] * 3) + torch.ones(6, 12).sum(0)

        def no(x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.convolution(self.first(x).unsqueeze(1))).squeeze(1)

        return torch.cond(x.sum() > 0, yes, no, (x,))


class Nested(Layers):
    """A choice within each round of a loop, whose number depends on data."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def going(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return (i < 5) & (x.abs().max() > 0.01)

        def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            halved = torch.cond(x.sum() > 0, lambda x: self.second(x) * 0.5, lambda x: gelu(self.first(x)), (x,))
            return i + 1, halved

        return while_loop(going, step, (torch.tensor(0), x))


class Rows(Layers):
    """In bfloat16, which a delegate computes in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return map_rows(lambda row: gelu(self.first(row)) * row.sum(), x.bfloat16())


class Recurrence(Layers):
    """Two carried values, one an integer, and two results of each step, from the last row to the first."""

    def forward(self, x: torch.Tensor) -> Any:
        def step(state: list[torch.Tensor], row: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            new = torch.tanh(self.first(state[0]) + self.second(row))
            return [new, state[1] + 1], [new * 2, state[1] * 3]

        return scan(step, [x[0] * 0, x[0].int() * 0], x, reverse=True)


def lowered(module: torch.nn.Module, x: torch.Tensor, shapes: Any = None) -> delegraph.aot.Lowered:
    with torch.no_grad():
        return delegraph.lower(module.eval(), (x,), dynamic_shapes=shapes, backends=["cpu"])


@pytest.mark.parametrize("make", [Choice, Nested, Rows, Recurrence])
def test_whole_within_one_delegate(make: Callable[[], Layers]) -> None:
    torch.manual_seed(0)
    module = make()
    result = lowered(module, torch.randn(4, 12), ({0: ROWS},))
    report = result.report.methods["forward"]
    assert len(report.delegates) == 1 and not report.leftovers, str(result.report)
    loaded = delegraph.load(bytes(result))
    for x in (torch.rand(4, 12), -torch.rand(2, 12), torch.rand(7, 12) * 1e-3):
        compare(loaded(as_array(x)), module(x), 2e-2 if make is Rows else 2e-5)


def compare(ours: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    leaves = torch.utils._pytree.tree_leaves(wanted)
    for result, expected in zip(torch.utils._pytree.tree_leaves(ours), map(as_array, leaves), strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance)


class Memory(Layers):
    """A state that both branches read, and the result changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(2, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held.copy_(
            torch.cond(x.sum() > 0, lambda x, h: self.first(x) + h, lambda x, h: self.first(x) - 2 * h, (x, self.held))
        )
        return self.held * 2


def test_a_state_is_the_delegates() -> None:
    module = Memory()
    result = lowered(module, torch.randn(2, 12))
    assert len(result.report.methods["forward"].delegates) == 1, str(result.report)
    loaded = delegraph.load(bytes(result))
    for sign in (1, -1, -1, 1):
        x = sign * torch.rand(2, 12)
        compare(loaded(as_array(x)), module(x))


def chosen_rows(x: torch.Tensor) -> torch.Tensor:
    """A body with a call that has no converter."""
    return gelu(x) + torch.linalg.det(x) + torch.relu(x)


def test_where_a_body_is_not_whole_its_parts_are_delegates() -> None:
    module = Function(lambda x: torch.cond(x.sum() > 0, chosen_rows, lambda x: gelu(x) * 2, (x,)))
    result = lowered(module, torch.randn(4, 4))
    report = result.report.methods["forward"]
    assert [entry.graph for entry in report.delegates].count("false_graph_0") == 1
    assert "true_graph_0" in {entry.graph for entry in report.delegates}
    (left,) = [entry for entry in report.leftovers if entry.operator == "cond"]
    assert "in true_graph_0 would be left: no converter for" in left.reasons["cpu"]
    loaded = delegraph.load(bytes(result))
    for x in (torch.rand(4, 4), -torch.rand(4, 4)):
        compare(loaded(as_array(x)), module(x))


def body(name: str, constant: str, content: list[float], result: str = "y") -> onnx.GraphProto:
    outputs = [onnx.helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, [2])]
    nodes = [onnx.helper.make_node("Add", ["x", constant], [f"{name}.sum"])]
    tensor = onnx.numpy_helper.from_array(np.array(content, np.float32), constant)
    return onnx.helper.make_graph(nodes, name, [], outputs, [tensor])


def test_constants_leave_bodies_unless_their_names_are_taken() -> None:
    yes, no = body("yes", "own", [0, 1]), body("no", "w", [2, 3])
    other, given = body("other", "w", [4, 5]), body("given", "given", [6, 7], result="given")
    nodes = [
        onnx.helper.make_node("If", ["p"], [name], then_branch=a, else_branch=b)
        for name, a, b in (("y", yes, no), ("z", other, given))
    ]
    model = ir.from_proto(onnx.helper.make_model(onnx.helper.make_graph(nodes, "main", [], [])))
    for graph in model.graph.subgraphs():
        for value in graph.initializers.values():
            lay_beside(value)
    bring_out_of_bodies(model)
    assert list(taken_out(model.graph)) == ["own"]
    inside = list(model.graph.subgraphs())
    assert not any(map(lies_beside, (value for g in inside for value in g.initializers.values())))
    kept = {g.name: [content_of(value).tolist() for value in g.initializers.values()] for g in inside}
    assert kept == {"yes": [], "no": [[2, 3]], "other": [[4, 5]], "given": [[6, 7]]}
