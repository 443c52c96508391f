"""Quantized calls on onnxruntime's integer kernels: torch's own quantize and dequantize calls are the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import delegraph
from delegraph.interfaces import CompileSpec
from delegraph.program import deserialize_program
from delegraph_cpu import sessions
from delegraph_cpu.aot.partitioner import cpu_partitioner
from delegraph_cpu.blob import unpack
from delegraph_cpu.runtime import open_session

from .harness import Function, Lowered, declined, edge

qd = torch.ops.quantized_decomposed
Tensor = torch.Tensor

SCALE, ZERO = 0.0375, 17
"""Of the inputs, which are quantized from -5.4 to 4.1."""


def quantize(x: Tensor, scale: float = SCALE, zero: int = ZERO, low: int = -128, high: int = 127) -> Tensor:
    return qd.quantize_per_tensor(x, scale, zero, low, high, torch.int8)


def grid(x: Tensor, scale: float = SCALE, zero: int = ZERO, low: int = -128, high: int = 127) -> Tensor:
    """x on the grid."""
    return qd.dequantize_per_tensor(quantize(x, scale, zero, low, high), scale, zero, low, high, torch.int8)


class Weight(torch.nn.Module):
    """A weight in int8, by channel or for all of it, and a bias."""

    def __init__(self, *shape: int, per_channel: bool = True, axis: int = 0, biased: bool = True) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.axis, self.per_channel = axis, per_channel
        self.register_buffer("weight", torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator))
        self.register_buffer("scales", torch.rand(shape[axis], generator=generator) * 0.01 + 0.002)
        self.register_buffer("zeros", torch.zeros(shape[axis], dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.randn(shape[0], generator=generator)) if biased else None

    def forward(self) -> Tensor:
        if self.per_channel:
            return qd.dequantize_per_channel(self.weight, self.scales, self.zeros, self.axis, -127, 127, torch.int8)  # type: ignore[no-any-return]
        return qd.dequantize_per_tensor(self.weight, 0.0071, 0, -127, 127, torch.int8)  # type: ignore[no-any-return]


class Layer(torch.nn.Module):
    """A function of a weight and its bias, and of inputs."""

    def __init__(self, weight: Weight, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.weight, self.function = weight, function

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(*x, self.weight(), self.weight.bias)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 1.5


def operators(lowered: Lowered) -> Counter[str]:
    """Operator -> how often the graph that the delegate holds has it."""
    graph = onnx.ModelProto.FromString(bytes(unpack(lowered.processed).graph)).graph
    return Counter(node.op_type for node in graph.node)


def lowered(model: Any, *args: Tensor, dynamic_shapes: Any = None) -> Lowered:
    """As one delegate, nothing left over."""
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    program = edge(module, args, dynamic_shapes)
    assert declined(program) == {}
    return Lowered(program)


def compare(model: Any, *args: Tensor, step: float, within: float = 1.0) -> Counter[str]:
    """Check against eager: at most `within` steps of the output's scale; returns the operators."""
    ours = lowered(model, *args)
    with torch.no_grad():
        expected = model(*args)
    wanted = expected if isinstance(expected, tuple | list) else [expected]
    for got, reference in zip(ours(*args), wanted, strict=True):
        np.testing.assert_allclose(got, reference.numpy(), rtol=1e-5, atol=within * step * 1.001)
    return operators(ours)


# ---- layers -------------------------------------------------------------------------------------------------------

OUT = (0.11, -9)
"""The grid of the results."""


def conv(kind: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    return lambda x, w, b: grid(kind(grid(x), w, b, **options), *OUT)


@pytest.mark.parametrize(
    ("shape", "weight", "options"),
    [
        ((2, 8, 9, 9), (6, 8, 3, 3), {"padding": 1}),
        ((1, 8, 9, 9), (8, 1, 3, 3), {"groups": 8, "stride": 2}),
        ((1, 8, 9, 9), (6, 4, 3, 3), {"groups": 2, "dilation": 2, "padding": (2, 1)}),
        ((1, 8, 9, 9), (6, 8, 1, 1), {}),
        ((1, 8, 9, 9), (6, 8, 5, 3), {"padding": "same"}),
    ],
)
def test_convolution(shape: Sequence[int], weight: Sequence[int], options: dict[str, Any]) -> None:
    layer = Layer(Weight(*weight), conv(F.conv2d, **options))
    found = compare(layer, random(*shape), step=OUT[0])
    assert found == {"QuantizeLinear": 1, "QLinearConv": 1, "DequantizeLinear": 1}


@pytest.mark.parametrize(("dims", "kind"), [(1, F.conv1d), (3, F.conv3d)])
def test_convolution_of_other_ranks(dims: int, kind: Callable[..., Tensor]) -> None:
    layer = Layer(Weight(4, 3, *[3] * dims), conv(kind, padding=1))
    assert compare(layer, random(2, 3, *[6] * dims), step=OUT[0])["QLinearConv"] == 1


def test_convolution_without_bias_and_with_one_scale() -> None:
    layer = Layer(Weight(4, 3, 3, 3, per_channel=False, biased=False), conv(F.conv2d))
    assert compare(layer, random(1, 3, 6, 6), step=OUT[0])["QLinearConv"] == 1


def test_a_convolution_that_gives_floats_is_one_of_floats_with_a_weight_of_bytes() -> None:
    """onnxruntime's of integers that gives floats takes many times as long."""
    layer = Layer(Weight(4, 3, 3, 3), lambda x, w, b: F.conv2d(grid(x), w, b, padding=1))
    found = compare(layer, random(1, 3, 6, 6), step=1e-4)  # float32's sums differ in the last bits
    assert (found["Conv"], found["ConvInteger"], found["Cast"]) == (1, 0, 1)  # the weight's, folded at load


TRANSPOSED: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((2, 2), 1, {"stride": 2}),
    ((4, 4), 1, {"stride": 2, "padding": 1}),
    ((3, 3), 2, {"stride": 2, "padding": 1, "output_padding": 1}),
    ((5, 2), 1, {"stride": 3, "padding": (2, 0), "output_padding": (2, 1)}),
    ((3, 3), 1, {"padding": 1}),
    ((1, 3), 2, {"stride": 2}),
    ((4, 3), 1, {"stride": (2, 1), "padding": (3, 1)}),
    ((4,), 1, {"stride": 2, "padding": 1}),
    ((3,), 2, {"stride": 5, "output_padding": 3}),
    ((7,), 1, {"stride": 2, "padding": 5, "output_padding": 1}),
    ((2, 2, 2), 1, {"stride": 2}),
    ((3, 4, 1), 2, {"stride": (1, 2, 3), "padding": (1, 1, 0), "output_padding": (0, 1, 2)}),
]
TRANSPOSE = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@pytest.mark.parametrize(("kernel", "groups", "options"), TRANSPOSED)
def test_a_transposed_convolution(kernel: tuple[int, ...], groups: int, options: dict[str, Any]) -> None:
    """As one of integers, whose results are put in place: the bias too."""
    weight, transpose = Weight(4, 6, *kernel, axis=1), TRANSPOSE[len(kernel) - 1]
    weight.bias = torch.nn.Parameter(torch.linspace(-2, 3, 6 * groups))
    layer = Layer(weight, lambda x, w, b: grid(transpose(grid(x), w, b, groups=groups, **options), *OUT))
    found = compare(layer, random(2, 4, *(6, 5, 3)[: len(kernel)]), step=OUT[0])
    assert (found["QLinearConv"], found["ConvTranspose"]) == (1, 0)


