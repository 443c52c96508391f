"""Which methods share their mutable buffers: what a file says, and what can be told of ExecuTorch's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegraph.program.contract import CONTRACT_KEY, write_contracts
from delegraph.program.schema import (
    AllocationDetails,
    Chain,
    DeviceType,
    ExecutionPlan,
    NamedData,
    NonConstBufferDevice,
    Program,
    ScalarType,
    Tensor,
    TensorShapeDynamism,
)
from delegraph.program.shared_state import SHARED_STATE_KEY, SharedBuffers, shared_buffers_of, write_shared_buffers

BUFFER = Tensor(ScalarType.FLOAT, (4,), (0,), allocation_info=AllocationDetails(2, 0))
METHOD = ExecutionPlan("get", (BUFFER,), (), (), (Chain(()),), non_const_buffer_sizes=(0, 64, 16))


def of(*methods: ExecutionPlan, **named: bytes) -> SharedBuffers | None:
    return shared_buffers_of(Program(methods, named_data={key: NamedData(data) for key, data in named.items()}))


def test_a_file_says_which_methods_share() -> None:
    shared = SharedBuffers(2, frozenset({"get"}))
    assert of(METHOD, replace(METHOD, name="put"), **{SHARED_STATE_KEY: write_shared_buffers(shared)}) == shared


def test_a_file_of_ours_that_says_nothing_shares_nothing() -> None:
    assert of(METHOD, replace(METHOD, name="put"), **{CONTRACT_KEY: write_contracts({})}) is None


def test_what_a_later_version_says_is_not_read() -> None:
    assert of(METHOD, **{SHARED_STATE_KEY: b'{"version": 2, "memory_id": 2, "methods": []}'}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"non_const_buffer_sizes": (0, 64, 32)},
        {"non_const_buffer_sizes": (0, 64)},
        {"non_const_buffer_sizes": (0, 64, 16, 16)},
        {"inputs": (0,)},
        {"outputs": (0,)},
        {"values": (replace(BUFFER, shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND),)},
        {"non_const_buffer_device": (NonConstBufferDevice(2, DeviceType.CUDA, 0),)},
    ],
    ids=str,
)
def test_of_executorchs_files_equal_memories_2_of_nothing_but_buffers_are_shared(change: dict[str, object]) -> None:
    put = replace(METHOD, name="put")
    assert of(METHOD, put) == SharedBuffers(2, frozenset({"get", "put"}))
    assert of(METHOD) is None
    assert of(METHOD, replace(put, **change)) is None  # type: ignore[arg-type]
