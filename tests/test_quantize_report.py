"""What the report compares with is the model as the user wrote it, whatever is folded, cut or rewritten on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule

import delegraph
from delegraph.aot import VALUE_MOVES, Recipe, cut_attention
from delegraph.aot.authoring import operator_name
from delegraph.aot.quantize.annotation.generic import GenericQuantizer
from delegraph.aot.quantize.measurement.measure import sqnr
from delegraph.aot.quantize.measurement.report import MethodQuantization

aten = torch.ops.aten
Tensor = torch.Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu() * 2)  # type: ignore[no-any-return]


class Wrong(GenericQuantizer):
    """Takes a number of the model for another one, before it annotates."""

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        for node in model.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            node.args = (node.args[0], 3)
        for node in model.graph.find_nodes(op="call_function", target=aten.relu.default):
            node.target = aten.abs.default
        model.recompile()
        return model


def report(model: nn.Module, *args: Any, **how: Any) -> MethodQuantization:
    return delegraph.quantize(model.eval(), [args], **how).report.methods["forward"]


def test_a_rewrite_that_is_wrong_shows() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    right, wrong = (report(Net(), x, quantizers=[kind(Recipe("own", 8, 8))]) for kind in (GenericQuantizer, Wrong))
    assert right.output_sqnr is not None and right.output_sqnr > 30
    assert wrong.output_sqnr is not None and wrong.output_sqnr < 10
    first, second = (layer for layer in wrong.layers if layer.operator == "aten::linear")
    assert first.sqnr_in_all is not None and first.sqnr_in_all > 30
    assert second.sqnr_in_all is not None and second.sqnr_in_all < 10


def test_of_a_norm_that_is_folded_the_layer_is_compared_with_what_the_norm_gives() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)).eval()
    for norm in (model[1], model[2]):
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.uniform_(norm.weight, 2, 3)
        nn.init.uniform_(norm.bias, 4, 5)
    x = torch.randn(2, 3, 8, 8)
    (layer,) = report(model, x).layers
    wanted = model(x).detach()
    assert layer.high == pytest.approx(float(wanted.max())) and layer.low == pytest.approx(float(wanted.min()))
    assert layer.sqnr is not None and layer.sqnr > 30


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.heads(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


class Cutting(GenericQuantizer):
    """Each product of an attention has a grid."""

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        cut_attention(model)
        return model


def test_the_last_part_of_an_attention_is_compared_with_the_whole() -> None:
    torch.manual_seed(0)
    done = report(Attention(), torch.randn(2, 6, 16), quantizers=[Cutting(Recipe("own", 8, 8))])
    products = {layer.name: layer for layer in done.layers if layer.operator == "aten::matmul"}
    assert len(products) == 2 and "scaled_dot_product_attention_default" in products
    assert all(layer.sqnr is not None and layer.sqnr > 30 for layer in products.values())


def test_inputs_that_a_run_writes_are_those_that_were_given() -> None:
    class Writing(Net):
        def forward(self, x: Tensor) -> Tensor:
            x.add_(10)
            return super().forward(x)

    torch.manual_seed(0)
    x = torch.randn(8, 16)
    before = x.clone()
    done = report(Writing(), x)
    assert torch.equal(x, before)
    assert done.output_sqnr is not None and done.output_sqnr > 30
    assert next(layer for layer in done.layers if layer.module == "first").sqnr > 30  # type: ignore[operator]


def test_what_is_of_chance_is_so_in_every_run_alike() -> None:
    class Noisy(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(F.dropout(x, 0.5, training=True))

    torch.manual_seed(0)
    done = report(Noisy(), torch.randn(8, 16))
    assert done.output_sqnr is not None and done.output_sqnr > 15  # other values dropped are about 0


def test_outputs_that_are_no_floats_are_not_measured() -> None:
    class Chosen(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).argmax(-1)

    done = report(Chosen(), torch.randn(8, 16))
    assert done.output_sqnr is None and all(layer.sqnr for layer in done.layers)


def test_what_is_infinite_in_both_is_not_off() -> None:
    inf, nan = torch.inf, torch.nan
    wanted = torch.tensor([1.0, -inf, inf, nan])
    assert sqnr((wanted, wanted.clone())) == inf
    assert sqnr((wanted, torch.tensor([1.1, -inf, inf, nan]))) == pytest.approx(20, abs=1e-3)
    assert sqnr((wanted, torch.tensor([1.0, -1e9, inf, nan]))) == -inf
    assert sqnr((wanted, torch.tensor([1.0, -inf, inf, 0.0]))) == -inf


class Mixed(nn.Module):
    """Of each kind of operators that some quantizer leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear, self.scale = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(8, 4), nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, long: Tensor) -> tuple[Tensor, ...]:
        images = self.conv(x)
        joined = torch.cat([x, images], 1)
        rows = self.linear(images).softmax(-1) * self.scale
        return joined, rows.cumsum(-1), F.adaptive_avg_pool2d(x.sin(), 3), long.mean((1, 2)), F.max_pool2d(x.cos(), 2)