@pytest.mark.parametrize("options", [{"dilation": 2}, {"stride": 2, "padding": 6}])
def test_a_transposed_convolution_that_is_computed_in_float(options: dict[str, Any]) -> None:
    weight = Weight(3, 4, 5, 5, axis=1, biased=False)
    layer = Layer(weight, lambda x, w, b: grid(F.conv_transpose2d(grid(x), w, b, **options), *OUT))
    found = compare(layer, random(1, 3, 6, 6), step=OUT[0])
    assert found["ConvTranspose"] == 1
    assert found["DequantizeLinear"] >= 2  # the weight stays in int8


def test_an_unbatched_convolution() -> None:
    compare(Layer(Weight(4, 3, 3, 3), conv(F.conv2d)), random(3, 6, 6), step=OUT[0])


@pytest.mark.parametrize(("shape", "per_channel"), [((5, 24), True), ((2, 3, 24), False), ((24,), True)])
def test_linear(shape: Sequence[int], per_channel: bool) -> None:
    layer = Layer(Weight(10, 24, per_channel=per_channel), lambda x, w, b: grid(F.linear(grid(x), w, b), *OUT))
    assert compare(layer, random(*shape), step=OUT[0])["QGemm"] == 1


def test_a_linear_layer_that_gives_floats() -> None:
    layer = Layer(Weight(10, 24), lambda x, w, b: F.linear(grid(x), w, b))
    assert compare(layer, random(5, 24), step=2e-4) == {"QuantizeLinear": 1, "QGemm": 1}  # half a step of its bias


def test_a_bias_too_large_for_the_steps_of_the_product_is_added_in_float() -> None:
    weight = Weight(10, 24)
    weight.scales.mul_(1e-9)  # type: ignore[operator]
    layer = Layer(weight, lambda x, w, b: F.linear(grid(x), w, b))
    assert compare(layer, random(5, 24), step=1e-6)["Add"] == 1


def test_the_product_of_two_values() -> None:
    found = compare(
        lambda x, y: grid(grid(x) @ grid(y, 0.02, 3), *OUT), random(2, 5, 6), random(2, 6, 7, seed=1), step=OUT[0]
    )
    assert found["QLinearMatMul"] == 1


def test_the_product_of_a_value_and_a_permuted_weight() -> None:
    layer = Layer(Weight(7, 6), lambda x, w, b: grid(grid(x) @ w.t(), *OUT))
    assert compare(layer, random(5, 6), step=OUT[0])["QLinearMatMul"] == 1


# ---- between layers -----------------------------------------------------------------------------------------------

BETWEEN: list[tuple[str, Callable[..., Tensor], str]] = [
    ("add", lambda x: grid(grid(x) + grid(x.flip(0), 0.05, -3), *OUT), "QLinearAdd"),
    ("mul", lambda x: grid(grid(x) * grid(x.flip(0), 0.05, -3), *OUT), "QLinearMul"),
    ("cat", lambda x: grid(torch.cat([grid(x), grid(x.flip(0), 0.05, -3)], 1), *OUT), "QLinearConcat"),
    ("sigmoid", lambda x: grid(grid(x).sigmoid(), 1 / 256, -128), "QLinearSigmoid"),
    ("leaky_relu", lambda x: grid(F.leaky_relu(grid(x), 0.1), *OUT), "QLinearLeakyRelu"),
    ("average", lambda x: grid(F.adaptive_avg_pool2d(grid(x), 1), 0.02, 3), "QLinearGlobalAveragePool"),
    ("mean", lambda x: grid(grid(x).mean((2, -1)), 0.02, 3), "QLinearGlobalAveragePool"),
    ("windows", lambda x: grid(F.avg_pool2d(grid(x), 2), 0.02, 3), "QLinearConv"),
    ("padded windows", lambda x: grid(F.avg_pool2d(grid(x), 3, 2, 1), 0.02, 3), "QLinearConv"),
    ("a divisor", lambda x: grid(F.avg_pool2d(grid(x), 3, 1, 1, False, False, 5), 0.04, 3), "QLinearConv"),
    ("windows along a dim", lambda x: grid(F.avg_pool1d(grid(x).flatten(2), 4, 2), 0.02, 3), "QLinearConv"),
    ("equal parts", lambda x: grid(F.adaptive_avg_pool2d(grid(x), (2, 1)), 0.02, 3), "QLinearConv"),
]


@pytest.mark.parametrize(("function", "op_type"), [case[1:] for case in BETWEEN], ids=[case[0] for case in BETWEEN])
def test_an_operator_with_a_kernel_for_integers(function: Callable[..., Tensor], op_type: str) -> None:
    found = compare(function, random(2, 3, 4, 4), step=OUT[0])
    assert found[op_type] == 1


BY_SCALE: dict[str, Callable[[Tensor, float], Tensor]] = {
    "add": lambda x, scale: grid(grid(x) + grid(x.flip(0), 0.05, -3), scale, 3),
    "mul": lambda x, scale: grid(grid(x) * grid(x.flip(0), 0.05, -3), scale, 3),
    "cat": lambda x, scale: grid(torch.cat([grid(x), grid(x.flip(0), 0.05, -3)], 1), scale, 3),
    "sigmoid": lambda x, scale: grid(grid(x).sigmoid(), scale, 3),
    "leaky_relu": lambda x, scale: grid(F.leaky_relu(grid(x), 0.1), scale, 3),
    "mean": lambda x, scale: grid(grid(x).mean((2, 3)), scale, 3),
    "windows": lambda x, scale: grid(F.avg_pool2d(grid(x), 2), scale, 3),
}


@pytest.mark.parametrize("scale", [1e-12, 1e-5, 1e5, 1e12])
@pytest.mark.parametrize("function", BY_SCALE.values(), ids=BY_SCALE)
def test_a_grid_far_finer_or_coarser_than_the_values(function: Callable[[Tensor, float], Tensor], scale: float) -> None:
    """The mean of a normalised row is 0 but for rounding; onnxruntime refuses some factors when it runs."""
    x = random(2, 3, 4, 4)
    ours = lowered(lambda x: function(x, scale), x)
    np.testing.assert_allclose(ours(x)[0], function(x, scale).numpy(), atol=1.001 * scale)


MOVES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "view": (lambda x: x.view(2, 48), "Reshape"),
    "permute": (lambda x: x.permute(0, 2, 3, 1), "Transpose"),
    "slice": (lambda x: x[:, 1:], "Slice"),
    "select": (lambda x: x[:, 1], "Gather"),
    "cat": (lambda x: torch.cat([x, x], 1), "Concat"),
    "stack": (lambda x: torch.stack([x, x]), "Concat"),
    "chunk": (lambda x: x.chunk(2, 2)[1], "Split"),
    "expand": (lambda x: x[:, :, :1].expand(2, 3, 5, 4), "Expand"),
    "repeat": (lambda x: x.repeat(1, 2, 1, 1), "Tile"),
    "pad": (lambda x: F.pad(x, (1, 2)), "Pad"),
    "reflect": (lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), "Pad"),
    "max_pool": (lambda x: F.max_pool2d(x, 2), "MaxPool"),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), "Gather"),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x[:1].reshape(1, 12, 2, 2), 2), "DepthToSpace"),
    "relu": (lambda x: x.relu(), "Clip"),
    "relu6": (F.relu6, "Clip"),
    "hardtanh": (lambda x: F.hardtanh(x, -0.7, 0.61), "Clip"),
}


