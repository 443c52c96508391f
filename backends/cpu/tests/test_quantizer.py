"""The quantizer that users name "cpu": what it annotates is what the lowering computes on integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import delegraph
from delegraph.errors import LoweringError
from delegraph_cpu.aot import preprocess
from delegraph_cpu.aot.quantizer import cpu_quantizer
from delegraph_cpu.blob import unpack


class Residual(nn.Module):
    """What a mobile net is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.depthwise, self.point = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1)
        self.gate = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.stem(F.pad(x, (0, 1, 0, 1))))
        y = self.point(F.hardtanh(self.depthwise(F.pad(x, (1, 1, 1, 1))), 0.0, 6.0)) + x
        y = F.max_pool2d(y, 2) * F.relu(self.gate(F.max_pool2d(y, 2)))
        y = torch.cat([y, F.relu(self.gate(y))], 1)
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))  # type: ignore[no-any-return]


class Block(nn.Module):
    """What a transformer is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.v = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + F.scaled_dot_product_attention(self.q(y), self.v(y), y)
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.second(F.relu(self.first(x)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Of two heads, as wide as `width` has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 2 * width) for _ in range(3))
        self.o = nn.Linear(2 * width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, torch.arange(x.shape[1])[:, None] >= 0)
        return self.o(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Upsampling(nn.Module):
    """What a net is made of that goes down and up again."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.last = nn.Conv2d(3, 6, 3), nn.ConvTranspose2d(6, 4, 4, 2, 1), nn.Conv2d(4, 2, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.down(F.avg_pool2d(x, 2)))
        return self.last(F.avg_pool2d(F.relu(self.norm(self.up(F.avg_pool2d(x, 3, 1, 1)))), 2))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(8, 16, batch_first=True, bidirectional=True), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(x)[0][:, -1])  # type: ignore[no-any-return]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """Operator -> how often, for each graph that is compiled."""
    found: list[Counter[str]] = []
    optimize = preprocess._optimize

    def watched(*args: Any) -> Any:
        graph, *rest = optimize(*args)
        found.append(Counter(node.op_type for node in graph.graph))
        return graph, *rest

    monkeypatch.setattr(preprocess, "_optimize", watched)
    return found


def model_and_data(
    kind: Callable[..., nn.Module], *shape: int, **settings: int
) -> tuple[nn.Module, list[tuple[torch.Tensor]]]:
    torch.manual_seed(0)
    model = kind(**settings).eval()
    return model, [(torch.randn(*shape),) for _ in range(3)]


def run(model: nn.Module, data: list[tuple[torch.Tensor]], recipe: str) -> tuple[np.ndarray[Any, Any], Any]:
    """What the delegate computes, the whole model in one, and the quantized program in torch."""
    quantized = delegraph.quantize(model, data, recipe=recipe, backends=["cpu"])
    lowered = delegraph.lower(quantized, backends=["cpu"])
    report = lowered.report.methods["forward"]
    assert (len(report.delegates), report.leftovers) == (1, ())
    with torch.no_grad():
        expected = quantized.program.module()(*data[0])
    return delegraph.load(bytes(lowered))(*(x.numpy() for x in data[0])), expected.numpy()


