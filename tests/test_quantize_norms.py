"""Batch norms that are folded into the layer before them, and those that must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import delegraph
from delegraph.aot.quantize.measurement.measure import sqnr

pytestmark = pytest.mark.models

Tensor = torch.Tensor


class Normed(nn.Module):
    """A layer and two norms, which `call` puts together."""

    def __init__(self, layer: nn.Module, norm: Callable[[int], nn.Module], call: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.norm, self.other, self.call = layer, norm(8), norm(8), call

    def forward(self, x: Tensor) -> Any:
        return self.call(self, x)


CALLS: dict[str, Callable[..., Any]] = {
    "alone": lambda m, x: m.norm(m.layer(x)).relu(),
    "read again": lambda m, x: (lambda y: y + m.norm(y).relu())(m.layer(x)),
    "two norms of one result": lambda m, x: (lambda y: (m.norm(y), m.other(y)))(m.layer(x)),
    "two norms of one weight": lambda m, x: (m.norm(m.layer(x)), m.other(m.layer(x / 2))),
    "one norm of one weight twice": lambda m, x: (m.norm(m.layer(x)), m.norm(m.layer(x / 2))),
    "a weight that is tied": lambda m, x: (m.norm(m.layer(x)), m.layer(x / 2)),
    "a norm of a norm": lambda m, x: m.other(m.norm(m.layer(x))),
    "numbers of the batch": lambda m, x: F.batch_norm(m.layer(x), None, None, training=True),
    "numbers made in forward": lambda m, x: F.batch_norm(m.layer(x), torch.zeros(8), torch.full((8,), 2.0)),
}

FOLDED = ("alone", "one norm of one weight twice", "a norm of a norm")

KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d, (4, 3, 16)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d, (4, 3, 8, 8)),
    "conv2d, padded by a word": (lambda: nn.Conv2d(3, 8, 3, padding="same", bias=False), nn.BatchNorm2d, (4, 3, 8, 8)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 8, 3, padding=1, groups=2), nn.BatchNorm2d, (4, 4, 8, 8)),
    "linear": (lambda: nn.Linear(16, 8), nn.BatchNorm1d, (32, 16)),
}


def trained(model: nn.Module, x: Tensor) -> nn.Module:
    """With norms that do something."""
    for one in model.modules():
        if isinstance(one, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(one.weight, 0.5, 2)
            nn.init.normal_(one.bias)
    with torch.no_grad():
        for _ in range(8):
            model.train()(x + torch.randn_like(x))
    return model.eval()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=",".join)
def test_a_norm_is_folded_into_what_it_alone_reads(call: Callable[..., Any], kind: Any, backends: list[str]) -> None:
    torch.manual_seed(0)
    layer, norm, shape = kind
    x = torch.randn(shape)
    model = trained(Normed(layer(), norm, call), x)
    quantized = delegraph.quantize(model, [(x,)], backends=backends)
    with torch.no_grad():
        wanted, got = model(x), quantized.program.module()(x)
    pairs = zip(wanted, got, strict=True) if isinstance(wanted, tuple) else [(wanted, got)]
    assert all(sqnr(pair) > 28 for pair in pairs)
    left = [node for node in quantized.program.graph.nodes if node.target is torch.ops.aten.batch_norm.default]
    assert (not left) == (call in [CALLS[name] for name in FOLDED])


def test_a_norm_stays_where_one_weight_has_two_biases() -> None:
    class Biases(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.biases = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.randn(2, 8))
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            first, second = (self.norm(F.conv2d(x, self.weight, bias)) for bias in self.biases)
            return first + second

    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    model = trained(Biases(), x)
    with torch.no_grad():
        assert sqnr((model(x), delegraph.quantize(model, [(x,)]).program.module()(x))) > 28


def test_norms_that_stay_are_not_looked_for_in_a_hundred_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao would: 12 seconds and more for each model with such a norm."""
    from torchao.quantization.pt2e import qat_utils

    def look(*_: object) -> None:
        raise AssertionError("looks for norms of training")

    monkeypatch.setattr(qat_utils, "_fold_conv_bn_qat_helper", look)
    x = torch.randn(2, 3, 8, 8)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)).eval()
    with torch.no_grad():
        assert sqnr((model(x), delegraph.quantize(model, [(x,)]).program.module()(x))) > 28
