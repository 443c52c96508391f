"""What quantizers ask of a graph's calls, and write on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx import GraphModule, Node

from delegraph.aot import Recipe, activation_spec, annotate, annotation_of, fused_calls, is_quantized, operands_of


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        return torch.cat([y + y, torch.relu(y)])


@pytest.fixture
def calls() -> dict[str, Node]:
    """The calls by name."""
    model = torch.export.export(Net().eval(), (torch.zeros(1, 3, 4, 4),)).module()
    assert isinstance(model, GraphModule)
    return {node.name: node for node in model.graph.nodes}


def _is(name: str) -> Callable[[Node], bool]:
    return lambda node: node.name.startswith(name)


def test_operands(calls: dict[str, Node]) -> None:
    assert operands_of(calls["cat"]) == [calls["add"], calls["relu_1"]]
    assert operands_of(calls["add"]) == [calls["relu"]]
    assert operands_of(calls["x"]) == []


def test_fused_calls_are_the_only_readers_of_their_kinds_in_turn(calls: dict[str, Node]) -> None:
    conv, norm, relu = calls["conv2d"], calls["batch_norm"], calls["relu"]
    assert fused_calls(conv, _is("batch_norm"), _is("relu")) == [norm, relu]
    assert fused_calls(conv, _is("relu")) == []
    assert fused_calls(conv, _is("sum"), _is("batch_norm")) == [norm]
    assert fused_calls(relu, _is("relu")) == []  # two calls read it
    annotate(relu, {})
    assert fused_calls(conv, _is("batch_norm"), _is("relu")) == [norm]


def test_the_last_of_fused_calls_gives_the_result(calls: dict[str, Node]) -> None:
    spec = activation_spec(Recipe("int8"))
    conv, norm, relu = calls["conv2d"], calls["batch_norm"], calls["relu"]
    annotate(conv, {calls["x"]: spec}, spec, [norm, relu])
    noted = [annotation_of(node) for node in (conv, norm, relu)]
    assert [note and (note.input_qspec_map, note.output_qspec) for note in noted] == [
        ({calls["x"]: spec}, None),
        ({}, None),
        ({}, spec),
    ]
    assert [is_quantized(value) for value in (conv, norm, relu, calls["add"], 1)] == [False, False, True, False, False]
