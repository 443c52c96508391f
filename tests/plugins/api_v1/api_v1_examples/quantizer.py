"""A quantizer of linear layers, in whatever recipe the user asks for."""

import torch

from delegraph.aot import activation_spec, recipe_named, weight_spec


class ApiV1Quantizer:
    """Annotates the inputs, weights and results of linear layers."""

    def __init__(self, recipe):
        self.recipe = recipe

    def annotate(self, model):
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

        for node in model.graph.nodes:
            if node.target == torch.ops.aten.linear.default and "quantization_annotation" not in node.meta:
                values, (source, weight) = activation_spec(self.recipe), node.args[:2]
                specs = {source: values, weight: weight_spec(self.recipe)}
                node.meta["quantization_annotation"] = QuantizationAnnotation(
                    input_qspec_map=specs, output_qspec=values, _annotated=True
                )
        return model

    def validate(self, model):
        pass


def api_v1_quantizer(*, recipe="int8"):
    """The factory."""
    return ApiV1Quantizer(recipe_named(recipe))
