"""Graphs in float16: run by onnxruntime on the CPU, which has kernels for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from backends.providers.tests.models import KeywordNet, LittleLlama, model_of
from torch import nn

from delegraph.aot import to_edge
from delegraph_cpu.engine import onnxruntime
from delegraph_providers.aot.asking import converted
from delegraph_providers.options import GraphOptions, graph_options
from delegraph_providers.providers import WEBGPU


class Masks(nn.Module):
    """Constants that float16 has not, and a size that is scaled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.where(x > 0, x, torch.tensor(-1e9))
        return nn.functional.interpolate(hidden.softmax(-1), scale_factor=2.0, mode="bilinear", align_corners=False)


def halved(model: nn.Module, args: tuple[torch.Tensor, ...]) -> onnx.ModelProto:
    options: GraphOptions = graph_options(WEBGPU)(precision="f16")
    program = to_edge(torch.export.export(model, args)).exported_program()
    made: onnx.ModelProto = ir.to_proto(converted(program, WEBGPU, options).model)
    onnx.checker.check_model(made, full_check=True)
    return made


CASES: dict[str, Any] = {
    "keywords": lambda: (KeywordNet(), (torch.randn(1, 1, 49, 10),)),
    "encoder": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (torch.randn(1, 8, 16),)),
    "masks": lambda: (Masks(), (torch.randn(1, 1, 4, 4),)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_computes_in_float16_and_takes_and_gives_float32(name: str) -> None:
    model, args = model_of(CASES[name])
    made = halved(model, args)
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    assert {tensor.data_type for tensor in made.graph.initializer if len(tensor.dims) > 1} <= {half}
    assert {value.type.tensor_type.elem_type for value in (*made.graph.input, *made.graph.output)} == {single}
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {value.name: x.numpy() for value, x in zip(session.get_inputs(), args, strict=True)}
    (result,) = session.run(None, feeds)
    np.testing.assert_allclose(result, model(*args).numpy(), rtol=1e-2, atol=1e-2)


def test_states_stay_in_float32() -> None:
    made = halved(LittleLlama().eval(), (torch.tensor([[1]]), torch.tensor([0])))
    floats = [v for v in (*made.graph.input, *made.graph.output) if v.type.tensor_type.elem_type != 7]
    assert {value.type.tensor_type.elem_type for value in floats} == {onnx.TensorProto.FLOAT}
