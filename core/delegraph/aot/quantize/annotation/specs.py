"""A recipe -> torchao's specs of it: what a quantizer annotates values and weights with.

Imported when somebody quantizes, for it imports torchao.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from torchao.quantization.pt2e.fake_quantize import FakeQuantize, FakeQuantizeBase
from torchao.quantization.pt2e.observer import MinMaxObserver, PerChannelMinMaxObserver, PlaceholderObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from delegraph.aot.quantize.annotation.observers import OBSERVERS, TrainedObserver, TrainedPerChannelObserver
from delegraph.aot.quantize.recipes import Recipe

__all__ = ["activation_spec", "trainable", "weight_spec"]

_PER_CHANNEL = (torch.per_channel_symmetric, torch.per_channel_affine)

_LEAST: Final = 2**-60
"""The least scale, that of values which are all zero: what is smaller is lost. Of two of them the product, which is the
scale of a bias of integers, is no subnormal number."""


def activation_spec(recipe: Recipe) -> QuantizationSpec:
    """How a value is quantized: int8 with a zero point, -128 to 127; or int16 about zero, -32767 to 32767."""
    if recipe.dynamic:
        observer = PlaceholderObserver.with_args(eps=_LEAST)
        return QuantizationSpec(torch.int8, observer, -128, 127, torch.per_tensor_affine, is_dynamic=True)
    options = {"percentile": recipe.percentile} if recipe.observer == "percentile" else {}
    observer = OBSERVERS[recipe.observer].with_args(eps=_LEAST, **options)
    if recipe.activation_bits == 16:
        return QuantizationSpec(torch.int16, observer, -32767, 32767, torch.per_tensor_symmetric)
    return QuantizationSpec(torch.int8, observer, -128, 127, torch.per_tensor_affine)


def weight_spec(recipe: Recipe, ch_axis: int = 0) -> QuantizationSpec:
    """How a weight is quantized: int8 about zero, -127 to 127, or -63 to 63 if the recipe says `reduce_range`, with a
    scale for each index of dim `ch_axis`, or one."""
    most = 63 if recipe.reduce_range else 127
    if recipe.weight_axis == "tensor":
        observer = MinMaxObserver.with_args(eps=_LEAST)
        return QuantizationSpec(torch.int8, observer, -most, most, torch.per_tensor_symmetric)
    observer = PerChannelMinMaxObserver.with_args(eps=_LEAST)
    return QuantizationSpec(torch.int8, observer, -most, most, torch.per_channel_symmetric, ch_axis)


def trainable(spec: object) -> object:
    """The same spec for training: values are rounded as they flow, and gradients pass; a moving average of the ranges.

    A spec that is no `QuantizationSpec` with an observer, or is dynamic, stays as it is.
    """
    if not isinstance(spec, QuantizationSpec) or spec.is_dynamic:
        return spec
    if issubclass(_made_by(spec.observer_or_fake_quant_ctr), FakeQuantizeBase):
        return spec
    per_channel = spec.qscheme in _PER_CHANNEL
    observer = TrainedPerChannelObserver if per_channel else TrainedObserver
    axis = {"ch_axis": spec.ch_axis} if per_channel else {}
    rounding = FakeQuantize.with_args(observer=observer, eps=_LEAST, **axis)
    return replace(spec, observer_or_fake_quant_ctr=rounding)


def _made_by(constructor: Any) -> type:
    """The class behind torchao's `with_args`."""
    while not isinstance(constructor, type):
        constructor = constructor.p if hasattr(constructor, "p") else constructor.func
    return constructor
