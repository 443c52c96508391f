"""What stands between two layers on integers, or behind one, against the quantized program in eager; permuted channels
against the float model. Of roundings, which differ by ties, 45 dB; of float32, 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import openvino
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # the operators
from backends.openvino.tests.harness import check, declined, load, lower
from torch import Tensor
from torch.nn import functional as F

import delegraph
from delegraph_openvino.runtime.saturation import products_saturate

OPS: Final = torch.ops.quantized_decomposed
ZEROS: Final = [-128, -10, 0, 90]
LIMITS: Final = torch.tensor(-0.513), torch.tensor(0.517)

Function = Callable[[Tensor], Tensor]


def rounded(x: Tensor, scale: float, zero: int) -> Tensor:
    """`x` on a grid of int8."""
    settings = (scale, zero, -128, 127, torch.int8)
    result: Tensor = OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, *settings), *settings)
    return result


class Between(torch.nn.Module):
    """`function` of what is rounded, if `rounds`, and in front of a layer that is computed on integers."""

    def __init__(self, function: Function, zero: int, example: Tensor, rounds: bool) -> None:
        super().__init__()
        self.function, self.zero, self.rounds = function, zero, rounds
        result = function(example)
        self.channels_last = result.dim() < 4
        shape = (6, result.shape[-1]) if self.channels_last else (6, result.shape[1], 1, 1)
        self.register_buffer("weight", torch.randint(-127, 127, shape, dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.function(rounded(x, 0.031, self.zero) if self.rounds else x)
        weight = OPS.dequantize_per_tensor(self.weight, 0.03, 0, -127, 127, torch.int8)
        layer = F.linear if self.channels_last else F.conv2d
        result: Tensor = layer(rounded(y, 0.0239, self.zero), weight)  # type: ignore[operator]
        return result


def signal_to_error(wanted: Tensor, given: Any) -> float:
    error = np.square(wanted.detach().numpy() - given).sum()
    return float(10 * np.log10(np.square(wanted.detach().numpy()).sum() / max(error, 1e-30)))


def check_between(function: Function, zero: int, rounds: bool = True, size: tuple[int, ...] = (2, 8, 12, 11)) -> None:
    torch.manual_seed(0)
    x = torch.randn(size) + (2 if zero == -128 else 0)  # of what is positive alone the grid begins with zero
    model = Between(function, zero, x, rounds).eval()
    lowered = lower(model, (x,))
    assert declined(lowered) == {} and len(lowered.report.methods["forward"].delegates) == 1
    assert signal_to_error(model(x), load(lowered)(x.numpy())) > 45


EXTREMES: Final[dict[str, Function]] = {
    "amax": lambda x: x.amax(1),
    "amax of the last": lambda x: x.amax(-1),
    "amax of places": lambda x: x.amax((2, 3)),
    "amax keeping": lambda x: x.amax((2, 3), True),
    "amin": lambda x: x.amin(2) + 3,
    "amin keeping": lambda x: x.amin(0, True) + 3,
    "amax, multiplied": lambda x: x.amax(1).relu() * 0.7,
    "max": lambda x: x.max() * 0.3 + x,
    "sum": lambda x: x.sum(1) * 0.2,
    "prod": lambda x: x[..., :2].prod(3),
    "mean": lambda x: x.mean((2, 3), True),
}


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("name", EXTREMES)
def test_reductions_in_front_of_a_rounding(name: str, zero: int) -> None:
    check_between(EXTREMES[name], zero, rounds=False)


@pytest.mark.parametrize("name", EXTREMES)
def test_reductions_of_rounded_values(name: str) -> None:
    check_between(EXTREMES[name], -10)


POOLING: Final[dict[str, Function]] = {
    "average, padded": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "average, padded, in steps": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average, padded one way": lambda x: F.avg_pool2d(x, (1, 5), (1, 2), (0, 2)),
    "average, padded, of maxima": lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 3, 1, 1),
    "average, uncounted": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "average, up": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "maximum, padded": lambda x: F.max_pool2d(x, 3, 2, 1),
    "joined": lambda x: torch.cat([F.max_pool2d(x, 3, 1, 1), F.avg_pool2d(x, 3, 1, 1)], 1),
    "zeros around": lambda x: F.pad(x, (1, 1, 1, 1)),
    "zeros behind": lambda x: F.pad(x, (0, 2)),
    "a number behind": lambda x: F.pad(x, (0, 2), value=0.713),
    "a number among channels": lambda x: F.pad(x, (0, 0, 0, 0, 1, 1), value=0.713),
    "a number below the grid": lambda x: F.pad(x, (1, 1), value=-9.0),
    "larger": lambda x: F.interpolate(x, scale_factor=2),
    "larger, smooth": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("name", POOLING)
def test_pooling_and_padding_of_rounded_values(name: str, zero: int) -> None:
    check_between(POOLING[name], zero)


@pytest.mark.parametrize("zero", ZEROS)
def test_zeros_around_a_single_rounded_element(zero: int) -> None:
    torch.manual_seed(0)
    check(lambda x: F.pad(rounded(x.mean(-1, True), 0.031, zero), (1, 1)), torch.randn(2, 3), rtol=0, atol=1e-5)


BOUNDS: Final[dict[str, Function]] = {
    "clamp": lambda x: x.clamp(-0.513, 0.517),
    "clamp, below": lambda x: x.clamp(min=-0.513),
    "clamp, above": lambda x: x.clamp(max=0.517),
    "clamp by tensors": lambda x: x.clamp(*LIMITS),
    "relu6": lambda x: F.relu6(x * 2),
    "hardtanh": F.hardtanh,
    "clamp of maxima": lambda x: F.max_pool2d(x, 2).clamp(-0.513, 0.517),
    "clamp of a view": lambda x: x.flatten(2).clamp(-0.513, 0.517),
    "smaller of larger": lambda x: torch.minimum(torch.maximum(x, LIMITS[0]), LIMITS[1]),
    "larger of smaller": lambda x: torch.maximum(torch.minimum(x, LIMITS[1]), LIMITS[0]),
    "larger of two": lambda x: torch.maximum(*x.chunk(2, 1)),
    "where": lambda x: torch.where(x > 0.2, x, 0.713),
}


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("name", BOUNDS)
def test_limits_of_rounded_values_are_not_rounded(name: str, zero: int) -> None:
    """In front of a layer, and as the result: the limits themselves, to 1e-5."""
    check_between(BOUNDS[name], zero)
    torch.manual_seed(0)
    check(lambda x: BOUNDS[name](rounded(x, 0.031, zero)), torch.randn(2, 4, 6, 6), rtol=0, atol=1e-5)


def test_a_pool_between_two_layers() -> None:
    """As `delegraph.quantize` writes it."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.AvgPool2d(3, 1, 1), torch.nn.Conv2d(8, 4, 3, padding=1)]
    data = [(torch.randn(1, 3, 12, 12),) for _ in range(3)]
    program = delegraph.quantize(torch.nn.Sequential(*layers).eval(), data, backends=["openvino"])
    wanted = program.program.module()(*data[0])
    assert signal_to_error(wanted, load(delegraph.lower(program, backends=["openvino"]))(data[0][0].numpy())) > 45


