"""Blobs come back as they were packed; damaged ones are refused with the block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backends.npu.tests.harness import DEVICE

from delegraph.errors import DelegateInvalidCompatibility, InvalidExternalData
from delegraph.interfaces import BackendInitContext, BlobStamp, Verdict
from delegraph_machines.blocks import read_blocks, write_blocks
from delegraph_npu.blob import Blob, IoTensor, pack, unpack
from delegraph_npu.command_stream import encode
from delegraph_npu.commands import Dtype, Region, Stop
from delegraph_npu.runtime.backend import NpuBackend

TENSOR = IoTensor(Region.DRAM, 16, Dtype.INT16, (1, 2, 3), (12, 6, 2))
SCALAR = IoTensor(Region.SRAM, 4, Dtype.INT32, (), ())
BLOB = Blob(DEVICE, "double", 64, 128, encode([Stop()]), b"tables", b"weights", (TENSOR,), (SCALAR,), ("a", "b"))


def test_a_blob_comes_back() -> None:
    assert unpack(pack(BLOB)) == BLOB


def test_a_blob_without_its_weights() -> None:
    blob = replace(BLOB, weights=("NpuBackend/1a2b", 7))
    assert unpack(pack(blob)) == blob


def test_spans() -> None:
    assert (TENSOR.span, SCALAR.span, replace(TENSOR, shape=(1, 0, 3)).span) == (12, 4, 0)


def test_too_many_dims() -> None:
    with pytest.raises(ValueError, match="a delegate's tensor has at most 6 dims, not 7"):
        pack(replace(BLOB, inputs=(IoTensor(Region.SRAM, 0, Dtype.INT8, (1,) * 7, (1,) * 7),)))


def with_block(name: str, data: bytes | None) -> bytes:
    blocks = {key: bytes(block) for key, block in read_blocks(memoryview(pack(BLOB)), b"NPU1").items()}
    blocks.pop(name, None)
    return write_blocks(b"NPU1", blocks if data is None else {**blocks, name: data})


def record(*words: int) -> bytes:
    return np.array([*words, *[0] * (16 - len(words))], "<i4").tobytes()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("stream", None, "block 'stream' .* it is missing"),
        ("weights", None, "block 'weights' .* it is missing"),
        ("header", b"", "block 'header' .* not one of this version's"),
        ("header", record(64, 64, 2), "block 'header' .* not one of this version's"),
        ("header", bytes(60), "block 'header' .* 60 bytes are no whole records of 64"),
        ("operators", b"\xff", "block 'operators' .* can't decode"),
        ("weights_key", b"key", "block 'weights_key' .* it is no size and key"),
        ("inputs", record(7), "block 'inputs' .* 7 is not a valid Region"),
        ("inputs", record(0, 0, 3), "block 'inputs' .* 3 is not a valid Dtype"),
        ("outputs", record(0, 0, 0, 7), "block 'outputs' .* a tensor of 7 dims"),
    ],
)
def test_damaged_blobs_are_refused(name: str, data: bytes | None, reason: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=reason):
        unpack(with_block(name, data))


@pytest.mark.parametrize(
    ("version", "verdict", "reason"),
    [
        (1, Verdict.OK, ""),
        (2, Verdict.REFUSE, "install a newer release of the backend"),
        (0, Verdict.RECOMPILE, "1 is needed"),
    ],
)
def test_versions(version: int, verdict: Verdict, reason: str) -> None:
    answer = NpuBackend().check(BlobStamp("NpuBackend", "delegraph-npu", "0.1.0", version))
    assert answer.verdict is verdict and reason in answer.reason


def test_weights_that_lie_elsewhere() -> None:
    backend, blob = NpuBackend(), replace(BLOB, weights=("NpuBackend/1a2b", 7))
    handle = backend.init(BackendInitContext("forward", named_data={"NpuBackend/1a2b": b"weights"}), pack(blob), ())
    assert backend.num_outputs(handle) == 1
    with pytest.raises(DelegateInvalidCompatibility, match=r"7 bytes of named data 'NpuBackend/1a2b', .* has none"):
        backend.init(BackendInitContext("forward"), pack(blob), ())
    with pytest.raises(DelegateInvalidCompatibility, match="the program has 3; copy or lower the program again"):
        backend.init(BackendInitContext("forward", named_data={"NpuBackend/1a2b": b"few"}), pack(blob), ())
    with pytest.raises(InvalidExternalData, match=r"is in a .ptd file; pass it as data_path"):
        backend.init(BackendInitContext("forward"), pack(replace(blob, weights=("conv.weight", 7))), ())
