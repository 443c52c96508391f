"""The quantizer SampleName for Delegraph: linear layers and convolutions, in the recipe that the user asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from delegraph.aot import Recipe, activation_spec, recipe_named, weight_spec
from delegraph.errors import LoweringError

__all__ = ["SampleNameQuantizer", "sample_name_quantizer"]

aten = torch.ops.aten
LAYERS = (aten.linear.default, aten.conv2d.default)


class SampleNameQuantizer:
    """Fits torchao's `Quantizer`: annotates the inputs, weights and results of `LAYERS`."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def annotate(self, model: GraphModule) -> GraphModule:
        for node in model.graph.nodes:
            if node.op == "call_function" and node.target in LAYERS and "quantization_annotation" not in node.meta:
                node.meta["quantization_annotation"] = self._annotation(node)
        return model

    def _annotation(self, node: Node) -> Any:
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

        value, (source, weight) = activation_spec(self.recipe), node.args[:2]
        return QuantizationAnnotation(
            input_qspec_map={source: value, weight: weight_spec(self.recipe)}, output_qspec=value, _annotated=True
        )

    def validate(self, model: GraphModule) -> None:
        """Whatever is annotated here, the device can do."""


def sample_name_quantizer(*, recipe: str = "int8") -> SampleNameQuantizer:
    """Users write `quantizers=["sample_name"]` or `"sample_name{recipe=int8_per_tensor}"`."""
    chosen = recipe_named(recipe)
    if chosen.activation_bits is None or chosen.weight_bits != 8 or chosen.dynamic:
        raise LoweringError(f"quantizer 'sample_name' quantizes values and weights to 8 bits, and has no {recipe!r}")
    return SampleNameQuantizer(chosen)
