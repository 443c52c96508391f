"""How much a partition has to compute, by its shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from backends.cpu.tests.harness import Function, edge
from torch.export import Dim
from torch.nn import functional

import delegraph
from delegraph_cpu.aot.compiled.work import ELEMENT, multiply_adds
from delegraph_cpu.blob import unpack

A, B = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
IMAGE = torch.randn(1, 6, 9, 9)


@pytest.mark.parametrize(
    ("function", "args", "products", "elements"),
    [
        (torch.relu, (A,), 0, 24),
        (torch.bmm, (A, B), 2 * 3 * 5 * 4, 30),
        (torch.addmm, (torch.zeros(5), A[0], B[0]), 3 * 5 * 4, 15),
        (functional.linear, (A, torch.randn(7, 4)), 6 * 7 * 4, 42),
        (functional.conv2d, (IMAGE, torch.randn(8, 6, 3, 3)), 8 * 7 * 7 * 6 * 9, 8 * 49),
        (lambda x, w: functional.conv2d(x, w, groups=6), (IMAGE, torch.randn(6, 1, 3, 3)), 6 * 49 * 9, 6 * 49),
        (functional.conv_transpose2d, (IMAGE, torch.randn(6, 8, 2, 2)), 6 * 81 * 8 * 4, 8 * 100),
        (functional.scaled_dot_product_attention, (torch.randn(1, 2, 3, 4),) * 3, 2 * 24 * 3, 24),
    ],
)
def test_products_and_elements(
    function: Callable[..., Any], args: tuple[torch.Tensor, ...], products: int, elements: int
) -> None:
    assert multiply_adds(edge(Function(function), args).graph) == products + ELEMENT * elements


def test_a_recurrent_layer_multiplies_with_all_its_weights_in_each_step() -> None:
    lstm = torch.nn.LSTM(4, 3, batch_first=True)
    count = multiply_adds(edge(Function(lambda x: lstm(x)[0]), (torch.randn(2, 5, 4),)).graph)
    weights = sum(parameter.numel() for parameter in lstm.parameters())
    assert count is not None
    assert 2 * 5 * weights <= count <= 2 * 5 * weights + 100 * ELEMENT


def test_what_depends_on_a_run_is_not_known() -> None:
    assert multiply_adds(edge(Function(torch.relu), (A,), (({0: Dim("n", min=2, max=8)},),)).graph) is None


@pytest.mark.parametrize("recipe", ["int8", "int8_dynamic", "int8_weight_only", "int4_weight_only"])
def test_weights_that_are_quantized_are_not_counted(recipe: str) -> None:
    """There is as much to multiply as in float, which decides on the number of threads."""
    net, x = torch.nn.Linear(512, 512).eval(), torch.randn(1, 512)
    quantized = delegraph.quantize(net, [(x,)], recipe=recipe, backends=["cpu"])
    lowered = delegraph.lower(quantized, backends=["cpu"])
    count = unpack(bytes(lowered.program.executorch_program.delegate_data[0])).multiply_adds
    assert count is not None
    assert 512 * 512 <= count < 512 * 512 + 10 * ELEMENT * 512
