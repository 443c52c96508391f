"""Observers: the ranges that they choose, against torchao's on the same values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchao.quantization.pt2e.observer import HistogramObserver as TorchaoHistogramObserver
from torchao.quantization.pt2e.observer import MinMaxObserver

from delegraph.aot import HistogramObserver, PercentileObserver
from delegraph.aot.quantize.annotation.observers import OBSERVERS

Batches = list[torch.Tensor]


def values(kind: str) -> Batches:
    generator = torch.Generator().manual_seed(0)
    normal = [torch.randn(20_000, generator=generator) * (1 + number) for number in range(3)]
    made = {
        "normal": normal,
        "relu": [x.relu() for x in normal],
        "relu6": [(x * 3).clamp(0, 6) for x in normal],
        "away from zero": [x + 9 for x in normal],
        "an outlier": [*normal, torch.tensor([300.0])],
        "one side": [x.square() - 0.3 for x in normal],
        "long tails": [x**3 for x in normal],
        "mixed": [torch.cat([x * 0.1, x[:100] * 10]) for x in normal],
    }
    return made[kind]


KINDS = ["normal", "relu", "relu6", "away from zero", "an outlier", "one side", "long tails", "mixed"]


def error(observer: Any, batches: Batches) -> float:
    """Mean square error of all values, quantized with what the observer found."""
    for batch in batches:
        assert observer(batch) is batch
    scale, zero = observer.calculate_qparams()
    x = torch.cat(batches)
    codes = torch.clamp(torch.round(x / scale) + zero, observer.quant_min, observer.quant_max)
    return float(((codes - zero) * scale - x).square().mean())


def made(kind: Any, symmetric: bool) -> Any:
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    return kind(dtype=torch.int8, qscheme=scheme, quant_min=-127 if symmetric else -128, quant_max=127)


@pytest.mark.parametrize("symmetric", [False, True], ids=["affine", "symmetric"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_histogram_s_range_is_as_good_as_any(kind: str, symmetric: bool) -> None:
    batches = values(kind)
    ours = error(made(HistogramObserver, symmetric), batches)
    # bins are counted as points: so near, for a range that ends where many values lie
    assert ours <= 1.02 * error(made(TorchaoHistogramObserver, symmetric), batches)
    assert ours <= 1.02 * error(made(MinMaxObserver, symmetric), batches)


def test_the_order_of_batches_does_not_matter() -> None:
    """Bins become wider in place, none is split."""
    batches = values("long tails")
    one, other = made(HistogramObserver, False), made(HistogramObserver, False)
    error(one, batches)
    error(other, [*reversed(batches)])
    torch.testing.assert_close(one.calculate_qparams()[0], other.calculate_qparams()[0], rtol=0.02, atol=0)


def test_a_percentile_leaves_out_as_many_on_either_side() -> None:
    x = torch.arange(-5000.0, 5001)
    observer = PercentileObserver(percentile=90, dtype=torch.int8)
    observer(x)
    low, high = observer.best_range()
    assert float((x < low).float().mean()) == pytest.approx(0.05, abs=0.002)
    assert float((x > high).float().mean()) == pytest.approx(0.05, abs=0.002)


@pytest.mark.parametrize("kind", OBSERVERS.values(), ids=OBSERVERS)
def test_what_has_no_range(kind: Any) -> None:
    nothing, zeros, infinite, constant = (made(kind, False) for _ in range(4))
    nothing(torch.empty(0))
    zeros(torch.zeros(8))
    infinite(torch.tensor([torch.inf, -torch.inf, torch.nan]))
    for observer in (nothing, zeros, infinite):
        if observer is not zeros:
            with pytest.warns(UserWarning, match="must run observer before"):
                scale, _ = observer.calculate_qparams()
        else:
            scale, _ = observer.calculate_qparams()
        assert torch.isfinite(scale).all()
        assert (scale > 0).all()
    constant(torch.full((8,), 2.5))
    scale, zero = constant.calculate_qparams()
    assert float((127 - zero) * scale) == pytest.approx(2.5, rel=0.02)
    partly = made(kind, False)
    partly(torch.tensor([1.0, torch.inf, 0.0]))
    assert float(partly.calculate_qparams()[0]) < 0.01


@pytest.mark.parametrize("symmetric", [False, True], ids=["affine", "symmetric"])
@pytest.mark.parametrize("kind", OBSERVERS.values(), ids=OBSERVERS)
def test_what_is_not_finite_is_passed_over(kind: Any, symmetric: bool) -> None:
    """A pool pads with -inf, which becomes the lowest integer, and the range is that of the others."""
    whole, holed = made(kind, symmetric), made(kind, symmetric)
    for batch in values("normal"):
        whole(batch)
        padded = torch.cat([torch.tensor([-torch.inf, torch.nan, torch.inf]), batch])
        assert holed(padded) is padded
    for got, wanted in zip(holed.calculate_qparams(), whole.calculate_qparams(), strict=True):
        assert torch.equal(got, wanted)


def test_a_scale_for_each_channel_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="one range of a whole tensor, not for"):
        HistogramObserver(qscheme=torch.per_channel_symmetric)
