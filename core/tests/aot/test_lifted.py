"""Tensors that a model reaches through plain objects: registered ones are the program's own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot.export import export_method, export_requests


class Cached(nn.Module):
    """A buffer of two rows, `reached` as `reach` gives it, through an object that torch.export does not look into."""

    def __init__(self, reach: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 3))
        self.cache = SimpleNamespace(reached=reach(self.state))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.cache.reached.add_(x)
        return self.state * 1, self.cache.reached * 2


@pytest.mark.parametrize(
    "reach",
    [lambda state: state, lambda state: state.data, lambda state: state[1], lambda state: state.T[1:]],
    ids=["itself", "its data", "a row", "transposed and cut"],
)
def test_a_buffer_reached_through_a_plain_object_keeps_its_state(
    reach: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    model, x = Cached(reach), torch.arange(1.0, 1.0 + reach(torch.zeros(2, 3))[0].numel()).float()
    run = delegraph.load(bytes(delegraph.lower(model, (x,))))
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x))


def test_a_weight_reached_through_a_plain_object_is_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.head = SimpleNamespace(weight=self.linear.weight.data)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) @ self.head.weight

    program = export_method("forward", export_requests(Tied().eval(), (torch.ones(2, 3),))["forward"])
    assert list(program.constants) == []
    assert [spec.target for spec in program.graph_signature.input_specs] == ["linear.weight", "linear.bias", None]


def test_what_nobody_writes_stays_a_constant() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(2, 3))
            self.first = SimpleNamespace(row=self.table[0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.first.row

    program = export_method("forward", export_requests(Table(), (torch.ones(3),))["forward"])
    assert torch.ops.aten.as_strided.default not in {node.target for node in program.graph.nodes}
