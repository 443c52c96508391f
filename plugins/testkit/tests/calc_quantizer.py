"""calc's quantizer: linear layers, by the recipe that the user asks for."""

import torch

from delegraph.aot import activation_spec, recipe_named, weight_spec


class CalcQuantizer:
    """Annotates what goes into linear layers and comes out of them."""

    def __init__(self, recipe):
        self.recipe = recipe

    def annotate(self, model):
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

        value, weights = activation_spec(self.recipe), weight_spec(self.recipe)
        for node in model.graph.nodes:
            if node.target == torch.ops.aten.linear.default and "quantization_annotation" not in node.meta:
                inputs = {node.args[0]: value, node.args[1]: weights}
                node.meta["quantization_annotation"] = QuantizationAnnotation(
                    input_qspec_map=inputs, output_qspec=value, _annotated=True
                )
        return model

    def validate(self, model):
        pass


def calc_quantizer(*, recipe="int8"):
    """Makes it."""
    return CalcQuantizer(recipe_named(recipe))
