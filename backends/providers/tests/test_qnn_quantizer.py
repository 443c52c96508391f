"""Values that the quantizer puts on grids: all that a call reads and gives, so that it is taken for integers."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot.authoring import quantize_call
from delegraph.errors import LoweringError
from delegraph_providers.aot.quantizer import qnn_quantizer

aten = torch.ops.aten


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x)).relu()
        y = nn.functional.max_pool2d(y + y.sigmoid(), 4)
        return self.linear(torch.cat([y, y], 1).flatten(1)[:, :32]).softmax(-1)  # type: ignore[no-any-return]


def test_every_call_of_floats_stands_between_integers() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    program = delegraph.quantize(Model().eval(), [(x,)], backends=["qnn"]).program
    floats = Counter[str]()
    for node in program.graph.find_nodes(op="call_function", target=aten.relu.default):
        assert [source.target for source in node.all_input_nodes] == [aten.conv2d.default], "a limit is the layer's"
    for node in program.graph.nodes:
        call = quantize_call(node)
        if node.op == "call_function" and call is None and node.target is not aten.conv2d.default:
            given = [user for user in node.users if user.op == "call_function"]
            if any((reader := quantize_call(user)) is None or not reader.quantizes for user in given):
                floats[str(node.target)] += 1
    assert not floats


@pytest.mark.parametrize("recipe", ["int8_dynamic", "int8_weight_only", "int4_weight_only"])
def test_a_recipe_that_the_processor_has_no_integers_for(recipe: str) -> None:
    with pytest.raises(LoweringError, match=f"quantizer 'qnn' annotates .* recipe '{recipe}' has others"):
        qnn_quantizer(recipe=recipe)
