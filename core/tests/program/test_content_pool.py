"""Each content is stored once, and hashed at most once."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.emission.constant_pool import ConstantPool
from delegraph.program.files.content_pool import ContentPool, first_equals


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of everything that is hashed."""
    sizes: list[int] = []
    sha256 = hashlib.sha256

    def counting(data: Any) -> Any:
        sizes.append(len(data))
        return sha256(data)

    monkeypatch.setattr(hashlib, "sha256", counting)
    return sizes


def test_equal_contents_are_one() -> None:
    pool = ContentPool()
    assert [pool.add(data) for data in (b"ab", b"", bytearray(b"ab"), memoryview(b"cd"), b"", b"ab")] == [
        0,
        1,
        0,
        2,
        1,
        0,
    ]
    assert [bytes(data) for data in pool.buffers] == [b"ab", b"", b"cd"]
    assert first_equals([b"x", b"y", b"x", b"", b"y"]) == [0, 1, 0, 3, 1]


def test_contents_that_begin_alike_are_told_apart(hashed: list[int]) -> None:
    pool = ContentPool()
    alike = [bytes(1000) + bytes([end]) for end in range(4)]
    assert [pool.add(data) for data in alike] == [0, 1, 2, 3]
    assert [pool.add(bytearray(data)) for data in alike] == [0, 1, 2, 3]
    assert hashed == [1001] * 8  # each object once, the first one included


def test_other_beginnings_and_known_objects_are_not_hashed(hashed: list[int]) -> None:
    pool = ContentPool()
    weights = [bytes([start]) * 1000 for start in range(4)]
    assert [pool.add(data) for data in weights * 3] == [0, 1, 2, 3] * 3
    assert hashed == []


def test_stores_of_two_delegates_that_share_a_weight_hash_nothing(hashed: list[int]) -> None:
    outputs = []
    for _ in range(2):
        store = NamedDataStore()
        store.add_named_data("weight", bytes(range(256)) * 100)
        outputs.append(store.get_named_data_store_output())
    merged = NamedDataStore()
    for output in outputs:
        merged.merge(output)
    assert merged.get_named_data_store_output().pte_data["weight"].data is outputs[0].pte_data["weight"].data
    assert hashed == []


def test_one_content_under_two_keys_is_held_once() -> None:
    store = NamedDataStore()
    store.add_named_data("a", b"weights")
    store.add_named_data("b", bytes(bytearray(b"weights")))
    data = store.get_named_data_store_output().pte_data
    assert data["a"].data is data["b"].data


def test_constants_leave_the_empty_buffer_alone() -> None:
    pool = ConstantPool()
    assert pool.add_tensor(torch.empty(0), (0,)) == 1
    assert pool.add_tensor(torch.ones(2), (0,)) == pool.add_tensor(torch.ones(2), (0,)) == 2
    assert [len(buffer) for buffer in pool.buffers] == [0, 0, 8]
