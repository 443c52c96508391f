"""What is refused before, or in place of, lowering, each with the whole of what is said: one row a message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule

import delegraph
from delegraph import ExecutorchBackendConfig, LoweringConfig
from delegraph.aot import DelegateMappingBuilder, ETRecord
from delegraph.aot.quantize.weights.as_program import as_program
from delegraph.errors import LoweringError

X = torch.randn(2)


class Fails(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("of the model's own")


class MakesAConstant(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a + torch.tensor([1.0, 2.0]), lambda a: a * 2, (x,))


def exported() -> ExportedProgram:
    return torch.export.export(nn.ReLU(), (X,))


def lowered(**options: Any) -> object:
    return delegraph.lower(exported(), config=LoweringConfig(executorch=ExecutorchBackendConfig(**options)))


def entries(*identifiers: int | None) -> None:
    builder = DelegateMappingBuilder()
    for identifier in identifiers:
        builder.insert_delegate_mapping_entry(handles=1, identifier=identifier)


CASE = SimpleNamespace(expected_outputs=[])
BUNDLE = SimpleNamespace(method_test_suites=[SimpleNamespace(method_name="forward", test_cases=[CASE])])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: delegraph.lower({}), LoweringError, "no methods to lower: the mapping of models is empty"),
        (
            lambda: delegraph.lower({"f": nn.ReLU(), "g": nn.ReLU()}, (X,)),
            LoweringError,
            "args must be a mapping by method name; the methods are f, g",
        ),
        (
            lambda: delegraph.lower(exported(), dynamic_shapes=({0: None},)),
            LoweringError,
            "method 'forward' is exported already: dynamic shapes belong to torch.export",
        ),
        (
            lambda: delegraph.lower(Fails(), (X,)),
            LoweringError,
            "torch.export of method 'forward' failed: the model itself fails on the example arguments, without"
            " torch.export: RuntimeError: of the model's own",
        ),
        (
            lambda: delegraph.lower(MakesAConstant(), (X,)),
            LoweringError,
            "the body of a control-flow operator calls an operator whose decomposition makes a constant tensor; make"
            " the tensor outside and pass it in\n  node: true_graph_0",
        ),
        (
            lambda: lowered(kernels=["portable", "aten", "portable"]),
            LoweringError,
            "ExecutorchBackendConfig.kernels names 'portable' twice",
        ),
        (
            lambda: entries(None),
            LoweringError,
            "a delegate mapping entry needs an identifier: give one, or DelegateMappingBuilder(True) generates them",
        ),
        (lambda: entries(7, 7), LoweringError, "the identifier 7 is in the delegate mapping already"),
        (
            lambda: ETRecord().update_reference_outputs(BUNDLE),
            ValueError,
            "method 'forward': a test case without expected outputs",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value).startswith(message)


def test_a_progress_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(LoweringError, match=r"^a progress bar needs rich: `pip install rich`$"):
        delegraph.lower(exported(), progress=True)


def test_a_quantized_program_that_torch_cannot_trace() -> None:
    program = exported()
    module = program.module()
    assert isinstance(module, GraphModule)
    with module.graph.inserting_before(module.graph.output_node()):
        product = torch.ops.aten.mm.default
        call = module.graph.call_function(product, (module.graph.find_nodes(op="placeholder")[0],) * 2)
    module.graph.output_node().args = ((call,),)
    with pytest.raises(LoweringError, match=r"^torch cannot trace the quantized method 'm': ") as raised:
        as_program("m", module, program)
    assert isinstance(raised.value.__cause__, RuntimeError)
