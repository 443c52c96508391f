"""What stages use of torchao, imported when a model is quantized: the other sessions need none."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ComposableQuantizer",
    "convert_pt2e",
    "is_pt2e_quantizer",
    "prepare_pt2e",
    "quantize_",
    "unwrap_tensor_subclass",
]


def quantize_(model: Any, config: Any, filter_fn: Any) -> None:
    """`torchao.quantization.quantize_`: change the model's weights in place."""
    from torchao.quantization import quantize_

    quantize_(model, config, filter_fn)


def unwrap_tensor_subclass(model: Any) -> None:
    """`torchao.utils.unwrap_tensor_subclass`: make quantized weights plain tensors, which can be exported."""
    from torchao.utils import unwrap_tensor_subclass

    unwrap_tensor_subclass(model)


def prepare_pt2e(model: Any, quantizer: Any) -> Any:
    """`prepare_pt2e`: put observers into an exported graph."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    return prepare_pt2e(model, quantizer)


def convert_pt2e(model: Any) -> Any:
    """`convert_pt2e`: put what was observed in the place of the observers."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    return convert_pt2e(model)


def ComposableQuantizer(quantizers: Any) -> Any:
    """torchao's quantizer that asks several, in order."""
    from torchao.quantization.pt2e.quantizer import ComposableQuantizer

    return ComposableQuantizer(quantizers)


def is_pt2e_quantizer(quantizer: Any) -> bool:
    """Whether it is one of torchao's; else it is one of `torch.ao`, which came before."""
    from torchao.quantization.pt2e.quantizer import Quantizer

    return isinstance(quantizer, Quantizer)
