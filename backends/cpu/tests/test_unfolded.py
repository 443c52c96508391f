"""Constants of bytes that a model widens by its own arithmetic stay bytes in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F

import delegraph
from delegraph_cpu.blob import unpack

from .harness import Lowered, edge

pytestmark = pytest.mark.models

Tensor = torch.Tensor
ROWS, COLUMNS = 128, 64


class Bytes(torch.nn.Module):
    """A weight as a model of somebody's may keep it: int8, uint8 128 higher, two codes to a byte; and a mask."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight = torch.randint(-127, 128, (ROWS, COLUMNS), generator=generator)
        codes = (weight >> 4) + 8
        self.function = function
        self.register_buffer("scales", torch.rand(ROWS, generator=generator) * 0.01 + 0.002)
        self.register_buffer("int8", weight.to(torch.int8))
        self.register_buffer("uint8", (weight + 128).to(torch.uint8))
        self.register_buffer("packed", (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8))
        self.register_buffer("mask", torch.rand(ROWS, COLUMNS, generator=generator) > 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def _unpacked(m: Any) -> Tensor:
    return torch.stack([m.packed & 15, m.packed >> 4], -1).reshape(ROWS, COLUMNS).float() - 8


FORMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "scaled behind the product": lambda m, x: F.linear(x, m.int8.to(x.dtype)) * m.scales,
    "scaled before it": lambda m, x: F.linear(x, m.int8.float() * m.scales[:, None]),
    "by matmul": lambda m, x: x @ (m.int8.float() * m.scales[:, None]).T,
    "with a zero point": lambda m, x: F.linear(x, (m.uint8.float() - 128) * m.scales[:, None]),
    "in groups": lambda m, x: F.linear(x, (m.int8.view(ROWS, 4, -1).float() * m.scales[:, None, None]).view(ROWS, -1)),
    "four bits": lambda m, x: F.linear(x, _unpacked(m) * m.scales[:, None]),
    "a mask": lambda m, x: F.linear(x, torch.where(m.mask, 0.5, -0.5)),
    "a mask as numbers": lambda m, x: F.linear(x, m.mask.float()),
    "a convolution": lambda m, x: F.conv1d(x[..., None], m.int8.float()[..., None]).squeeze(-1) * m.scales,
}


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("form", FORMS)
def test_they_are_not_unfolded(form: str, rows: int) -> None:
    model, x = Bytes(FORMS[form]).eval(), torch.randn(rows, COLUMNS)
    lowered = delegraph.lower(model, (x,), backends=["cpu"])
    assert not lowered.report.methods["forward"].leftovers
    bytes_of_it, scales, graph_and_header = ROWS * COLUMNS, 2 * 4 * ROWS, 6_000
    assert len(bytes(lowered)) < bytes_of_it + scales + graph_and_header < 4 * ROWS * COLUMNS
    wanted = model(x).numpy()
    got = delegraph.load(bytes(lowered))(x.numpy())
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_one_row_is_multiplied_with_the_bytes() -> None:
    """As gpt-fast's `WeightOnlyInt8Linear`, which ExecuTorch's Llama has, too."""
    model, x = Bytes(FORMS["scaled behind the product"]).eval(), torch.randn(1, COLUMNS)
    graph = onnx.load_from_string(bytes(unpack(Lowered(edge(model, (x,))).processed).graph)).graph
    assert Counter(node.op_type for node in graph.node) == {"MatMulNBits": 2, "Add": 1, "Mul": 1}


def test_a_weight_that_something_else_reads_as_well_is_still_one() -> None:
    """A linear layer and a sum, both of the cast weight."""

    def both(m: Any, x: Tensor) -> Tensor:
        weight = m.int8.float()
        return F.linear(x, weight) + weight.sum(1)  # type: ignore[no-any-return]

    model, x = Bytes(both).eval(), torch.randn(2, COLUMNS)
    lowered = delegraph.lower(model, (x,), backends=["cpu"])
    assert len(bytes(lowered)) < 2 * ROWS * COLUMNS
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.numpy()), model(x).numpy(), rtol=1e-5, atol=1e-3)