# ---- behind a layer -------------------------------------------------------------------------------------------------

PICKS: Final = torch.tensor([3, 1, 5, 0])

BEHIND: Final[dict[str, Function]] = {
    "sum of channels": lambda y: y.sum(1),
    "sum of places": lambda y: y.sum(-1),
    "mean of channels": lambda y: y.mean(1),
    "mean of places": lambda y: y.mean(-1),
    "roll": lambda y: y.roll(1, 1),
    "roll of places": lambda y: y.roll(2, -1),
    "index": lambda y: y[:, PICKS],
    "index of places": lambda y: y[..., PICKS],
    "select": lambda y: y[:, 0],
    "select of dim 2": lambda y: y[:, :, 0],
    "select of places": lambda y: y[..., -1],
    "slice": lambda y: y[:, 1:3, ::2],
    "std": lambda y: y.std(-1),
    "flip": lambda y: y.flip(1),
    "gather": lambda y: y.gather(1, PICKS.view(1, 4, *[1] * (y.dim() - 2)).expand(2, 4, *y.shape[2:])),
    "cat": lambda y: torch.cat([y[:, 3:], y[:, :3], y], 1),
    "transpose": lambda y: y.transpose(1, 2),
    "max": lambda y: y.amax(-1),
}

NO_BIAS: Final[dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]]] = {
    "conv1d": (lambda: torch.nn.Conv1d(3, 8, 3, bias=False), (2, 3, 10)),
    "conv2d": (lambda: torch.nn.Conv2d(3, 8, 3, bias=False), (2, 3, 9, 10)),
    "grouped": (lambda: torch.nn.Conv2d(4, 8, 3, groups=2, bias=False), (2, 4, 9, 10)),
    "transposed": (lambda: torch.nn.ConvTranspose2d(3, 8, 2, stride=2, bias=False), (2, 3, 5, 6)),
    "linear": (lambda: torch.nn.Linear(16, 12, bias=False), (2, 8, 16)),
    "a bias of zeros": (lambda: _of_zeros(torch.nn.Conv2d(3, 8, 3)), (2, 3, 9, 10)),
}