def sqnr(wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> float:

    return float(10 * np.log10((wanted**2).sum() / max(((wanted - got) ** 2).sum(), 1e-30)))


def test_a_convolutional_net_is_integers_from_end_to_end(graphs: list[Counter[str]]) -> None:
    model, data = model_and_data(Residual, 1, 3, 16, 16)
    got, expected = run(model, data, "int8")
    (found,) = graphs
    wanted = {"QLinearConv": 5, "QLinearAdd": 1, "QLinearMul": 1, "QLinearGlobalAveragePool": 1, "QGemm": 1}
    assert {name: found[name] for name in wanted} == wanted
    assert found["QuantizeLinear"] == 1
    assert not found["DequantizeLinear"]  # the last layer gives floats
    assert sqnr(expected, got) > 30  # a step now and then, of 8 bits


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_padding_by_a_word_is_computed_on_integers(rank: int, graphs: list[Counter[str]]) -> None:
    layer: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    model = lambda: nn.Sequential(layer(8, 8, 3, padding="same"), nn.ReLU(), layer(8, 4, 3, padding="valid"))  # noqa: E731
    got, expected = run(*model_and_data(model, 1, 8, *[8] * rank), "int8")
    (found,) = graphs
    assert (found["QLinearConv"], found["Conv"]) == (2, 0)
    np.testing.assert_allclose(got, expected, atol=0.02 * np.abs(expected).max())  # a step now and then, of 8 bits


def test_averages_and_transposed_convolutions_are_integers(graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(Upsampling, 1, 3, 16, 16), "int8")
    (found,) = graphs
    assert found["QLinearConv"] == 5  # three layers, two averages; the first one's input is of floats
    assert (found["QuantizeLinear"], found["DequantizeLinear"], found["ConvTranspose"]) == (1, 1, 0)
    np.testing.assert_allclose(got, expected, atol=0.02 * np.abs(expected).max())  # a step now and then, of 8 bits


def between_points(rank: int, inputs: int, outputs: int, size: int = 3, groups: int = 1) -> nn.Module:
    """A convolution, by its numbers of channels in each group, between two that read single places."""
    layer: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    middle = layer(groups * inputs, groups * outputs, size, groups=groups)
    return nn.Sequential(
        layer(8, groups * inputs, 1), nn.ReLU(), middle, nn.ReLU(), layer(groups * outputs, 8, 1), nn.ReLU()
    )


SLOW_ON_INTEGERS: dict[str, dict[str, int]] = {
    "twice as many channels, each of one": {"rank": 2, "groups": 8, "inputs": 1, "outputs": 2},
    "in groups of four": {"rank": 2, "groups": 4, "inputs": 4, "outputs": 4},
    "in groups of two inputs": {"rank": 1, "groups": 4, "inputs": 2, "outputs": 8},
    "in groups, of one place": {"rank": 2, "groups": 8, "inputs": 4, "outputs": 4, "size": 1},
    "over three dims, of one channel": {"rank": 3, "inputs": 1, "outputs": 8},
    "over three dims, of four": {"rank": 3, "inputs": 4, "outputs": 8},
}
FAST_ON_INTEGERS: dict[str, dict[str, int]] = {
    "in groups of eight": {"rank": 2, "groups": 2, "inputs": 8, "outputs": 8},
    "depthwise": {"rank": 2, "groups": 8, "inputs": 1, "outputs": 1},
    "depthwise over one dim": {"rank": 1, "groups": 8, "inputs": 1, "outputs": 1},
    "of an image's channels": {"rank": 2, "inputs": 3, "outputs": 8},
    "of a sound's channel": {"rank": 1, "inputs": 1, "outputs": 8},
    "over three dims": {"rank": 3, "inputs": 8, "outputs": 8},
    "over three dims, of one place": {"rank": 3, "inputs": 4, "outputs": 8, "size": 1},
}


@pytest.mark.parametrize("kind", SLOW_ON_INTEGERS.values(), ids=SLOW_ON_INTEGERS)
def test_a_convolution_that_reads_few_channels_is_float_between_integers(
    kind: dict[str, int], graphs: list[Counter[str]]
) -> None:
    """Integers are far slower there. What goes in is unrounded, and what comes out is rounded again."""
    got, expected = run(*model_and_data(between_points, 2, 8, *[6] * kind["rank"], **kind), "int8")
    (found,) = graphs
    floats = sum(found[name] for name in ("Conv", "FusedConv"))
    assert (found["QLinearConv"], floats) == (2, 1)
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (2, 2)
    np.testing.assert_allclose(got, expected, atol=0.02 * np.abs(expected).max())  # a step now and then, of 8 bits


@pytest.mark.parametrize("kind", FAST_ON_INTEGERS.values(), ids=FAST_ON_INTEGERS)
def test_another_convolution_is_integers_between_integers(kind: dict[str, int], graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(between_points, 2, 8, *[6] * kind["rank"], **kind), "int8")
    (found,) = graphs
    assert (found["QLinearConv"], found["QuantizeLinear"], found["DequantizeLinear"]) == (3, 1, 1)
    np.testing.assert_allclose(got, expected, atol=0.02 * np.abs(expected).max())  # a step now and then, of 8 bits


def test_16_bits_keep_the_weights_of_every_convolution_rounded() -> None:
    """All are computed in float there, so that none of them is the slower for it."""
    model, data = model_and_data(between_points, 2, 8, 6, 6, rank=2, inputs=1, outputs=2, groups=8)
    quantized = delegraph.quantize(model, data, recipe="int16x8", backends=["cpu"])
    layers = [node for node in quantized.program.graph.nodes if "conv2d" in str(node.target)]
    assert len(layers) == 3
    assert all("dequantize" in str(node.args[1].target) for node in layers)


def upsampling(rank: int, dilation: int = 1) -> nn.Module:
    convolution: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    transposed: Any = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    up = transposed(6, 4, 4, (3, 2, 1)[:rank], 1, dilation=dilation)
    return nn.Sequential(convolution(3, 6, 1), nn.ReLU(), up, nn.ReLU(), convolution(4, 2, 1))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_of_every_rank_are_integers(rank: int, graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(upsampling, 1, 3, *[7] * rank, rank=rank), "int8")
    (found,) = graphs
    assert (found["QLinearConv"], found["ConvTranspose"]) == (3, 0)
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (1, 1)
    np.testing.assert_allclose(got, expected, atol=0.02 * np.abs(expected).max())  # a step now and then, of 8 bits


@pytest.mark.parametrize("dim", [2, 3])
def test_a_transposed_convolution_of_a_dynamic_size_is_integers(dim: int, graphs: list[Counter[str]]) -> None:
    model, data = model_and_data(upsampling, 2, 3, 8, 9, rank=2)
    sizes = ({0: torch.export.Dim("batch", max=8), dim: torch.export.Dim("size", min=2, max=64)},)
    quantized = delegraph.quantize(model, data, recipe="int8", backends=["cpu"], dynamic_shapes=sizes)
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=["cpu"])))
    assert graphs[0]["ConvTranspose"] == 0
    for batch, size in ((2, 8), (5, 17), (1, 2)):
        x = torch.randn(batch, 3, *((size, 9) if dim == 2 else (8, size)))
        wanted = quantized.program.module()(x).detach().numpy()
        np.testing.assert_allclose(run(x.numpy()), wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize(("dilation", "sizes"), [(2, {}), (1, {2: torch.export.Dim("h"), 3: torch.export.Dim("w")})])
def test_another_transposed_convolution_is_left_in_float(dilation: int, sizes: dict[int, Any]) -> None:
    """Rounded values and weights would cost accuracy, and save nothing."""
    model, data = model_and_data(upsampling, 1, 3, 8, 9, rank=2, dilation=dilation)
    quantized = delegraph.quantize(model, data, recipe="int8", backends=["cpu"], dynamic_shapes=(sizes,))
    (up,) = [node for node in quantized.program.graph.nodes if "conv_transpose" in str(node.target)]
    assert not any("quantize" in str(node.target) for node in (up.args[1], *up.users))


def test_a_transformer_is_integers_in_its_linear_layers(graphs: list[Counter[str]]) -> None:
    """One that goes to another through relu gives integers; the others floats, for sums, GELU and attention."""
    got, expected = run(*model_and_data(Block, 1, 6, 16), "int8")
    (found,) = graphs
    assert found["QGemm"] == 6
    assert found["QuantizeLinear"] == 4  # into q and v, up, down, first
    assert not found["DequantizeLinear"]
    assert sqnr(expected, got) > 30


def test_large_attention_is_computed_on_integers(graphs: list[Counter[str]]) -> None:
    """What it gives goes to the next layer as such. Keys and values are int8, for which there are faster kernels."""
    got, expected = run(*model_and_data(Attention, 1, 192, 32, width=64), "int8")
    (found,) = graphs
    assert (found["MatMulIntegerToFloat"], found["QLinearMatMul"], found["Softmax"]) == (1, 1, 1)
    assert (found["QGemm"], found["BitwiseXor"], found["Attention"], found["Add"]) == (4, 2, 0, 0)
    assert not found["DequantizeLinear"]
    assert sqnr(expected, got) > 30


@pytest.mark.parametrize(("length", "width"), [(128, 64), (192, 32)])
def test_small_attention_stays_whole(length: int, width: int, graphs: list[Counter[str]]) -> None:
    run(*model_and_data(Attention, 1, length, 32, width=width), "int8")
    assert (graphs[0]["Attention"], graphs[0]["Softmax"]) == (1, 0)


def test_attention_that_a_rule_leaves_in_float_stays_whole(graphs: list[Counter[str]]) -> None:
    model, data = model_and_data(Attention, 1, 192, 32, width=64)
    quantized = delegraph.quantize(
        nn.Sequential(model), data, recipe={"0": "float", "default": "int8"}, backends=["cpu"]
    )
    delegraph.lower(quantized, backends=["cpu"])
    assert (graphs[0]["Attention"], graphs[0]["Softmax"]) == (1, 0)


def test_factors_of_attention_cannot_saturate() -> None:
    """Two products of a byte with 63 stay within 16 bits, in which processors without VNNI add them."""
    model, data = model_and_data(Attention, 1, 192, 32, width=64)
    program = delegraph.quantize(model, data, recipe="int8", backends=["cpu"]).program
    factors = [node.args[1] for node in program.graph.nodes if str(node.target) == "aten.matmul.default"]
    assert [(factor.args[2:5]) for factor in factors] == [(0, -63, 63)] * 2


@pytest.mark.parametrize("recipe", ["int8", "int8_dynamic"])
def test_a_transformer_of_any_batch_and_length(recipe: str) -> None:
    """Neither is lost where rows of both go through a layer as one."""
    model, data = model_and_data(Attention, 2, 48, 32, width=64)
    sizes = ({0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", max=64)},)
    quantized = delegraph.quantize(model, data, recipe=recipe, backends=["cpu"], dynamic_shapes=sizes)
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=["cpu"])))
    for batch, length in ((2, 48), (5, 17), (1, 64)):
        x = torch.randn(batch, length, 32)
        assert sqnr(quantized.program.module()(x).detach().numpy(), run(x.numpy())) > 30