@pytest.mark.parametrize(("move", "op_type"), MOVES.values(), ids=MOVES)
def test_what_moves_or_limits_values_is_done_to_the_integers(move: Callable[[Tensor], Tensor], op_type: str) -> None:
    """Exactly; between quantize and dequantize nothing but the move."""
    ours = lowered(lambda x: grid(move(grid(x))), x := random(2, 3, 4, 4))
    assert operators(ours)[op_type] >= 1
    assert operators(ours)["QuantizeLinear"] == operators(ours)["DequantizeLinear"] == 1
    np.testing.assert_array_equal(ours(x)[0], grid(move(grid(x))).numpy())


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("rows", [10, 13])
@pytest.mark.parametrize("dynamic", [False, True])
def test_resizing_to_a_size_between_convolutions_of_integers(mode: str, rows: int, dynamic: bool) -> None:
    """onnxruntime moves the change of layout for the second convolution before it, with its sizes."""

    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.behind = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.behind(F.interpolate(self.before(x), size=(rows, 10), mode=mode))

    torch.manual_seed(0)
    x = random(3, 3, 8, 7)
    shapes = {"x": {0: torch.export.Dim("n", max=8)}} if dynamic else None
    model = delegraph.quantize(Between().eval(), [(x,)], dynamic_shapes=shapes, backends=["cpu"])
    got = delegraph.load(bytes(delegraph.lower(model, backends=["cpu"])))(x.numpy())
    wanted = model.program.module()(x)
    assert float((torch.from_numpy(np.array(got)) - wanted).abs().max()) < 0.02 * float(wanted.abs().max())


def test_a_limit_off_the_grid_that_gives_floats_is_exact() -> None:
    ours = lowered(lambda x: F.hardtanh(grid(x), -0.7, 0.61), x := random(3, 4))
    np.testing.assert_array_equal(ours(x)[0], F.hardtanh(grid(x), -0.7, 0.61).numpy())


def test_a_padding_becomes_part_of_the_convolution() -> None:
    layer = Layer(
        Weight(4, 5, 3, 3),
        lambda x, w, b: grid(F.conv2d(grid(F.pad(grid(x), (0, 1, 0, 1))), w, b, padding=1), *OUT),
    )
    assert "Pad" not in compare(layer, random(1, 5, 6, 6), step=OUT[0])


def test_so_does_a_padding_of_floats_that_are_quantized_then() -> None:
    layer = Layer(
        Weight(4, 5, 3, 3), lambda x, w, b: grid(F.conv2d(grid(F.pad(x, (0, 1, 0, 1))), w, b, stride=2), *OUT)
    )
    assert "Pad" not in compare(layer, random(1, 5, 6, 6), step=OUT[0])


def test_three_channels_become_four() -> None:
    layer = Layer(Weight(4, 3, 3, 3), lambda x, w, b: grid(F.conv2d(grid(x), w, b, stride=2, padding=1), *OUT))
    found = compare(layer, random(2, 3, 6, 6), step=OUT[0])
    assert found["Pad"] == found["QLinearConv"] == 1


def test_a_padding_with_another_number_does_not() -> None:
    layer = Layer(
        Weight(4, 5, 3, 3), lambda x, w, b: grid(F.conv2d(grid(F.pad(grid(x), (1, 1), value=0.5)), w, b), *OUT)
    )
    found = compare(layer, random(1, 5, 6, 6), step=OUT[0])
    assert found["Pad"] == found["QLinearConv"] == 1


@pytest.mark.parametrize("function", [torch.tanh, F.gelu, F.silu, F.hardswish, lambda x: x.softmax(-1)])
def test_what_has_no_kernel_for_integers_is_computed_in_float(function: Callable[[Tensor], Tensor]) -> None:
    compare(lambda x: grid(function(grid(x)), 0.02, 5), random(3, 4), step=0.02)


@pytest.mark.parametrize(
    "average",
    [
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.adaptive_avg_pool2d(x, 3),
        lambda x: F.avg_pool2d(x[0], 2),
    ],
)
def test_averages_of_windows_that_differ_are_computed_in_float(average: Callable[[Tensor], Tensor]) -> None:
    assert compare(lambda x: grid(average(grid(x)), 0.02, 5), random(2, 3, 4, 4), step=0.02)["QLinearConv"] == 0


def test_a_small_net_is_integers_from_end_to_end() -> None:
    weight = Weight(3, 3, 3, 3)

    def block(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = grid(F.conv2d(grid(x), w, b, padding=1).relu(), 0.05, -128)
        z = grid(grid(F.conv2d(y, w, b, padding=1), *OUT) + y, *OUT)
        return grid(F.adaptive_avg_pool2d(grid(F.max_pool2d(z, 2), *OUT), 1), *OUT).flatten(1)

    found = compare(Layer(weight, block), random(1, 3, 8, 8), step=OUT[0], within=2)  # two layers, a step each
    wanted = {"QLinearConv": 2, "QLinearAdd": 1, "MaxPool": 1, "QLinearGlobalAveragePool": 1}
    assert {name: found[name] for name in wanted} == wanted
    assert found["QuantizeLinear"] == found["DequantizeLinear"] == 1


# ---- grids --------------------------------------------------------------------------------------------------------

RANGES = [(torch.int8, -128, 127), (torch.int8, -127, 127), (torch.int8, 0, 100), (torch.uint8, 0, 255),
          (torch.uint8, 3, 127), (torch.int16, -32768, 32767), (torch.int16, -1000, 32767)]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(RANGES),
    scale=st.floats(2.0**-13, 3.0, width=32),
    where=st.floats(0, 1),
    spread=st.sampled_from([0.1, 3.0, 1e4, 1e9]),
)
def test_grids(kind: tuple[torch.dtype, int, int], scale: float, where: float, spread: float) -> None:
    """The same integers as torch's, but for values within an ulp of the middle of two."""
    dtype, low, high = kind
    zero = round(low + where * (high - low))
    ours = lowered(
        lambda x: (
            (q := qd.quantize_per_tensor(x, scale, zero, low, high, dtype)),
            qd.dequantize_per_tensor(q, scale, zero, low, high, dtype),
        ),
        x := random(64) * spread,
    )
    integers, real = ours(x)
    wanted = qd.quantize_per_tensor(x, scale, zero, low, high, dtype)
    middle = np.abs(x.numpy().astype(np.float64) / scale % 1 - 0.5) < 1e-3
    different = integers != wanted.numpy()
    assert not (different & ~middle).any()
    assert np.abs(integers.astype(int) - wanted.numpy().astype(int)).max() <= 1
    again = qd.dequantize_per_tensor(torch.from_numpy(integers), scale, zero, low, high, dtype)
    np.testing.assert_allclose(real, again.numpy(), rtol=1e-6)


@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(1, 5),
    inner=st.integers(1, 40),
    columns=st.integers(1, 20),
    zeros=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    scales=st.tuples(st.floats(2.0**-10, 1.0, width=32), st.floats(2.0**-10, 10.0, width=32)),
)
def test_linear_layers_of_all_sizes_and_grids(
    rows: int, inner: int, columns: int, zeros: tuple[int, int], scales: tuple[float, float]
) -> None:
    layer = Layer(
        Weight(columns, inner),
        lambda x, w, b: grid(F.linear(grid(x, scales[0], zeros[0]), w, b), scales[1], zeros[1]),
    )
    bias_step = scales[0] * 0.012 / 2 / scales[1]  # a bias is rounded to steps of the product's scale
    compare(layer, random(rows, inner), step=scales[1], within=1 + bias_step)


