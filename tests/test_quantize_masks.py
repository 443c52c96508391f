"""What hides scores from a softmax, quantized: it hides as much as before, whatever a mask's numbers are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import delegraph
from delegraph.aot.quantize.annotation.observers import OBSERVERS
from delegraph.aot.quantize.measurement.measure import sqnr

pytestmark = pytest.mark.long

LOWEST = torch.finfo(torch.float32).min
BACKENDS = ([], ["cpu"], ["npu"], ["dsp"], ["openvino"])


class Attention(nn.Module):
    """Written out, or in one call; `how` the mask comes into the scores."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.qkv, self.bias = how, nn.Linear(32, 96), nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / 32**0.5
        if self.how == "added":
            return torch.softmax(scores + mask, -1) @ v
        if self.how == "added twice":
            return torch.softmax(((scores + self.bias).view(2, 1, 8, 8) + mask).view(2, 8, 8), -1) @ v
        if self.how == "made of ones and zeros":
            return torch.softmax(scores + (1.0 - (mask == 0).float()) * -10000.0, -1) @ v
        if self.how == "filled":
            return torch.softmax(scores.masked_fill(mask < 0, -math.inf), -1) @ v
        if self.how == "chosen":
            return torch.softmax(torch.where(mask < 0, LOWEST, scores), -1) @ v
        return F.scaled_dot_product_attention(q, k, v, mask + mask / 2)


WAYS = ("added", "added twice", "made of ones and zeros", "filled", "chosen", "in one call")


@pytest.mark.models
@pytest.mark.parametrize("hidden", [-math.inf, -10000.0, LOWEST / 2])
@pytest.mark.parametrize("how", WAYS)
def test_a_mask_hides_as_much_as_before(how: str, hidden: float) -> None:
    torch.manual_seed(0)
    model, mask = Attention(how).eval(), torch.full((8, 8), hidden).triu(1)
    data = [(torch.randn(2, 8, 32) * 3, mask) for _ in range(3)]
    for backends in BACKENDS:
        quantized = delegraph.quantize(model, data, backends=backends)
        decibels = quantized.report.methods["forward"].output_sqnr
        assert decibels is not None and decibels > 20, backends


@pytest.mark.parametrize("backends", BACKENDS)
def test_what_comes_later_changes_nothing(backends: list[str]) -> None:
    torch.manual_seed(0)
    model, mask = Attention("added").eval(), torch.full((8, 8), -math.inf).triu(1)
    x = torch.randn(2, 8, 32)
    lowered = bytes(delegraph.lower(delegraph.quantize(model, [(x, mask)], backends=backends), backends=backends))
    other = torch.cat([x[:, :4], torch.randn(2, 4, 32)], 1)
    run = delegraph.load(lowered)
    before, after = (np.asarray(run(one.numpy(), mask.numpy())) for one in (x, other))
    assert (before[:, :4] == after[:, :4]).all() and (before[:, 4:] != after[:, 4:]).any()


def test_data_without_padding_says_nothing_about_masks() -> None:
    torch.manual_seed(0)
    model, x = Attention("made of ones and zeros").eval(), torch.randn(2, 8, 32)
    seen, masked = torch.zeros(8, 8), torch.full((8, 8), -1.0).triu(1)
    other = torch.cat([x[:, :4], torch.randn(2, 4, 32)], 1)
    for backends in BACKENDS:
        quantized = delegraph.quantize(model, [(x, seen)], backends=backends).program.module()
        with torch.no_grad():
            assert (quantized(x, masked) == quantized(other, masked))[:, :4].all(), backends


def test_scores_without_a_mask_are_rounded() -> None:
    class Plain(Attention):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return torch.softmax((q @ k.mT / 32**0.5) + 1.0, -1) @ v

    quantized = delegraph.quantize(Plain("").eval(), [(torch.randn(2, 8, 32), torch.zeros(8, 8))], backends=["npu"])
    assert rounds_softmax(quantized)


class Windows(nn.Module):
    """Swin's attention: a bias for each offset of two places, from a table; `shift` is a mask of the model's own."""

    def __init__(self, spread: float = 1.0, shift: float = 0.0, in_one_call: bool = False) -> None:
        super().__init__()
        self.qkv, self.table = nn.Linear(32, 96), nn.Parameter(torch.linspace(0, spread, 15))
        self.shift, self.in_one_call = shift, in_one_call
        self.register_buffer("places", torch.arange(8)[:, None] - torch.arange(8) + 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        bias = self.table[self.get_buffer("places").view(-1)].view(8, 8)
        if self.in_one_call:
            return F.scaled_dot_product_attention(q, k, v, bias)
        scores = q @ k.mT / 32**0.5 + bias
        if self.shift:
            scores = scores + torch.full((8, 8), self.shift).triu(1)
        return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("backend", ["npu", "dsp"])
def test_biases_of_positions_are_rounded_with_the_scores(backend: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 32)
    for in_one_call in (False, True) if backend == "dsp" else (False,):
        model = Windows(in_one_call=in_one_call).eval()
        quantized = delegraph.quantize(model, [(x,)], backends=[backend])
        assert rounds_softmax(quantized)
        decibels = quantized.report.methods["forward"].output_sqnr
        assert decibels is not None and decibels > 30


@pytest.mark.parametrize("model", [Windows(spread=20.0), Windows(shift=-100.0), Windows(shift=-math.inf)])
def test_constants_that_lie_far_apart_are_masks(model: nn.Module) -> None:
    assert not rounds_softmax(delegraph.quantize(model.eval(), [(torch.randn(2, 8, 32),)], backends=["dsp"]))


def rounds_softmax(quantized: delegraph.QuantizedModel) -> bool:
    (softmax,) = (node for node in quantized.program.graph.nodes if node.target == torch.ops.aten.softmax.int)
    return "dequantize" in str(softmax.args[0])


@pytest.mark.parametrize("observer", OBSERVERS)
def test_batches_of_the_largest_numbers_after_small_ones(observer: str) -> None:
    torch.manual_seed(0)
    model, x = Attention("added").eval(), torch.randn(2, 8, 32)
    data = [(x, torch.zeros(8, 8)), (x, torch.full((8, 8), LOWEST).triu(1))]
    for backends in BACKENDS:
        quantized = delegraph.quantize(model, data, recipe=f"int8{{observer={observer}}}", backends=backends)
        with torch.no_grad():
            decibels = sqnr((model(*data[1]), quantized.program.module()(*data[1])))
        assert decibels > (5 if observer == "moving_average" else 20), backends  # which hardly sees the second batch