def _of_zeros(layer: torch.nn.Conv2d) -> torch.nn.Module:
    torch.nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


class Behind(torch.nn.Module):
    """`function` behind a layer whose channels are of very different sizes."""

    def __init__(self, layer: Any, function: Function) -> None:
        super().__init__()
        self.layer, self.function = layer, function
        by_channel = 1 if isinstance(layer, torch.nn.ConvTranspose2d) else 0
        channels = layer.weight.shape[by_channel]
        sizes = torch.linspace(0.2, 5, channels).view(-1, *[1] * (layer.weight.dim() - 1))
        with torch.no_grad():
            layer.weight *= sizes.transpose(0, by_channel)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


@pytest.mark.parametrize("layer", NO_BIAS)
@pytest.mark.parametrize("name", BEHIND)
def test_what_is_behind_a_layer_without_bias(name: str, layer: str) -> None:
    """As the result, and in front of a layer."""
    torch.manual_seed(0)
    make, size = NO_BIAS[layer]
    data = [(torch.randn(size),) for _ in range(2)]
    model = Behind(make(), BEHIND[name])
    last = torch.nn.Linear(model(*data[0]).shape[-1], 4)
    for whole in (model, torch.nn.Sequential(model, torch.nn.ReLU(), last)):
        program = delegraph.quantize(whole.eval(), data, backends=["openvino"])
        wanted = program.program.module()(*data[0])
        given = load(delegraph.lower(program, backends=["openvino"]))(data[0][0].numpy())
        assert given.shape == wanted.shape
        assert signal_to_error(wanted, given) > 45


