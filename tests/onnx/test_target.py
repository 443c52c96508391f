"""What a target says, and what converters make of it: the same program for engines that can other things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from torch.export import ExportedProgram

import delegraph
from delegraph.aot import EdgeCompileConfig, to_edge
from delegraph.errors import UnsupportedOperator
from delegraph_onnx.convert import ConvertedModel, convert
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.target import QuantizedAs, Target

ENGINE: Final = Target("Engine", recurrent_nan=True)


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def edge(function: Callable[..., Any], *args: torch.Tensor, dynamic_shapes: Any = None) -> ExportedProgram:
    exported = torch.export.export(Function(function).eval(), args, dynamic_shapes=dynamic_shapes)
    config = EdgeCompileConfig(preserve_ops=TargetTable(ENGINE).kept_whole)
    return to_edge(exported, compile_config=config).exported_program()


def made(target: Target, function: Callable[..., Any], *args: torch.Tensor) -> ConvertedModel:
    return convert(edge(function, *args), GraphBuilder(target))


def operators(target: Target, function: Callable[..., Any], *args: torch.Tensor) -> Counter[str]:
    return Counter(node.op_type for node in made(target, function, *args).model.graph)


def check(target: Target, function: Callable[..., Any], *args: torch.Tensor) -> None:
    """Onnx's own definition of the operators gives what torch does."""
    model = made(target, function, *args)
    evaluator = ReferenceEvaluator(ir.to_proto(model.model))
    inputs = {info.name: arg.numpy() for info, arg in zip(model.inputs, args, strict=True)}
    np.testing.assert_allclose(evaluator.run(None, inputs)[0], function(*args).numpy(), rtol=1e-5, atol=1e-6)


Q: Final = torch.randn(1, 2, 5, 8)
CASES: Final[dict[str, tuple[Target, Callable[..., Any], tuple[torch.Tensor, ...], str]]] = {
    "a cast to bool is a comparison": (
        replace(ENGINE, lacks={"Cast": frozenset({torch.bool})}),
        lambda x: x.to(torch.bool).float() + 1,
        (torch.tensor([0.0, 0.25, -0.1]),),
        "Equal",
    ),
    "attention in its parts": (
        replace(ENGINE, attention_from=100),
        lambda q: F.scaled_dot_product_attention(q, q, q),
        (Q,),
        "Softmax",
    ),
    "places counted from the front": (
        replace(ENGINE, negative_places=frozenset({"Gather"})),
        lambda x, i: x[i, i],
        (torch.randn(3, 3), torch.tensor([0, -1, 1])),
        "Less",
    ),
    "an operand that is cut before it is gathered from": (
        replace(ENGINE, partial_gather=False),
        lambda x, i: x.gather(1, i),
        (torch.randn(3, 4), torch.tensor([[0, 3], [1, 2]])),
        "Range",
    ),
    "places that are refused": (
        replace(ENGINE, refuses_places=False),
        lambda x, i: x.index_select(0, i),
        (torch.randn(3, 4), torch.tensor([2, 0])),
        "Gather",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_engine_that_differs_is_written_for(name: str) -> None:
    target, function, args, operator = CASES[name]
    assert operators(target, function, *args) != operators(ENGINE, function, *args)
    assert operator in operators(target, function, *args)
    check(target, function, *args)


def test_a_target_without_a_dtype_declines_it() -> None:
    target = replace(ENGINE, dtypes=frozenset({torch.float32}))
    program = edge(lambda x: x * 2, torch.arange(3))
    (node,) = (node for node in program.graph.nodes if node.op == "call_function")
    assert TargetTable(target).support(node) == "dtype torch.int64 is not supported by this backend"
    with pytest.raises(UnsupportedOperator, match=r"Engine cannot convert aten\.mul\.Tensor: dtype torch\.int64"):
        convert(program, GraphBuilder(target))


def test_a_target_with_fixed_sizes_declines_others() -> None:
    shapes = (({0: torch.export.Dim("rows", min=2, max=9)},),)
    program = edge(lambda x: x.relu(), torch.randn(4, 3), dynamic_shapes=shapes)
    (node,) = (node for node in program.graph.nodes if node.op == "call_function")
    assert TargetTable(ENGINE).support(node) is None
    assert TargetTable(replace(ENGINE, dynamic=False)).support(node) == "a size is known in the run alone"


def test_what_a_target_declines_in_a_body_leaves_the_whole_call() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.tanh(), lambda x: x.exp(), (x,))  # type: ignore[no-any-return]

    target = replace(ENGINE, declines=lambda node: "no exponentials" if "exp" in str(node.target) else None)
    program = edge(branches, torch.randn(3))
    (node,) = (node for node in program.graph.nodes if node.target is torch.ops.higher_order.cond)
    reason = TargetTable(target).support(node)
    assert reason is not None
    assert reason.endswith("would be left: no exponentials")
    assert TargetTable(ENGINE).support(node) is None


# ---- quantized values ---------------------------------------------------------------------------------------------


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.conv(x)).mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("quantized_as", "operator", "absent"),
    [(QuantizedAs.QDQ, "QuantizeLinear", "Round"), (QuantizedAs.ARITHMETIC, "Round", "QuantizeLinear")],
)
def test_quantized_values_are_told_as_the_target_says(quantized_as: QuantizedAs, operator: str, absent: str) -> None:
    torch.manual_seed(0)
    model, x = Layers().eval(), torch.randn(2, 3, 6, 6)
    program = delegraph.quantize(model, [(x,)], recipe="int8").program
    target = replace(ENGINE, quantized_as=quantized_as)
    config = EdgeCompileConfig(preserve_ops=TargetTable(target).kept_whole)
    converted = convert(to_edge(program, compile_config=config).exported_program(), GraphBuilder(target))
    kinds = {node.op_type for node in converted.model.graph}
    assert operator in kinds
    assert absent not in kinds
    (result,) = ReferenceEvaluator(ir.to_proto(converted.model)).run(None, {converted.inputs[0].name: x.numpy()})
    np.testing.assert_allclose(result, program.module()(x).numpy(), rtol=1e-4, atol=1e-4)