@pytest.mark.parametrize(("kind", "kernel", "size"), [(F.linear, (), ()), (F.conv1d, (3,), (9,))])
def test_a_float_weight_beside_quantized_values_is_not_rounded(
    kind: Callable[..., Tensor], kernel: Sequence[int], size: Sequence[int]
) -> None:
    """As onnxruntime would by itself: with one scale for all rows, of which here the first is by far the largest."""

    class Activations(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(
                random(6, 8, *kernel) * torch.logspace(2, 0, 6).view(6, 1, *(1 for _ in kernel))
            )

        def forward(self, x: Tensor) -> Tensor:
            return grid(kind(grid(x), self.weight), 0.02, 0)

    compare(Activations(), random(4, 8, *size) / 4, step=0.02)


def test_a_part_of_quantized_values_without_elements_is_a_constant_of_floats() -> None:
    compare(lambda x: grid(x)[2:], random(2, 8), step=SCALE)


def test_what_is_moved_before_it_is_quantized_is_quantized_once() -> None:
    layer = Layer(Weight(6, 24), lambda x, w, b: grid(F.linear(grid(x.tanh().reshape(-1, 24)), w, b), *OUT))
    found = compare(layer, random(2, 5, 24), step=OUT[0])
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (1, 1)


AHEAD: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "permuted": (lambda x: x.permute(0, 2, 1), ["QuantizeLinear", "Transpose"]),
    "windows": (lambda x: x.view(2, 3, 2, 4).transpose(1, 2).reshape(4, 12), ["QuantizeLinear", "Transpose"]),
    "repeated": (lambda x: x.repeat(1, 2, 1), ["QuantizeLinear", "Tile"]),
    "a part": (lambda x: x[:, :1].permute(0, 2, 1), ["Slice", "QuantizeLinear", "Transpose"]),
    "the largest": (lambda x: F.max_pool1d(x, 2), ["If", "QuantizeLinear"]),  # with NaN, or without
}


@pytest.mark.parametrize(("move", "wanted"), AHEAD.values(), ids=AHEAD)
def test_floats_are_quantized_before_they_are_moved(move: Callable[[Tensor], Tensor], wanted: list[str]) -> None:
    """What is moved is a byte each; but what the move leaves out is not quantized. The same numbers, exactly."""
    ours = lowered(lambda x: grid(move(x.tanh())), x := random(2, 6, 4))
    graph = onnx.ModelProto.FromString(bytes(unpack(ours.processed).graph)).graph
    order = [node.op_type for node in graph.node if node.op_type in {*wanted, "QuantizeLinear"}]
    assert order == wanted
    np.testing.assert_array_equal(ours(x)[0], grid(move(x.tanh())).numpy())


def test_floats_that_are_moved_for_others_too_stay_floats() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        moved = x.tanh().permute(1, 0)
        return grid(moved), moved + 1

    assert compare(both, random(5, 6), step=1e-6)["Transpose"] == 1


@pytest.mark.parametrize("second", [(0.5, -5), (0.31, -5)])
def test_what_is_quantized_twice_is_rounded_and_limited_twice(second: tuple[float, int]) -> None:
    """onnxruntime would make one of both by itself, without the limits of the narrower."""
    x = torch.linspace(-3, 3, 999)
    compare(lambda x: grid(grid(x, 0.01, 1), *second), x, step=0.01)


def test_halves_between_quantized_values() -> None:
    def half(x: Tensor) -> Tensor:
        q = quantize(x)
        return qd.dequantize_per_tensor(q, SCALE, ZERO, -128, 127, torch.int8, out_dtype=torch.float16)  # type: ignore

    compare(lambda x: grid((half(x).view(2, 12).relu() * 2).float(), *OUT), random(2, 3, 4), step=OUT[0])


def test_integers_across_the_delegates_border() -> None:
    """int8 in and out, stored as uint8 in between."""
    layer = Layer(
        Weight(10, 24),
        lambda q, w, b: quantize(F.linear(qd.dequantize_per_tensor(q, SCALE, ZERO, -128, 127, torch.int8), w, b), *OUT),
    )
    q = torch.arange(-128, 112, dtype=torch.int8).reshape(10, 24)
    found = lowered(layer, q)
    assert operators(found)["QGemm"] == 1
    difference = found(q)[0].astype(int) - layer(q).detach().numpy().astype(int)
    assert np.abs(difference).max() <= 1


def test_by_channel_with_zero_points() -> None:
    scales, zeros = torch.tensor([0.1, 0.02, 0.5]), torch.tensor([3, -100, 127])
    ours = lowered(
        lambda x: qd.dequantize_per_channel(
            qd.quantize_per_channel(x, scales, zeros, 1, -128, 127, torch.int8), scales, zeros, 1, -128, 127, torch.int8
        ),
        x := random(4, 3, 2),
    )
    q = qd.quantize_per_channel(x, scales, zeros, 1, -128, 127, torch.int8)
    wanted = qd.dequantize_per_channel(q, scales, zeros, 1, -128, 127, torch.int8)
    np.testing.assert_allclose(ours(x)[0], wanted.numpy(), atol=1e-6)


def test_a_dynamic_batch() -> None:
    layer = Layer(Weight(10, 24), lambda x, w, b: grid(F.linear(grid(x), w, b).relu(), *OUT))
    batch, length = torch.export.Dim("batch", max=8), torch.export.Dim("length", max=8)
    ours = lowered(layer, random(2, 3, 24), dynamic_shapes=(({0: batch, 1: length},),))
    for shape in ((2, 3, 24), (5, 7, 24)):
        x = random(*shape)
        np.testing.assert_allclose(ours(x)[0], layer(x).detach().numpy(), atol=OUT[0] * 1.001)


# ---- processors without VNNI --------------------------------------------------------------------------------------


def _convolved(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return grid(F.conv2d(x, w, b, padding=1), *OUT)


TIED: dict[str, tuple[Sequence[int], Sequence[int], Callable[..., Tensor]]] = {
    "linear": ((24, 24), (3, 24), lambda x, w, b: grid(F.linear(grid(F.linear(grid(x), w, b), *OUT), w, b), *OUT)),
    "convolution": ((6, 6, 3, 3), (1, 6, 5, 5), lambda x, w, b: _convolved(_convolved(grid(x), w, b), w, b)),
    "dynamic": ((24, 24), (3, 24), lambda x, w, b: F.linear(dynamic(F.linear(dynamic(x), w, b)), w, b)),
}
"""Two layers with one weight."""


@pytest.fixture
def saturating(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor whose products of uint8 and int8 saturate at 16 bits."""
    monkeypatch.setattr(sessions, "products_saturate", lambda: True)


@pytest.mark.usefixtures("saturating")
@pytest.mark.parametrize(("kind", "level"), [("linear", "disabled"), *((kind, "all") for kind in TIED)])
def test_where_products_saturate_weights_become_uint8(kind: str, level: str) -> None:
    """The same numbers; a weight that two layers share is no obstacle."""
    weight, shape, function = TIED[kind]
    layer, x = Layer(Weight(*weight), function), random(*shape) * 100
    exact = layer(x).detach().numpy()
    step = OUT[0] if kind != "dynamic" else float(np.abs(exact).max()) / 100
    got = Lowered(edge(layer, (x,)), {"optimization_level": level})(x)[0]
    np.testing.assert_allclose(got, exact, atol=2.001 * step)


@pytest.mark.usefixtures("saturating")
@pytest.mark.parametrize(("recipe", "safe"), [("int8", False), ("int8{reduce_range=true}", True)])
@pytest.mark.parametrize("kind", ["a kernel in the graph", "a large one", "found as it runs"])
def test_weights_too_small_to_saturate_stay_int8(
    kind: str, recipe: str, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their products fit into 16 bits whatever they meet, and the kernels of int8 are the faster ones."""
    asked: list[bool] = []
    may_saturate = open_session._may_saturate

    def watched(*args: Any) -> bool:
        asked.append(may_saturate(*args))
        return asked[-1]

    monkeypatch.setattr(open_session, "_may_saturate", watched)
    torch.manual_seed(0)
    models: dict[str, tuple[torch.nn.Module, Tensor]] = {
        "a kernel in the graph": (torch.nn.Conv2d(2, 4, 3), torch.randn(1, 2, 8, 8)),
        "a large one": (torch.nn.Conv2d(16, 32, 3), torch.randn(1, 16, 8, 8)),
        "found as it runs": (torch.nn.Linear(64, 32), torch.randn(4, 64)),
    }
    model, x = models[kind]
    wanted = recipe.replace("int8", "int8_dynamic") if kind == "found as it runs" else recipe
    quantized = delegraph.quantize(model.eval(), [(x,)], recipe=wanted, backends=["cpu"])
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=["cpu"])))
    exact = quantized.program.module()(x).detach().numpy()
    assert asked and set(asked) == {not safe}
    np.testing.assert_allclose(run(x.numpy()), exact, atol=0.02 * np.abs(exact).max())


