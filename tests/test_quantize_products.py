"""Products with weights that are written otherwise than as layers: cells, bilinear ones, sums over several dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import delegraph
from delegraph.aot.quantize.measurement.measure import sqnr

pytestmark = pytest.mark.long

WEIGHTED = {"aten::linear", "aten::einsum"}

Tensor = torch.Tensor


class Product(nn.Module):
    """What `call` makes of values (2, 6, 32) and what the module has."""

    def __init__(self, call: Callable[..., Tensor], **held: nn.Module | tuple[int, ...]) -> None:
        super().__init__()
        self.call = call
        for name, one in held.items():
            setattr(self, name, one if isinstance(one, nn.Module) else nn.Parameter(torch.randn(one) / 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self, x)


def unrolled(model: Any, x: Tensor) -> Tensor:
    state = torch.zeros(x.shape[0], 24)
    for step in x[:, :3].unbind(1):
        state = model.cell(step, state)
    return state


def unrolled_lstm(model: Any, x: Tensor) -> Tensor:
    state = torch.zeros(x.shape[0], 24), torch.zeros(x.shape[0], 24)
    for step in x[:, :3].unbind(1):
        state = model.cell(step, state)
    return torch.cat(state, -1)


LAYERS: dict[str, Callable[[], Product]] = {
    "LSTMCell": lambda: Product(unrolled_lstm, cell=nn.LSTMCell(32, 24)),
    "GRUCell": lambda: Product(unrolled, cell=nn.GRUCell(32, 24, bias=False)),
    "RNNCell": lambda: Product(unrolled, cell=nn.RNNCell(32, 24)),
    "RNNCell of relu": lambda: Product(unrolled, cell=nn.RNNCell(32, 24, nonlinearity="relu")),
    "Bilinear": lambda: Product(lambda m, x: m.layer(x[..., :16], x), layer=nn.Bilinear(16, 32, 12)),
    "einsum to heads": lambda: Product(lambda m, x: torch.einsum("bsd,hdk->bskh", x, m.w), w=(4, 32, 8)),
    "einsum of heads": lambda: Product(
        lambda m, x: torch.einsum("...hk, khd -> ...d", x.unflatten(-1, (4, 8)), m.w), w=(8, 4, 16)
    ),
    "einsum between": lambda: Product(lambda m, x: torch.einsum("bsd,hdk->bhsk", x, m.w), w=(4, 32, 8)),
    "einsum from heads": lambda: Product(
        lambda m, x: torch.einsum("bhsk,hkd->bsd", x.unflatten(-1, (4, 8)).transpose(1, 2), m.w), w=(4, 8, 16)
    ),
    "einsum of all positions": lambda: Product(lambda m, x: torch.einsum("bsd,sde->be", x, m.w), w=(6, 32, 16)),
    "einsum in front": lambda: Product(lambda m, x: torch.einsum("...d,ed->e...", x, m.w), w=(16, 32)),
    "einsum of a transposed one": lambda: Product(lambda m, x: torch.einsum("bsd,de->bes", x, m.w.T), w=(16, 32)),
    "addmm of parts": lambda: Product(
        lambda m, x: torch.addmm(m.b, x.flatten(0, 1), m.w, beta=3, alpha=2), w=(32, 16), b=(16,)
    ),
    "addmm of a sum": lambda: Product(
        lambda m, x: torch.addmm(x[:, 0, :16], x[:, 1], m.w, beta=2, alpha=0.5), w=(32, 16)
    ),
    "addmm without a bias": lambda: Product(
        lambda m, x: torch.addmm(m.b, x.flatten(0, 1), m.w, beta=0, alpha=2), w=(32, 16), b=(16,)
    ),
    "inner": lambda: Product(lambda m, x: torch.inner(x, m.w), w=(16, 32)),
    "tensordot": lambda: Product(lambda m, x: torch.tensordot(x, m.w, dims=([2], [1])), w=(16, 32)),
}
"""What linear layers are made of."""

BATCHED: dict[str, Callable[[], Product]] = {
    "bmm": lambda: Product(lambda m, x: torch.bmm(x, m.w.mT), w=(2, 16, 32)),
    "matmul": lambda: Product(lambda m, x: torch.matmul(x.unsqueeze(1), m.w), w=(2, 3, 32, 16)),
    "baddbmm": lambda: Product(lambda m, x: torch.baddbmm(m.b, x, m.w), w=(2, 32, 16), b=(16,)),
}
"""Of several matrices: their weights are stored, and what they multiply stays float."""


@pytest.mark.parametrize("kind", [*LAYERS.items(), *BATCHED.items()], ids=lambda kind: kind[0])
@pytest.mark.parametrize(("recipe", "decibels", "share"), [("int8", 32, 0.46), ("int4_weight_only", 18, 0.32)])
def test_the_weights_of_a_product_are_stored(kind: Any, recipe: str, decibels: float, share: float) -> None:
    torch.manual_seed(0)
    model = kind[1]().eval()
    data = [(torch.randn(2, 6, 32),) for _ in range(2)]
    quantized = delegraph.quantize(model, data, recipe=recipe)
    done = quantized.report.methods["forward"]
    assert done.nbytes < share * done.float_nbytes and not WEIGHTED & {left.operator for left in done.left_float}
    with torch.no_grad():
        assert decibels < sqnr((model(*data[0]), quantized.program.module()(*data[0]))) < 60


@pytest.mark.parametrize("name", ["LSTMCell", "Bilinear", "einsum to heads", "einsum of heads", "einsum between"])
def test_a_product_that_is_a_layer_runs_on_any_batch(name: str) -> None:
    torch.manual_seed(0)
    model, seen = LAYERS[name]().eval(), torch.randn(4, 6, 32)
    x = seen[:3]
    quantized = delegraph.quantize(model, [(seen,)], dynamic_shapes=({0: Dim("n", min=2, max=9)},))
    assert any("aten.linear.default" in str(node.target) for node in quantized.program.graph.nodes)
    for backends in ([], ["cpu"]):
        run = delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))
        with torch.no_grad():
            assert sqnr((model(x), torch.from_numpy(np.array(run(x.numpy()))))) > 25


@pytest.mark.parametrize("equation", ["bsd,sde->bse", "bsd,de->be", "bsd,s->bsd"])
def test_a_sum_that_is_no_layer_is_left_in_float(equation: str) -> None:
    held = equation[4:].partition("->")[0]
    sizes = {"s": 6, "d": 32, "e": 16}
    model = Product(lambda m, x: torch.einsum(equation, x, m.w), w=tuple(sizes[letter] for letter in held))
    done = delegraph.quantize(model.eval(), [(torch.randn(2, 6, 32),)], recipe="int8_weight_only")
    left = done.report.methods["forward"].left_float
    assert [layer.operator for layer in left] == ["aten::einsum"] * (len(held) > 1)


def test_a_rule_keeps_a_cell_whole() -> None:
    torch.manual_seed(0)
    model, x = LAYERS["LSTMCell"]().eval(), torch.randn(2, 6, 32)
    quantized = delegraph.quantize(model, [(x,)], recipe={"cell": "float", "default": "int8"})
    assert "lstm_cell" in str(quantized.program.graph)


def test_recipes_for_weights_store_those_of_an_rnn() -> None:
    torch.manual_seed(0)
    for activation in ("tanh", "relu"):
        model, x = nn.RNN(32, 24, num_layers=2, nonlinearity=activation, batch_first=True).eval(), torch.randn(2, 6, 32)
        done = delegraph.quantize(model, [(x,)], recipe="int8_weight_only").report.methods["forward"]
        assert done.nbytes < 0.32 * done.float_nbytes and done.output_sqnr > 40  # type: ignore[operator]


def test_angles_of_positions_are_no_weights() -> None:
    model = Product(lambda m, x: torch.matmul(x[..., :1], m.w), w=(2, 1, 16)).eval()
    program = delegraph.quantize(model, [(torch.randn(2, 6, 32),)], recipe="int8_weight_only").program
    assert all(tensor.is_floating_point() for tensor in program.state_dict.values())