def test_dynamic(graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(Block, 1, 6, 16), "int8_dynamic")
    assert graphs[0]["DynamicQuantizeMatMul"] == 6
    assert sqnr(expected, got) > 60  # the same integers, but where two orders of summation round apart


@pytest.mark.parametrize("recipe", ["int8_dynamic", "int8", "int8_per_tensor"])
def test_an_lstm_rounds_in_the_run_by_every_recipe_of_8_bits(recipe: str, graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(Recurrent, 2, 6, 8), recipe)
    assert (graphs[0]["DynamicQuantizeLSTM"], graphs[0]["LSTM"]) == (1, 0)
    assert sqnr(expected, got) > 30  # the hidden state is rounded to 8 bits too


def test_int16_is_rounded_between_layers_of_floats(graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(Block, 1, 6, 16), "int16x8")
    assert (graphs[0]["Gemm"], graphs[0]["DequantizeLinear"]) > (6, 6)
    assert sqnr(expected, got) > 70


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only{group_size=16}"])
def test_recipes_for_weights_alone(recipe: str, graphs: list[Counter[str]]) -> None:
    got, expected = run(*model_and_data(Block, 1, 6, 16), recipe)
    of_rows = {"int8_weight_only": "Gemm", "int4_weight_only": "MatMulNBits"}
    assert graphs[0][of_rows[recipe.partition("{")[0]]] >= 6
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_an_lstms_weights_alone_are_widened_when_it_is_loaded(graphs: list[Counter[str]]) -> None:
    """Not in each run: what is left for that is folded with the rest of the constants."""
    quantized = delegraph.quantize(*model_and_data(Recurrent, 2, 6, 8), recipe="int8_weight_only", backends=["cpu"])
    lowered = delegraph.lower(quantized, backends=["cpu"])
    blob = unpack(bytes(lowered.program.executorch_program.delegate_data[0]))
    found = Counter(node.op_type for node in onnx.ModelProto.FromString(bytes(blob.graph)).graph.node)
    assert (found["LSTM"], found["DequantizeLinear"], found["Cast"]) == (1, 1, 4)  # the linear layer's is
    assert {weight.dtype for weight in blob.weights if prod(weight.shape) >= 64 * 8} == {"int8"}  # biases are less


