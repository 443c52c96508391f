"""Weights of fewer bits, widened once or in each run: `widen`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.test_profiling import of_delegates
from torch import nn

import delegraph
from delegraph.devtools import load_model
from delegraph.errors import InvalidArgument
from delegraph.runtime import EventTracer
from delegraph_cpu.graphs.checks import checked_graph, operator_of_any
from delegraph_cpu.graphs.ordering import with_late_constants
from delegraph_cpu.graphs.wire import encoded

X = torch.randn(2, 64)


class Net(nn.Module):
    """Five products: one weight twice, two behind a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right, self.last = (nn.Linear(64, 64, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(self.first(x.bfloat16()).relu())
        y = torch.cond(y.sum() > 0, lambda y: self.left(y) + 1, lambda y: self.right(y) - 1, (y,))
        return self.last(y).float()


@pytest.fixture(scope="module")
def program() -> bytes:
    torch.manual_seed(0)
    return bytes(delegraph.lower(Net().bfloat16().requires_grad_(False).eval(), (X,), backends=["cpu"]))


def casts(program: bytes, **options: Any) -> int:
    """The number of casts in each of its second and third run."""
    tracer = EventTracer()
    model = delegraph.load(program, event_tracer=tracer, backend_options={"cpu": {"profiling": True, **options}})
    for _ in range(3):
        model(X.numpy())
    _, second, third = ([event.name for event in run].count("Cast") for run in of_delegates(tracer))
    assert second == third
    return second


def test_weights_are_widened_in_each_run_or_once(program: bytes) -> None:
    weights = casts(program, widen="run") - casts(program)
    assert weights == 4  # both branches' lie outside of them


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_the_numbers_are_the_same(program: bytes, level: str, tmp_path: Path) -> None:
    expected = delegraph.load(program)(X.numpy())
    options = {"cpu": {"widen": "run", "optimization_level": level}}
    for cache in (None, tmp_path, tmp_path):
        np.testing.assert_allclose(delegraph.load(program, backend_options=options, cache=cache)(X.numpy()), expected)


def test_kernels_of_8_bits_stay_so_until_they_are_needed() -> None:
    """A convolution whose weight is dequantized: two nodes make its constant."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval(), torch.randn(1, 3, 16, 16)
    lowered = delegraph.lower(
        delegraph.quantize(model, args=(x,), recipe="int8_weight_only", backends=["cpu"]), (x,), backends=["cpu"]
    )
    expected = delegraph.load(bytes(lowered))(x.numpy())
    late = delegraph.load(bytes(lowered), backend_options={"cpu": {"widen": "run"}})
    np.testing.assert_allclose(late(x.numpy()), expected, atol=1e-5)


def test_a_constant_comes_just_before_its_first_reader() -> None:
    """Two nodes make c; a body reads d; e is read by nobody, f by the caller; a missing output has no name."""

    def node(op: str, inputs: str, outputs: str, body: Any = None) -> dict[str, Any]:
        attributes = (
            {"attribute": [{"name": f"{case}_branch", "g": body, "type": 5} for case in ("then", "else")]}
            if body
            else {}
        )
        return {"input": inputs.split(), "output": outputs.split("."), "op_type": op, **attributes}

    body = {"node": [node("Add", "d x", "z")], "name": "body", "output": [{"name": "z"}]}
    nodes = [
        node("Neg", "w", "a"), node("Mul", "a w", "c"), node("Split", "w", "d.."), node("Neg", "w", "e"),
        node("Split", "w", ".f"), node("Relu", "x", "y"), node("If", "y", "s", body), node("Add", "s c", "t"),
    ]  # fmt: skip
    graph = {
        "node": nodes,
        "name": "g",
        "initializer": [{"dims": [1], "data_type": 1, "name": "w", "raw_data": bytes(4)}],
    }
    graph |= {"input": [{"name": "x"}], "output": [{"name": "t"}, {"name": "f"}]}
    ordered = with_late_constants(
        b"".join(encoded({"ir_version": 8, "graph": graph, "opset_import": [{"version": 21}]}))
    )
    outputs = [node["output"] for node in checked_graph(ordered, operator_of_any)["graph"]["node"]]
    assert outputs == [["y"], ["d", "", ""], ["s"], ["a"], ["c"], ["t"], ["", "f"]]


def test_rows_of_a_table_are_widened_and_the_table_is_not() -> None:
    """A table of tokens that scores the next one, too: only the product reads all of it."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm = nn.Embedding(512, 64), nn.LayerNorm(64)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.norm(self.table(tokens)), self.table.weight)

    torch.manual_seed(0)
    model, tokens = Tied().bfloat16().requires_grad_(False).eval(), torch.tensor([[3, 511, 0]])
    program = bytes(delegraph.lower(model, (tokens,), backends=["cpu"]))
    [delegate] = load_model(program).delegates
    assert delegate.described is not None
    stored = {
        weight.name for weight in delegate.described.weights if weight.dtype == "bfloat16" and len(weight.shape) == 2
    }
    [gather] = [node for node in delegate.described.nodes if node.operator == "Gather"]
    assert gather.inputs[0] in stored
    for widen in ("load", "run"):
        scores = delegraph.load(program, backend_options={"cpu": {"widen": widen}})(tokens)
        torch.testing.assert_close(scores, model(tokens), rtol=0.02, atol=0.05)


def test_another_word_is_refused(program: bytes) -> None:
    with pytest.raises(InvalidArgument, match="option widen must be load or run"):
        delegraph.load(program, backend_options={"cpu": {"widen": "never"}})
