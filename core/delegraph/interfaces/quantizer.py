"""A model -> the same model with annotations that say how its values are quantized: what a quantizer does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch.fx import GraphModule

__all__ = ["Quantizer", "QuantizerFactory"]


class Quantizer(Protocol):
    """torchao's `Quantizer` (`torchao/quantization/pt2e/quantizer/quantizer.py`), of which nothing else is used."""

    def annotate(self, model: GraphModule) -> GraphModule:
        """Say on the nodes of `model`, in `node.meta`, how their inputs and outputs are quantized."""

    def validate(self, model: GraphModule) -> None:
        """Raise if the annotated `model` is more than the device can do."""


class QuantizerFactory(Protocol):
    """What stands behind a `delegraph.quantizers` entry point, whose name is the strategy's."""

    def __call__(self, options: Mapping[str, Any], /) -> Quantizer:
        """Make a quantizer. As with `PartitionerFactory`, options may be keyword parameters."""