SCALED: Final[dict[str, Function]] = {
    "a vector by a vector": lambda x: F.linear(x, torch.arange(4.0)) * torch.full((1,), 0.7),
    "a vector by a matrix, and a bias": lambda x: F.linear(x, torch.ones(1, 4), torch.ones(1)) + torch.full((1, 1), 2),
    "an image without batch": lambda x: F.conv1d(x[None], torch.ones(1, 1, 2)) / torch.full((1, 1, 1), 0.3),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_scale_behind_a_layer_has_dims_of_its_own(name: str) -> None:
    check(SCALED[name], torch.randn(4, generator=torch.Generator().manual_seed(0)))


def test_layers_without_bias_give_zeros_where_they_read_zeros() -> None:
    """No number in the place of the bias, however small."""
    torch.manual_seed(0)
    model, x = torch.nn.Conv2d(3, 8, 3, bias=False).eval(), torch.randn(1, 3, 9, 10)
    program = delegraph.quantize(model, [(x,)], backends=["openvino"])
    largest = x.abs().max().item() / 255 * model.weight.abs().max().item()
    given = load(delegraph.lower(program, backends=["openvino"]))(np.zeros_like(x.numpy()))
    # in float32 zero is 128 * scale - 128 * scale, summed over 27 weights, each product rounded by itself
    rounding = 27 * 128 * np.finfo(np.float32).eps if products_saturate(openvino.Core()) else 0.0
    assert np.abs(given).max() <= rounding * largest


# ---- float ----------------------------------------------------------------------------------------------------------

ORDER: Final = torch.tensor([1, 2, 0, 3, 5, 6, 7, 4])
"""A permutation that is not its own inverse."""
FROM_BEHIND: Final = ORDER - 8

PERMUTATIONS: Final[dict[str, Function]] = {
    "index": lambda x: x[:, ORDER],
    "index from behind": lambda x: x[:, FROM_BEHIND],
    "index_select": lambda x: x.index_select(1, ORDER),
    "index_select from behind": lambda x: x.index_select(-3, ORDER),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(3, 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "chunk and cat": lambda x: torch.cat([x.chunk(4, 1)[i] for i in (1, 2, 0, 3)], 1),
    "index and relu": lambda x: (x * 2)[:, ORDER].relu(),
    "index of another dim": lambda x: x[..., ORDER],
}
LAYERS: Final[dict[str, Callable[[], torch.nn.Module]]] = {
    "conv": lambda: torch.nn.Conv2d(8, 4, 3),
    "grouped": lambda: torch.nn.Conv2d(8, 4, 3, groups=2),
    "depthwise": lambda: torch.nn.Conv2d(8, 8, 3, groups=8),
    "transposed": lambda: torch.nn.ConvTranspose2d(8, 4, 3),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", PERMUTATIONS)
def test_permuted_channels_of_a_layer(name: str, layer: str) -> None:
    torch.manual_seed(0)
    convolution = LAYERS[layer]().requires_grad_(False)
    check(lambda x: convolution(PERMUTATIONS[name](x)), torch.randn(2, 8, 8, 8))


@pytest.mark.parametrize("kernel", [2, 3])
def test_windows_beyond_counted_padding(kernel: int) -> None:
    """OpenVINO divides by their whole size, torch by what of it lies in the padding: they are counted ahead of time."""
    x = torch.randn(1, 2, 12, 12)
    model = torch.nn.Sequential(torch.nn.AvgPool2d(kernel, 2, 1, ceil_mode=True), torch.nn.Sigmoid()).eval()
    lowered = lower(model, (x,))
    assert declined(lowered) == {}
    np.testing.assert_allclose(load(lowered)(x.numpy()), model(x).numpy(), atol=1e-5)


JUMPS: Final[dict[str, Function]] = {
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "above zero": lambda x: (x > 0).float(),
    "zero or above": lambda x: (x >= 0).float(),
    "not zero": lambda x: x.bool().float(),
    "no": lambda x: torch.logical_not(x).float(),
    "behind others": lambda x: torch.sign(F.relu(x * 3.0)),
}


@pytest.mark.parametrize("name", JUMPS)
def test_what_jumps_at_zero_finds_the_zero_of_a_grid(name: str) -> None:
    """OpenVINO's own rounding gives 1e-8 there on the one grid, and less than 0 on the other."""
    for scale, zero in ((0.0237, -13), (0.1, 5)):
        x = (torch.arange(-128, 128).float() - zero)[None] * scale
        settings = (scale, zero)

        def function(x: Tensor, settings: tuple[float, int] = settings) -> Tensor:
            return JUMPS[name](rounded(x, *settings))

        check(function, x, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-8, 1e-10])
def test_a_grid_as_fine_as_roundings(scale: float) -> None:
    """Joined with the grid before, OpenVINO loses such steps, or gives NaN: the fine one is left to kernels."""

    class Means(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return rounded(rounded(x, 0.0092, 30).mean(-1, keepdim=True), scale, 30)

    x, model = torch.linspace(-1, 1, 6).view(1, 2, 3), Means()
    lowered = delegraph.lower(model, (x,), backends=["openvino"])
    assert ("its step is" in str(lowered.report)) == (scale < 1e-6)
    result = delegraph.load(bytes(lowered))(x)
    torch.testing.assert_close(result, model(x), rtol=0, atol=1.001 * scale)