def test_whether_products_saturate_is_found_out_by_multiplying(monkeypatch: pytest.MonkeyPatch) -> None:
    class Saturating:
        def run(self, _names: None, feeds: dict[str, Any]) -> list[Any]:
            pairs = (feeds["x"].astype(np.int32) * feeds["w"].T).reshape(-1, 2).sum(1)
            return [np.minimum(pairs, 2**15 - 1).sum()]

    sessions.products_saturate.cache_clear()
    here = sessions.products_saturate()
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    assert not (here and "vnni" in flags)
    sessions.products_saturate.cache_clear()
    monkeypatch.setattr(sessions, "create_session", lambda model, options: Saturating())
    assert sessions.products_saturate()
    sessions.products_saturate.cache_clear()


# ---- quantized at run time ----------------------------------------------------------------------------------------


def dynamic(x: Tensor, low: int = -128, high: int = 127, eps: float = 1e-7, kind: str = "choose_qparams") -> Tensor:
    scale, zero = getattr(qd, kind).tensor(x, low, high, eps, torch.int8)
    q = qd.quantize_per_tensor.tensor(x, scale, zero, low, high, torch.int8)
    return qd.dequantize_per_tensor.tensor(q, scale, zero, low, high, torch.int8)  # type: ignore[no-any-return]


def by_token(x: Tensor) -> Tensor:
    scale, zero = qd.choose_qparams_per_token_asymmetric(x, torch.int8)
    q = qd.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    return qd.dequantize_per_token(q, scale, zero, -128, 127, torch.int8, torch.float32)  # type: ignore[no-any-return]


def largest_step(x: Tensor) -> float:
    return float(x.max().clamp(min=0) - x.min().clamp(max=0)) / 255


@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24)])
def test_a_dynamic_linear_layer(shape: Sequence[int]) -> None:
    layer = Layer(Weight(10, 24), lambda x, w, b: F.linear(dynamic(x), w, b))
    found = compare(layer, random(*shape), step=1e-4)
    assert found == {"DynamicQuantizeMatMul": 1}


def test_a_dynamic_convolution_takes_what_two_operators_round() -> None:
    layer = Layer(Weight(4, 3, 3, 3), lambda x, w, b: F.conv2d(dynamic(x, eps=2**-12), w, b))
    found = compare(layer, random(1, 3, 6, 6), step=1e-4)
    assert found == {"DynamicQuantizeLinear": 1, "DequantizeLinear": 1, "Conv": 1, "Cast": 1, "Mul": 1}


@pytest.mark.parametrize("options", [{"low": -64, "high": 63}, {"kind": "choose_qparams_symmetric"}, {"eps": 0.5}])
def test_other_ranges_chosen_at_run_time(options: dict[str, Any]) -> None:
    compare(lambda x: dynamic(x, **options), random(5, 24), step=1e-6)


def test_a_dynamic_linear_layer_below_eps_is_finer() -> None:
    layer = Layer(Weight(10, 24, biased=False), lambda x, w, b: F.linear(dynamic(x, eps=0.01), w, b))
    x = random(5, 24) * 0.1
    exact = F.linear(x, layer.weight()).numpy()
    ours, reference = lowered(layer, x)(x)[0], layer(x).numpy()
    assert np.abs(ours - exact).max() < np.abs(reference - exact).max()


@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24)])
def test_a_linear_layer_quantized_by_token(shape: Sequence[int]) -> None:
    layer = Layer(Weight(10, 24), lambda x, w, b: F.linear(by_token(x), w, b))
    found = compare(layer, random(*shape), step=1e-4)
    assert (found["QGemm"], found["QuantizeLinear"], found["Round"]) == (1, 1, 1)  # the zero points are rounded


@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24)])
def test_a_linear_layer_quantized_by_token_around_zero(shape: Sequence[int]) -> None:
    """As torchao's layers are, seen as matrices."""

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        scale = (x.abs().amax(-1, keepdim=True) / 127.5).clamp(min=1e-6)
        zero = torch.zeros_like(scale, dtype=torch.int64)
        q = qd.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        rows = qd.dequantize_per_token(q, scale, zero, -128, 127, torch.int8, torch.float32).view(-1, x.shape[-1])
        return F.linear(rows, w).view(*x.shape[:-1], -1) + b

    found = compare(Layer(Weight(10, 24), layer), random(*shape), step=1e-4)
    assert (found["QGemm"], found["QuantizeLinear"], found["Sub"]) == (1, 1, 0)


