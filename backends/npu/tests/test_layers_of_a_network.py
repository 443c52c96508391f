"""MobileNetV2 on the NPU beside torch's quantized program: each layer by itself, and all of them behind each other.

Sums of integers, with biases that are integers, and torch's floats fall on two sides of a half for one element in a
thousand. Nothing more differs in a layer; and what becomes of that in fifty layers is less than what rounding costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from backends.npu.tests.harness import DEVICE, run
from benchmarks.models import settled
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

import delegraph
from delegraph.aot import get_lowered_module, is_delegate_call, to_edge_transform_and_lower
from delegraph.aot.authoring import Constants
from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import QuantizedCall, call_at, operator_name, shape_of
from delegraph_npu.aot.folding import fold
from delegraph_npu.aot.layout import IMAGES, move, placed, rows
from delegraph_npu.aot.operators import OPERATORS
from delegraph_npu.aot.options import Options
from delegraph_npu.aot.partitioner import npu_partitioner
from delegraph_npu.aot.preprocess import scheduled

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    return torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    torch.manual_seed(0)
    config = MobileNetV2Config(num_labels=100, depth_multiplier=0.5)
    return settled(MobileNetV2ForImageClassification(config), 3, 64, 64)


@pytest.fixture(scope="module")
def quantized(model: torch.nn.Module, image: torch.Tensor) -> delegraph.QuantizedModel:
    return delegraph.quantize(model, [(image,)], recipe="int8{observer=minmax}", backends=["npu"])


@pytest.fixture(scope="module")
def partition(quantized: delegraph.QuantizedModel) -> ExportedProgram:
    """What the NPU takes: all of it."""
    edge = to_edge_transform_and_lower(quantized.program, partitioner=[npu_partitioner()]).exported_program()
    (call,) = (node for node in edge.graph.nodes if is_delegate_call(node))
    program = get_lowered_module(edge.graph_module, call).original_module
    assert sum(operator_name(node) == "convolution" for node in program.graph.nodes) == 52
    return program


class Recorder(Interpreter):
    """Runs a graph as torch does, and keeps what every node gives."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program.graph_module)
        self.given: dict[Node, Any] = {}

    def run_node(self, node: Node) -> Any:
        self.given[node] = super().run_node(node)
        return self.given[node]


@pytest.fixture(scope="module")
def reference(partition: ExportedProgram, image: torch.Tensor) -> dict[Node, Any]:
    """What torch computes, by node."""
    constants = Constants.of(partition).tensors
    placeholders = [node for node in partition.graph.nodes if node.op == "placeholder"]
    (taken,) = (node for node in placeholders if node not in constants)
    (dequantize,) = taken.users
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
    recorder = Recorder(partition)
    with torch.no_grad():
        integers = quantize(image, *dequantize.args[1:])
        recorder.run(*(constants.get(node, integers) for node in placeholders))
    return recorder.given


def laid(node: Node, values: torch.Tensor) -> NDArray[Any]:
    """`values` as the NPU has them: images with their channels last."""
    shape = shape_of(node)
    order = IMAGES[4] if len(shape) == 4 else rows(len(shape))
    flat = values.numpy().reshape(placed(shape, rows(len(shape))))
    return np.ascontiguousarray(flat.transpose(move(rows(len(shape)), order)))


def test_each_layer_is_within_a_step(partition: ExportedProgram, reference: dict[Node, Any]) -> None:
    """Given torch's integers, of which each operator makes others by commands of its own."""
    graph = fold(partition, {name: row.convert for name, row in OPERATORS.items()})
    known = {graph.inputs[0].tensor.name: _input(partition, reference)}
    calls = (call_at(node) for node in partition.graph.nodes if node.op == "call_function")
    for call in calls:
        if isinstance(call, QuantizedCall):
            known[call.head.name] = laid(call.head, reference[call.results[0]])
    compared: dict[str, int] = {}
    for operator in graph.operators:
        taken = list(dict.fromkeys(operator.inputs))
        names = [one.name.partition(".")[0] for one in (*taken, operator.output)]  # a result: node, or node.part
        if isinstance(operator, ir.Reshape) or not known.keys() >= set(names):
            continue
        (given,) = run(blob_of(operator, taken), *(known[name] for name in names[:-1]))
        steps = np.abs(given.astype(int) - known[names[-1]])
        assert steps.max() <= 1, f"{operator} is off by {steps.max()} steps"
        assert steps.mean() < 0.005, f"{operator} rounds {steps.mean():.2%} of its elements another way"
        compared[type(operator).__name__] = compared.get(type(operator).__name__, 0) + 1
    assert compared["Convolution"] >= 52
    assert compared["Binary"] == 10
    assert compared["Pad"] == 52


def _input(partition: ExportedProgram, reference: dict[Node, Any]) -> NDArray[Any]:
    constants = Constants.of(partition).tensors
    (taken,) = (n for n in partition.graph.nodes if n.op == "placeholder" and n not in constants)
    return laid(taken, reference[taken])


def blob_of(operator: ir.Operator, inputs: list[ir.Tensor]) -> bytes:
    """One operator as a partition, its tensors in NHWC outside too."""
    order: ir.Order = (0, 1, 2, 3)
    taken, given = (tuple(ir.Laid(one, one.shape, order) for one in tensors) for tensors in (inputs, [operator.output]))
    alone = scheduled(ir.Graph(taken, (operator,), given), Options(DEVICE))
    program, weights = alone.emitted()
    return alone.result(program, bytes(weights.content)).processed_bytes


def test_all_layers_add_less_than_rounding_costs(
    model: torch.nn.Module, quantized: delegraph.QuantizedModel, image: torch.Tensor
) -> None:
    given = delegraph.load(bytes(delegraph.lower(quantized, backends=["npu"])))(image.numpy())["logits"]
    with torch.no_grad():
        rounded, exact = quantized.program.module()(image).logits.numpy(), model(image).logits.numpy()
    drift, cost = (float(((one - rounded) ** 2).mean()) for one in (given, exact))
    assert drift < cost, "integers are nearer to torch's rounded floats than these to its exact ones"
    assert ((given - exact) ** 2).mean() < 2 * cost
