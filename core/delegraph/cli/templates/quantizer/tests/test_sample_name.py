"""The calls that are quantized, and the recipes that there are."""

import pytest
import torch

import delegraph


def test_a_linear_layer_computes_in_integers() -> None:
    model, x = torch.nn.Linear(4, 2).eval(), torch.randn(8, 4)
    quantized = delegraph.quantize(model, [(x,)], quantizers=["sample_name"])
    calls = [str(node.target) for node in quantized.program.graph.nodes]
    assert any("quantize_per_tensor" in call for call in calls)
    torch.testing.assert_close(quantized.program.module()(x), model(x), rtol=0.1, atol=0.1)


def test_a_recipe_that_it_does_not_have() -> None:
    with pytest.raises(delegraph.DelegraphError, match="has no 'int4_weight_only'"):
        delegraph.quantize(
            torch.nn.Linear(4, 2), [(torch.randn(8, 4),)], quantizers=["sample_name{recipe=int4_weight_only}"]
        )
