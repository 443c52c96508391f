"""Damaged files of delegates: of 150 changed bits none changes numbers in silence."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph.errors import DelegraphError, InvalidProgram

X = np.linspace(-1, 1, 3 * 8 * 8, dtype=np.float32).reshape(1, 3, 8, 8)


def conv_net(width: int = 8) -> bytes:
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, width, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36 * width, 10))
    return bytes(delegraph.lower(torch.nn.Sequential(*layers).eval(), (torch.from_numpy(X),), backends=["cpu"]))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_of_150_changed_bits_none_changes_numbers_in_silence() -> None:
    data = conv_net()
    expected = delegraph.load(data, integrity="full")(X)
    refused = 0
    for bit in random.Random(34).sample(range(8 * len(data)), 150):
        try:
            result: Any = delegraph.load(flipped(data, bit), integrity="full")(X)
        except DelegraphError:
            refused += 1
        else:
            np.testing.assert_array_equal(result, expected, f"bit {bit}")
    assert refused >= 145


def test_lazily_damaged_weights_are_found_before_they_are_used() -> None:
    data = conv_net(width=64)  # 90 KB of weights, more than one chunk
    start = len(data) // 2
    changed = data[:start] + bytes(1000) + data[start + 1000 :]
    assert not np.array_equal(delegraph.load(changed, integrity="none")(X), delegraph.load(data)(X))
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        delegraph.load(changed)(X)
