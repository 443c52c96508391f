"""Parts of a functional program: what they take, what they give, and that torch computes the same in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from delegraph.debugging.judge import Judge
from delegraph.debugging.prepared import Taken, prepared
from delegraph.debugging.search import Search
from delegraph.debugging.source import sources
from delegraph.debugging.subgraph import Case, Reference
from delegraph.debugging.verdict import Kind, Verdict
from delegraph.errors import LoweringError
from delegraph.plugins.plugin_spec import PluginSpec


def reference(model: nn.Module, *args: Tensor, shapes: Any = None) -> Reference:
    program, _ = prepared(torch.export.export(model.eval(), args, dynamic_shapes=shapes), ())
    return Reference(program)


def inputs_of(case: Case) -> list[str]:
    return list(case.program.graph_signature.user_inputs)


def computes_the_same(case: Case) -> None:
    args, kwargs = case.program.example_inputs
    for actual, expected in zip(case.program.module()(*args, **kwargs), case.expected, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x @ self.weight
        low, high = torch.topk(y * 2, 2)
        return torch.relu(low) + high, y


def test_each_call_by_itself() -> None:
    whole = reference(Net(), torch.randn(3, 4))
    for name in whole.calls:
        case = whole.part([name])
        assert case is not None
        computes_the_same(case)


def test_what_a_part_takes_and_gives() -> None:
    whole = reference(Net(), torch.randn(3, 4))
    product, mul, topk, relu, add = whole.calls
    case = whole.part([mul, topk])
    assert case is not None
    assert inputs_of(case) == [product]
    assert len(case.outputs) == 2  # both elements of the tuple
    fewer = whole.part([mul, topk], case.outputs[1:])
    assert fewer is not None and fewer.outputs == case.outputs[1:]
    computes_the_same(fewer)
    apart = whole.part([product, relu])
    assert apart is not None
    assert set(apart.program.state_dict) == {"weight"}
    assert apart.outputs == (product, relu)
    computes_the_same(apart)
    everything = whole.part(whole.calls)
    assert everything is not None and set(everything.outputs) == {product, add}


def test_sizes_are_computed_and_no_inputs() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x).reshape(x.shape[0] * x.shape[1], 2)

    x = torch.randn(2, 3, 2)
    whole = reference(Flat(), x, shapes={"x": {0: Dim("n", min=1, max=8)}})
    case = whole.part(whole.calls[1:])
    assert case is not None
    assert all(isinstance(value, Tensor) for value in case.program.example_inputs[0])
    computes_the_same(case)


def test_control_flow_goes_with_its_bodies() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)).relu()

    whole = reference(Branch(), torch.ones(3))
    case = whole.part([name for name in whole.calls if name.startswith("cond")])
    assert case is not None
    computes_the_same(case)
    assert len(sources(case.program)) == 1  # no module in a script can have it


def test_a_buffer_that_the_model_changes_is_a_constant_of_a_part() -> None:
    class Total(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.full((3,), 5.0))

        def forward(self, x: Tensor) -> Any:
            self.total.add_(x)
            return self.total * 2

    whole = reference(Total(), torch.ones(3))
    case = whole.part(whole.calls)
    assert case is not None and not case.program.graph_signature.buffers_to_mutate
    computes_the_same(case)
    assert whole.whole().program.graph_signature.buffers_to_mutate
    (result,) = whole.whole().expected
    assert result is not None and result.tolist() == [12.0] * 3


def test_random_numbers_are_nothing_to_compare_with() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    with pytest.raises(LoweringError, match=r"draws random numbers(.|\n)*node: rand"):
        reference(Noise(), torch.ones(3))


def test_dropout_that_does_nothing_is_right() -> None:
    reference(nn.LSTM(4, 4), torch.randn(2, 1, 4))


def test_a_program_without_examples() -> None:
    program = torch.export.export(nn.ReLU(), (torch.ones(2),))
    program.example_inputs = None
    with pytest.raises(LoweringError, match="no example inputs to run it on"):
        Reference(program)


# ---- the search, with a judge that looks at the program alone ------------------------------------------------------


class Reads(Judge):
    """A judge for which programs with all of `guilty` among their operators are wrong."""

    def __init__(self, *guilty: str) -> None:
        super().__init__()
        self.guilty = guilty

    def prepared(
        self, exported: ExportedProgram, backends: Sequence[PluginSpec]
    ) -> tuple[ExportedProgram, list[Taken], str]:
        program, _ = prepared(exported, ())
        calls = [node.name for node in program.graph.nodes if node.op == "call_function"]
        return program, [Taken(0, tuple(calls))], ""

    def __call__(self, case: Case, backends: Sequence[PluginSpec]) -> Verdict:
        self.trials += 1
        names = [str(node.target) for node in case.program.graph.nodes if node.op == "call_function"]
        wrong = all(any(name in target for target in names) for name in self.guilty)
        return Verdict(Kind.WRONG, "wrong") if wrong else Verdict(Kind.RIGHT)


class Chain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(9):
            x = torch.sin(x)
        x = torch.exp(x)
        x = torch.relu(x)
        for _ in range(9):
            x = torch.cos(x)
        return x


@pytest.mark.parametrize(
    ("guilty", "calls"),
    [(["exp"], ["aten::exp"]), (["exp", "relu"], ["aten::exp", "aten::relu"]), (["sin", "exp"], None)],
)
def test_a_call_and_a_pair_in_a_chain_of_twenty(guilty: list[str], calls: list[str] | None) -> None:
    program = torch.export.export(Chain(), (torch.randn(3),))
    with Reads(*guilty) as judge:
        ((fault, case, _),) = Search("forward", program, [PluginSpec("npu")], judge, lambda step: None).faults()
        assert [call.operator for call in fault.calls] == (calls or ["aten::sin", "aten::exp"])
        assert (fault.total, fault.backends, fault.method) == (20, "npu", "forward")
        assert judge.trials <= 12
    assert all("in forward: x = torch." in call.location for call in fault.calls)
    assert len(inputs_of(case)) == 1
    computes_the_same(case)
    code = sources(case.program)[0].model
    assert "class Part(torch.nn.Module)" in code and "torch.ops.aten.exp.default(" in code


def test_nothing_wrong() -> None:
    with Reads("tanh") as judge:
        search = Search("forward", torch.export.export(Chain(), (torch.randn(3),)), [PluginSpec("npu")], judge, print)
        assert list(search.faults()) == []
        assert judge.trials == 2  # the partition, and the whole