def test_integers_by_token_that_were_quantized_elsewhere_or_otherwise() -> None:
    """Codes that come in; and codes of fewer bits, which QuantizeLinear would not limit."""
    scale, zero = torch.tensor([[0.1], [0.2]]), torch.tensor([[3], [-5]])
    given = torch.arange(-24, 24, dtype=torch.int8).view(2, 24)

    def of_codes(q: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.linear(qd.dequantize_per_token(q, scale, zero, -128, 127, torch.int8, torch.float32), w, b)

    def of_six_bits(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return of_codes(qd.quantize_per_token(x, scale, zero, -32, 31, torch.int8), w, b)

    assert compare(Layer(Weight(10, 24), of_codes), given, step=1e-4)["QGemm"] == 1
    found = compare(Layer(Weight(10, 24), of_six_bits), random(2, 24) * 8, step=1e-4)
    assert (found["QGemm"], found["QuantizeLinear"]) == (1, 0)


@pytest.mark.parametrize(("layers", "bidirectional", "biased"), [(1, False, True), (2, True, False)])
def test_a_dynamic_lstm(layers: int, bidirectional: bool, biased: bool) -> None:
    """As the same cells, step by step, whose inputs and hidden states are put on a grid of 8 bits of their own."""
    torch.manual_seed(7)
    layer = Int8Lstm(torch.nn.LSTM(12, 16, layers, bidirectional=bidirectional, bias=biased))
    found = operators(ours := lowered(layer, x := random(5, 1, 12)))
    assert (found["DynamicQuantizeLSTM"], found["LSTM"]) == (layers, 0)
    for got, wanted in zip(ours(x), layer.by_steps(x), strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=0, atol=0.005)  # a step here or there: of 1/127


@pytest.mark.usefixtures("saturating")
def test_where_products_saturate_lstms_averages_and_transposed_convolutions_are_the_same() -> None:
    torch.manual_seed(7)
    layer = Int8Lstm(torch.nn.LSTM(12, 16))
    got, wanted = lowered(layer, x := random(5, 1, 12))(x)[0], layer.by_steps(x)[0]
    np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=0, atol=0.005)

    def twice(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = grid(F.avg_pool2d(grid(F.conv_transpose2d(grid(x), w, b, stride=2), *OUT), 2), *OUT)
        return grid(F.conv_transpose2d(y, w, b, stride=2), *OUT)

    compare(Layer(Weight(4, 4, 2, 2, axis=1), twice), random(1, 4, 6, 6) * 100, step=OUT[0], within=2)


def test_an_lstm_whose_weights_alone_are_quantized_rounds_nothing_else() -> None:
    torch.manual_seed(7)
    layer = Int8Lstm(torch.nn.LSTM(12, 16), rounds=False)
    assert compare(layer, random(5, 3, 12), step=1e-5)["LSTM"] == 1


class Int8Lstm(torch.nn.Module):
    """An LSTM's matrices in int8, by row; its input rounded to 8 bits as it comes, unless not `rounds`."""

    def __init__(self, lstm: torch.nn.LSTM, rounds: bool = True) -> None:
        super().__init__()
        self.lstm, self.rounds, self.names = lstm, rounds, [name for name, _ in lstm.named_parameters()]
        for name, parameter in list(lstm.named_parameters()):
            if parameter.dim() == 2:
                scales = parameter.detach().abs().amax(1) / 127
                self.register_buffer(name, (parameter.detach() / scales[:, None]).round().to(torch.int8))
                self.register_buffer(f"{name}_scales", scales)

    def params(self) -> list[Tensor]:
        params: list[Tensor] = []
        for name in self.names:
            scales = getattr(self, f"{name}_scales", None)
            zeros = None if scales is None else torch.zeros(scales.shape, dtype=torch.int64)
            params.append(
                getattr(self.lstm, name)
                if scales is None
                else qd.dequantize_per_channel(getattr(self, name), scales, zeros, 0, -127, 127, torch.int8)
            )
        return params

    def by_steps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of a batch of one."""
        params, finals = iter(self.params()), []
        for _ in range(self.lstm.num_layers):
            outputs, given = [], dynamic(x)
            for backwards in range(2 if self.lstm.bidirectional else 1):
                w, r = next(params), next(params)
                bias = next(params) + next(params) if self.lstm.bias else torch.zeros(w.shape[0])
                h = c = torch.zeros(1, self.lstm.hidden_size)
                steps = {}
                for t in sorted(range(len(x)), reverse=bool(backwards)):
                    i, f, new, o = (given[t] @ w.T + dynamic(h) @ r.T + bias).chunk(4, -1)
                    c = f.sigmoid() * c + i.sigmoid() * new.tanh()
                    steps[t] = h = o.sigmoid() * c.tanh()
                outputs.append(torch.stack([steps[t] for t in range(len(x))]))
                finals.append((h, c))
            x = torch.cat(outputs, -1)
        hidden, cells = (torch.stack(states) for states in zip(*finals, strict=True))
        return x, hidden, cells

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        directions = 2 if self.lstm.bidirectional else 1
        state = torch.zeros(self.lstm.num_layers * directions, x.shape[1], self.lstm.hidden_size)
        x = dynamic(x) if self.rounds else x
        options = (self.lstm.bias, self.lstm.num_layers, 0.0, False, self.lstm.bidirectional, False)
        return torch.lstm(x, [state, state], self.params(), *options)


def test_values_of_tokens() -> None:
    rows = torch.stack([random(24), random(24).abs(), -random(24).abs(), torch.zeros(24)])
    compare(by_token, rows, step=largest_step(rows), within=1e-5)


# ---- weights alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "shape", "per_channel"), [(64, (1, 64), True), (300, (1, 1, 300), False), (41, (41,), True)]
)
def test_a_weight_of_8_bits_for_one_row(inner: int, shape: Sequence[int], per_channel: bool) -> None:
    """And the product is one of floats."""
    layer = Layer(Weight(10, inner, per_channel=per_channel), F.linear)
    assert compare(layer, random(*shape), step=1e-5 * inner)["MatMulNBits"] == 2


@pytest.mark.parametrize("shape", [(2, 24), (2, 3, 4, 24)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_weight_of_8_bits_that_more_rows_are_multiplied_with(shape: Sequence[int], biased: bool) -> None:
    layer = Layer(Weight(10, 24, biased=biased), F.linear)
    assert compare(layer, random(*shape), step=1e-5 * 24)["Gemm"] == 1


def test_a_weight_of_8_bits_whose_many_rows_have_two_dynamic_dims() -> None:
    layer, sizes = (
        Layer(Weight(10, 24), F.linear),
        {0: torch.export.Dim("batch", min=4), 1: torch.export.Dim("length", min=4)},
    )
    ours = lowered(layer, random(4, 5, 24), dynamic_shapes=((sizes,),))
    assert operators(ours)["Gemm"] == 1
    for shape in ((4, 5, 24), (6, 4, 24)):
        x = random(*shape)
        np.testing.assert_allclose(ours(x)[0], layer(x).detach().numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("weight", "function"),
    [
        (Weight(8, 32, 3, 3), lambda x, w, b: F.conv2d(x, w, b, padding=1)),
        (Weight(300, 32, 3, 3), F.conv2d),  # whose scales lie beside the graph, too
        (Weight(8, 32, 3, 3, per_channel=False, biased=False), F.conv2d),
        (Weight(32, 8, 3, 3, axis=1, biased=False), F.conv_transpose2d),
    ],
)
def test_a_kernel_of_8_bits_is_widened_at_load(weight: Weight, function: Callable[..., Tensor]) -> None:
    """Once, by what onnxruntime computes of constants; to dequantize it in each run takes longer than to convolve."""
    layer, x = Layer(weight, function), random(1, 32, 6, 6)
    for activation in ((), (nn.ReLU(),), (nn.Sigmoid(),)):  # which onnxruntime makes part of a convolution
        found = compare(nn.Sequential(layer, *activation), x, step=1e-3)
        assert found["DequantizeLinear"] == 0
        assert found["Cast"] == 1
        assert found["Mul"] == 1
    assert len(lowered(layer, x).processed) < weight.weight.numel() * 1.25 + 4000  # of float32: 4


@pytest.mark.parametrize("rows", [5, 64])
def test_the_size_of_a_weight_of_8_bits(rows: int) -> None:
    layer = Layer(Weight(100, 300, biased=False), F.linear)
    assert len(lowered(layer, random(rows, 300)).processed) < 100 * 300 * 1.25 + 3000  # of float32: 4


def test_inputs_rounded_to_int8() -> None:
    """In blocks, each with a scale of its own, by half a step at most."""
    layer, x = Layer(Weight(10, 64), F.linear), random(5, 64)
    program = edge(layer, (x,))
    ours = Lowered(program, compile_specs=[CompileSpec("int8_inputs", b"1")])
    assert operators(ours)["MatMulNBits"] == 1
    steps = x.abs().max() / 127 * layer.weight().abs().sum(1)  # every input is off by half of one
    assert (np.abs(ours(x)[0] - layer(x).detach().numpy()) <= steps.numpy() / 2 + 1e-5).all()
    assert cpu_partitioner(int8_inputs=True).delegation_spec.compile_specs == [CompileSpec("int8_inputs", b"1")]  # type: ignore[attr-defined]


def rounded(layer: Any, x: Tensor, option: str) -> tuple[Counter[str], Any, int]:
    """Lowered with `option`: the operators, the result, and how many bytes it takes."""
    ours = Lowered(edge(layer, (x,)), compile_specs=[CompileSpec(option, b"1")])
    return operators(ours), ours(x)[0], len(ours.processed)


def off_by_halves_of(x: Tensor, weight: Tensor) -> Any:
    """How much a product may be off of which each row of `x` is rounded to its 127 steps."""
    return (x.abs().amax(-1, keepdim=True) / 127 / 2 * weight.abs().sum(1)).numpy() * 1.001 + 1e-5


@pytest.mark.parametrize("shape", [(16, 64), (2, 3, 4, 64)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("option", ["int8_inputs", "int8_products"])
def test_many_rows_are_rounded_by_themselves(shape: Sequence[int], biased: bool, option: str) -> None:
    """A row of large values costs others nothing, and one of zeros is one of zeros."""
    layer, x = Layer(Weight(10, 64, biased=biased), F.linear), random(*shape)
    x[0], x[-1] = x[0] * 1000, 0
    found, result, _ = rounded(layer, x, option)
    assert found["QGemm"] == 1
    expected = layer(x).detach().numpy()
    assert (np.abs(result - expected) <= off_by_halves_of(x, layer.weight())).all()
    np.testing.assert_array_equal(result[-1], expected[-1])


@pytest.mark.parametrize("per_channel", [True, False])
def test_rows_of_a_quantized_table(per_channel: bool) -> None:
    weight = Weight(50, 40, per_channel=per_channel)
    weight.zeros[::3] = 5  # type: ignore[index]
    layer = Layer(weight, lambda rows, w, b: F.embedding(rows, w))
    found = compare(layer, torch.tensor([[3, 49], [0, 6]]), step=1e-6)
    assert found["DequantizeLinear"] == 0  # of the whole table, for each call


EMBEDDINGS = {"embedding_byte": (-128, 127), "embedding_4bit": (-8, 7), "embedding_2bit": (-2, 1)}


@pytest.fixture(scope="module")
def embeddings() -> None:
    """ExecuTorch's operators, which its own package registers, or `delegraph-executorch`."""
    import_module("delegraph_executorch.exir.passes.quantization")


@pytest.mark.usefixtures("embeddings")
@pytest.mark.parametrize("name", EMBEDDINGS)
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("offset", [True, False])
def test_rows_of_a_packed_table(name: str, groups: int, offset: bool) -> None:
    """ExecuTorch's embeddings: rows are taken packed, and unpacked by themselves."""
    generator = torch.Generator().manual_seed(5)
    weight = torch.randint(0, 256, (30, 16), dtype=torch.uint8, generator=generator)
    weight = weight.view(torch.int8) if name == "embedding_byte" else weight
    shape = (30,) if groups == 1 else (30, groups)
    scales, zeros = torch.rand(shape, generator=generator), torch.randint(-2, 2, shape, generator=generator).float()
    operator, table = getattr(qd, name), (weight, scales, zeros if offset else None, *EMBEDDINGS[name])
    indices = torch.tensor([[3, 29, 3], [0, 6, 1]])
    found = compare(lambda rows: (operator(*table, rows), operator.dtype(*table, rows, dtype=torch.float16)), indices,
                    step=1e-6)  # fmt: skip
    assert found["Gather"] == (3 if offset else 2)  # of the packed rows, their scales and zero points alone


class Packed(torch.nn.Module):
    """A linear layer with a weight of 4 bits in groups, two codes a byte."""

    def __init__(self, rows: int, inner: int, group: int, zero_points: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        groups = rows * inner // group
        self.group = group
        self.register_buffer("packed", torch.randint(0, 256, (rows, inner // 2), generator=generator).to(torch.uint8))
        self.register_buffer("scales", torch.rand(groups, generator=generator) * 0.1 + 0.01)
        zeros = torch.randint(0, 16, (groups,), generator=generator).to(torch.uint8)
        self.register_buffer("zeros", zeros if zero_points else None)

    def forward(self, x: Tensor) -> Tensor:
        packed: Any = self.packed
        low = torch.ops.aten.bitwise_and.Scalar(packed, 15)
        high = torch.div(packed, 16, rounding_mode="floor")
        codes = torch.stack([low, high], -1).view(-1, self.group)
        count = codes.shape[0]
        zeros: Any = torch.full([count], 8, dtype=torch.int64) if self.zeros is None else self.zeros.to(torch.int64)  # type: ignore[operator]
        rows = qd.dequantize_per_channel(codes, self.scales, zeros, 0, 0, 15, torch.uint8)
        return F.linear(x, rows.view(packed.shape[0], -1))


@pytest.mark.parametrize(("inner", "group", "zero_points"), [(64, 32, True), (128, 128, False), (48, 48, True)])
def test_a_weight_of_4_bits_stays_packed(inner: int, group: int, zero_points: bool) -> None:
    layer = Packed(80, inner, group, zero_points)
    found = compare(layer, random(5, inner), step=1e-4)
    assert found == {"MatMulNBits": 1}
    groups = 80 * inner // min(group, 16)
    stored = len(lowered(layer, random(5, inner)).processed)
    assert stored < 80 * inner // 2 + groups * 5 + 2500  # codes, scales, zero points, and the graph


@pytest.mark.parametrize(("rows", "rounded"), [(1, True), (15, True), (16, False)])
def test_inputs_of_weights_of_4_bits_are_rounded_where_that_is_faster(rows: int, rounded: bool) -> None:
    """Rounding is allowed, not asked for."""
    layer, x = Packed(80, 64, 32, zero_points=False), random(rows, 64)
    ours = Lowered(edge(layer, (x,)), compile_specs=[CompileSpec("int8_inputs", b"1")])
    error = np.abs(ours(x)[0] - layer(x).numpy()).max()
    assert (error > 1e-3) == rounded


@pytest.mark.parametrize(
    ("inner", "group", "zero_points"), [(64, 32, True), (128, 128, False), (60, 30, False), (20, 10, True)]
)
@pytest.mark.parametrize("rows", [16, 70])
def test_weights_of_4_bits_become_int8_at_load(inner: int, group: int, zero_points: bool, rows: int) -> None:
    """Each is off by half a step of its row at most; the file has the codes."""
    layer, x = Packed(80, inner, group, zero_points), random(rows, inner)
    found, result, stored = rounded(layer, x, "int8_products")
    assert found["QGemm"] == 1
    weight = layer(torch.eye(inner)).T  # (80, inner)
    weight_steps = weight.abs().amax(1) / 127
    within = off_by_halves_of(x, weight.abs() + weight_steps[:, None] / 2)
    within += (x.abs().sum(-1, keepdim=True) * weight_steps / 2).numpy()
    assert (np.abs(result - layer(x).numpy()) <= within).all()
    assert stored < 80 * inner // 2 + 80 * inner // group * 5 + 80 * 8 + 4000


@pytest.mark.parametrize(("least", "found"), [(1, "MatMulNBits"), (2, "QGemm")])
def test_as_many_rows_as_there_are(least: int, found: str) -> None:
    """A prompt has several; where there may be one alone, as in generation, codes are read as they are."""
    layer = Packed(80, 64, 32, zero_points=False)
    dynamic = ({1: torch.export.Dim("length", min=least, max=32)},)
    program = edge(layer, (random(1, 20, 64),), dynamic)
    ours = Lowered(program, compile_specs=[CompileSpec("int8_products", b"1")])
    assert operators(ours)[found] == 1
    for length in (3, 32):
        x = random(1, length, 64)
        assert np.abs(ours(x)[0] - layer(x).numpy()).max() < 0.3  # of values up to 100


def on_a_known_grid(x: Tensor) -> Tensor:
    q = qd.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
    return qd.dequantize_per_tensor(q, 0.05, 3, -128, 127, torch.int8)  # type: ignore[no-any-return]


def narrowly(x: Tensor) -> Tensor:
    return dynamic(x, low=-64, high=63)


class RoundedPacked(Packed):
    """`Packed`, of what the program itself rounds."""

    def __init__(self, rounding: Callable[[Tensor], Tensor], biased: bool = True) -> None:
        super().__init__(80, 64, 32, zero_points=True)
        self.rounding, self.biased = rounding, biased
        self.bias = torch.nn.Parameter(random(80, seed=3))

    def forward(self, x: Tensor) -> Tensor:
        product = super().forward(self.rounding(x))
        return product + self.bias if self.biased else product


ROUNDINGS = [dynamic, by_token, on_a_known_grid, narrowly]
SHAPES: list[tuple[tuple[int, ...], int, Any]] = [
    ((2, 64), 2, None),
    ((16, 64), 16, None),
    ((128, 64), 128, None),
    ((2, 3, 64), 3, None),
    ((7, 64), 1, ({0: torch.export.Dim("rows", min=1, max=32)},)),
    ((7, 64), 2, ({0: torch.export.Dim("rows", min=2, max=32)},)),
    ((1, 20, 64), 1, ({1: torch.export.Dim("length", min=1, max=32)},)),
]
"""And the fewest rows"""


@pytest.mark.parametrize(("shape", "fewest", "dynamic_shapes"), SHAPES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("biased", [True, False])
def test_what_a_program_rounds_is_multiplied_as_integers(
    rounding: Callable[[Tensor], Tensor], shape: Sequence[int], fewest: int, dynamic_shapes: Any, biased: bool
) -> None:
    """By weights of 4 bits, without an option: they become int8 at load, off by half a step of their row at most."""
    layer, x = RoundedPacked(rounding, biased).eval(), random(*shape)
    ours = lowered(layer, x, dynamic_shapes=dynamic_shapes)
    found = operators(ours)
    assert (found["QGemm"], found["MatMulNBits"], found["MatMul"], found["Gemm"]) == (1, 0, 0, 0)
    assert len(ours.processed) < 80 * 64 // 2 + 80 * 2 * 5 + 80 * 8 + 10_000  # the file has the codes
    weight = Packed.forward(layer, torch.eye(64)).T
    for rows in (x, x[..., :fewest, :]):
        steps = weight.abs().amax(1) / 127 / 2
        within = (rounding(rows).abs().sum(-1, keepdim=True) * steps).detach().numpy() * 1.001
        tie = largest_step(rows) / 2 * weight.abs().amax().item()  # a value halfway between two codes gets the other
        expected = layer(rows).detach().numpy()
        ours_at = ours(rows)[0][tuple(slice(0, size) for size in expected.shape)]
        assert (np.abs(ours_at - expected) <= within + tie + 1e-4).all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shape", [(1, 64), (64,)])
def test_one_row_that_a_program_rounds_is_multiplied_by_codes(
    rounding: Callable[[Tensor], Tensor], shape: Sequence[int]
) -> None:
    """Which are half as many bytes; it is rounded once more, in blocks of a group."""
    layer, x = RoundedPacked(rounding).eval(), random(*shape)
    ours = lowered(layer, x)
    graph = onnx.ModelProto.FromString(bytes(unpack(ours.processed).graph)).graph
    (product,) = [node for node in graph.node if node.op_type == "MatMulNBits"]
    assert {a.name: a.i for a in product.attribute}["accuracy_level"] == 4
    weight = Packed.forward(layer, torch.eye(64)).T
    expected = layer(x).detach().numpy()
    assert (np.abs(ours(x)[0] - expected) <= off_by_halves_of(rounding(x), weight) + 1e-4).all()
    assert np.abs(ours(x)[0] - expected).max() > 0


def test_a_row_of_zeros_of_4_bits() -> None:
    layer = Packed(80, 64, 32, zero_points=False)
    layer.packed[5] = 0x88  # type: ignore[index]
    _, result, _ = rounded(layer, random(16, 64), "int8_products")
    assert (result[:, 5] == 0).all()


def test_methods_of_many_rows_and_of_one_share_codes() -> None:
    """As those of a language model that read its prompt, and go on."""
    layer = Packed(512, 512, 32, zero_points=False)
    programs = {name: torch.export.export(layer, (random(rows, 512),)) for name, rows in (("read", 32), ("go_on", 1))}
    one = len(bytes(delegraph.lower(programs["go_on"], backends=["cpu{int8_products=true}"])))
    both = len(bytes(delegraph.lower(programs, backends=["cpu{int8_products=true}"])))
    assert both < one + 512 * 512 // 2 // 4


@pytest.mark.parametrize(
    ("inner", "group", "zero_points"), [(20, 10, True), (100, 100, False), (72, 24, True), (60, 30, False)]
)
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_groups_that_the_kernel_does_not_have_are_filled_up(
    inner: int, group: int, zero_points: bool, shape: Sequence[int]
) -> None:
    found = compare(Packed(6, inner, group, zero_points), random(*shape, inner), step=1e-4)
    assert found["MatMulNBits"] == 1
    assert found["Pad"] == (inner != group)


# ---- experts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recipe", "count"), [("int4_weight_only", 3), ("int8_weight_only", 6), ("int8_dynamic", 6)])
def test_experts_are_products_of_codes(recipe: str, count: int) -> None:
    pytest.importorskip("transformers.integrations.moe", reason="it has the operator")

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrices = nn.Parameter(torch.randn(3, 8, 32))

        def forward(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = torch.ops.transformers.grouped_mm_fallback(rows, self.matrices.mT, ends)
            return made

    args = (torch.randn(6, 32), torch.tensor([1, 1, 6]))
    lowered = delegraph.lower(delegraph.quantize(Experts(), [args], recipe=recipe, backends=["cpu"]), backends=["cpu"])
    [blob] = deserialize_program(bytes(lowered)).delegate_data
    counts = Counter(node.op_type for node in onnx.ModelProto.FromString(bytes(unpack(blob).graph)).graph.node)
    assert counts["MatMulNBits"] == count
    assert not {"MatMul", "DequantizeLinear"} & counts.keys()


def test_one_row_has_the_blob_of_any_number_and_many_rows_have_their_own() -> None:
    """Of many rows quantized weights are multiplied otherwise."""
    layer, rows = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval(), torch.export.Dim("rows", min=2, max=64)
    programs = {
        "any": torch.export.export(layer, (torch.randn(4, 64),), dynamic_shapes=({0: rows},)),
        "many": torch.export.export(layer, (torch.randn(32, 64),)),
        "single": torch.export.export(layer, (torch.randn(1, 64),)),
    }
    quantized = delegraph.quantize(programs, recipe="int8_weight_only", backends=["cpu"])
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=["cpu"])), method="any")
    opened = {name: run[name].method._loaded.delegates.all[0].handle.opened for name in programs}
    assert opened["single"] is opened["any"]
    assert opened["many"] is not opened["any"]
    for name, count in (("any", 7), ("many", 32), ("single", 1)):
        x = torch.randn(count, 64)
        np.testing.assert_allclose(run[name](x.numpy()), layer(x).detach(), atol=0.02)
