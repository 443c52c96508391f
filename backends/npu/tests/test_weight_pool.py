"""Weights that several partitions have: in the file once, whatever grids each partition has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
import torch.nn.functional as F
from backends.npu.tests.compiled import exported, weight

import delegraph
from delegraph.program import deserialize_program
from delegraph_npu.blob import NamedWeights, unpack

quantized = torch.ops.quantized_decomposed


def q(x: torch.Tensor, scale: float) -> torch.Tensor:
    integers = quantized.quantize_per_tensor.default(x, scale, 3, -128, 127, torch.int8)
    real: torch.Tensor = quantized.dequantize_per_tensor.default(integers, scale, 3, -128, 127, torch.int8)
    return real


def narrow(x: torch.Tensor) -> torch.Tensor:
    return q(F.conv2d(q(x, 0.02), weight(64, 48, 3, 3)), 0.2)


def wide(x: torch.Tensor) -> torch.Tensor:
    return q(torch.relu(F.conv2d(q(x, 0.05), weight(64, 48, 3, 3))), 0.4)


def other(x: torch.Tensor) -> torch.Tensor:
    return q(F.conv2d(q(x, 0.05), weight(64, 48, 3, 1)), 0.4)


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    return torch.randn(1, 48, 7, 6, generator=torch.Generator().manual_seed(0))


def lowered(image: torch.Tensor, **methods: Any) -> bytes:
    programs = {name: exported(function, image) for name, function in methods.items()}
    return bytes(delegraph.lower(programs, backends=["npu"]))


def weights_of(program: bytes) -> list[Any]:
    """Of each delegate: its weights, or where they are."""
    file = deserialize_program(program)
    return [unpack(blob).weights for blob in file.delegate_data]


def test_methods_with_grids_of_their_own_share_weights(image: torch.Tensor) -> None:
    """Each computes what it does in a file of its own."""
    together = lowered(image, narrow=narrow, wide=wide)
    apart = {"narrow": lowered(image, narrow=narrow), "wide": lowered(image, wide=wide)}
    first, second = weights_of(together)
    assert first == second
    assert first.key.startswith("NpuBackend/")
    assert len(together) < sum(map(len, apart.values())) - 0.8 * first.nbytes
    for name, alone in apart.items():
        given, expected = (delegraph.load(file, method=name)(image.numpy()) for file in (together, alone))
        np.testing.assert_array_equal(given, expected)
        assert len(np.unique(given)) > 10


def test_who_shares_nothing_keeps_its_weights(image: torch.Tensor) -> None:
    weights = weights_of(lowered(image, narrow=narrow, wide=wide, other=other))
    assert sorted(isinstance(place, NamedWeights) for place in weights) == [False, True, True]


def test_a_layer_that_is_called_twice_is_stored_once() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        y = q(F.conv2d(q(x, 0.1), weight(48, 48, 3, 3), padding=1), 0.1)
        return q(F.conv2d(y, weight(48, 48, 3, 3), padding=1), 0.1)

    def once(x: torch.Tensor) -> torch.Tensor:
        return q(F.conv2d(q(x, 0.1), weight(48, 48, 3, 3), padding=1), 0.1)

    image = torch.randn(1, 48, 6, 6, generator=torch.Generator().manual_seed(0))
    (both,), (one,) = weights_of(lowered(image, forward=twice)), weights_of(lowered(image, forward=once))
    assert both.nbytes == one.nbytes