def test_a_weight_that_is_given_in_the_run_stays_float(graphs: list[Counter[str]]) -> None:
    """Its ranges would be those of the data that it was tried on; a product of two such values is another thing."""

    class Given(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return F.linear(x, w), x @ w.mT

    torch.manual_seed(0)
    data = [(torch.randn(192, 64), torch.randn(192, 64))]
    program = delegraph.quantize(Given(), data, recipe="int8", backends=["cpu"]).program
    reads = {
        str(node.target): [getattr(x, "target", None) in program.graph_signature.user_inputs for x in node.args]
        for node in program.graph.nodes
    }
    assert reads["aten.linear.default"] == [True, True]
    assert reads["aten.matmul.default"] == [False, False]


def test_a_recipe_with_options_reaches_the_quantizer() -> None:
    model, data = model_and_data(Block, 1, 6, 16)
    programs = [
        delegraph.quantize(model, data, recipe=recipe, backends=["cpu"]).program
        for recipe in ("int8{observer=minmax}", "int8{observer=percentile, percentile=90}")
    ]
    steps = [
        next(n.args[1] for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)) for program in programs
    ]
    assert steps[0] > 1.5 * steps[1]  # of a normal distribution 90 % lie within 1.6 of about 2.5 standard deviations


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int8_dynamic_int4_weight"])
def test_a_recipe_that_is_not_for_quantizers_is_refused(recipe: str) -> None:
    with pytest.raises(LoweringError, match=rf"recipe '{recipe}' quantizes none, or packs weights: delegraph.quantize"):
        cpu_quantizer(recipe=recipe)