QUANTIZERS = [
    [GenericQuantizer(Recipe("own", 8, 8))],
    *([name] for name in ("npu", "dsp", "cpu", "openvino", "cpu{recipe=int16x8}", "npu{recipe=int16x8}")),
]


@pytest.mark.parametrize("quantizers", QUANTIZERS, ids=lambda given: str(given[0])[:20])
def test_what_stays_float_is_named_with_a_reason(quantizers: list[Any]) -> None:
    """Each call that computes floats is either rounded, at what it takes or gives, or named."""
    torch.manual_seed(0)
    args = torch.randn(2, 3, 8, 8), torch.randn(1, 256, 400)
    done = delegraph.quantize(Mixed().eval(), [args], quantizers=quantizers)
    left = done.report.methods["forward"].left_float
    named = {layer.operator for layer in left}
    assert named and all(layer.reason for layer in left)
    for node in done.program.graph.nodes:
        around = [operator_name(other) for other in (node, *node.all_input_nodes, *node.users)]
        rounded = any("quantized_decomposed" in name for name in around)
        computes = node.op == "call_function" and node.target not in VALUE_MOVES
        assert not computes or rounded or operator_name(node) in named, node


def test_why_a_mean_and_a_cat_stay_float() -> None:
    args = torch.randn(2, 3, 8, 8), torch.randn(1, 256, 400)
    done = delegraph.quantize(Mixed().eval(), [args], backends=["npu"]).report
    reasons = {left.operator: left.reason for left in done.methods["forward"].left_float}
    assert reasons["aten::mean.dim"] == "npu: sums of 102400 elements: an accumulator holds 65536"
    assert reasons["aten::cat"] == "npu: it takes an input, which stays float"
    assert reasons["aten::cumsum"] == "npu: the NPU has no cumsum"


def test_layers_that_are_left_for_one_reason_are_one_row() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(5)))
    done = delegraph.quantize(model.eval(), [(torch.randn(4, 8),)], backends=["npu"]).report
    assert len(done.methods["forward"].left_float) == 5
    (row,) = next(table.rows for table in done.tables() if "left in float" in str(table.title))
    assert row == ("0.1, 1.1, 2.1 (5 calls)", "aten::layer_norm", "npu: the NPU has no layer_norm")


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.linear = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = self.linear(self.lstm(x)[0]).unflatten(-1, (2, 4))
        return (rows.softmax(1), *rows.split(1, 2))


@pytest.mark.parametrize("backend", ["npu", "dsp", "openvino"])
def test_calls_of_several_results_are_named_and_moves_are_not(backend: str) -> None:
    done = delegraph.quantize(Sequences().eval(), [(torch.randn(2, 4, 8),)], backends=[backend]).report
    reasons = {left.operator: left.reason for left in done.methods["forward"].left_float}
    assert reasons["aten::lstm.input"].startswith(f"{backend}: ")
    assert not any("split" in name or "unflatten" in name for name in reasons)
