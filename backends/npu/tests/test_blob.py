"""Blobs come back as they were packed; damaged ones are refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backends.npu.tests.harness import DEVICE

from delegraph.errors import DelegateInvalidCompatibility, InvalidExternalData
from delegraph.interfaces import BackendInitContext, BlobStamp, Verdict
from delegraph_npu.blob import FORMAT, Blob, IoTensor, NamedWeights, pack, unpack
from delegraph_npu.command_stream import encode
from delegraph_npu.commands import Dtype, Region, Stop
from delegraph_npu.runtime.backend import NpuBackend

TENSOR = IoTensor(Region.DRAM, 16, Dtype.INT16, (1, 2, 3), (12, 6, 2))
SCALAR = IoTensor(Region.SRAM, 4, Dtype.INT32, (), ())
BLOB = Blob(DEVICE, "double", 64, 128, encode([Stop()]), b"tables", b"weights", (TENSOR,), (SCALAR,), ("a", "b"))


def test_a_blob_comes_back() -> None:
    assert unpack(pack(BLOB)) == BLOB


def test_a_blob_without_its_weights() -> None:
    blob = replace(BLOB, weights=NamedWeights("NpuBackend/1a2b", 7))
    assert unpack(pack(blob)) == blob


def test_a_blob_that_says_where_results_lie() -> None:
    blob = replace(BLOB, values=(None, SCALAR))
    assert unpack(pack(blob)) == blob


def test_spans() -> None:
    assert (TENSOR.span, SCALAR.span, replace(TENSOR, shape=(1, 0, 3)).span) == (12, 4, 0)


def test_too_many_dims() -> None:
    with pytest.raises(ValueError, match="a delegate's tensor has at most 6 dims, not 7"):
        pack(replace(BLOB, inputs=(IoTensor(Region.SRAM, 0, Dtype.INT8, (1,) * 7, (1,) * 7),)))


def changed(header: dict[str, Any], without: str = "") -> bytes:
    content = FORMAT.unpack(pack(BLOB))
    sections = {name: content.view(name) for name in content.names if name != without}
    return FORMAT.pack({**content.header, **header}, sections)


def tensor(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{"region": 0, "offset": 0, "dtype": 0, "shape": [4], "strides": [1], **fields}]}


@pytest.mark.parametrize(
    ("header", "without", "reason"),
    [
        ({}, "stream", "it has no section 'stream'"),
        ({}, "weights", "it has no section 'weights'"),
        ({"rounding": "triple"}, "", "rounding 'triple'"),
        ({"sram_nbytes": "64"}, "", "expected a size, not '64'"),
        ({"operators": [7]}, "", "expected a string, not 7"),
        ({"values": [None]}, "", "2 operators, and 1 results of them"),
        ({"values": [None, tensor(offset=-4)["inputs"][0]]}, "", "expected a size, not -4"),
        ({"named_weights": {"key": "k"}}, "", "KeyError: 'nbytes'"),
        (tensor(region=7), "", "7 is not a valid Region"),
        (tensor(region="0"), "", "expected an integer, not '0'"),
        (tensor(dtype=3), "", "3 is not a valid Dtype"),
        (tensor(offset=-4), "", "expected a size, not -4"),
        (tensor(shape=[1] * 7, strides=[1] * 7), "", "at most 6 dims, not 7"),
        (tensor(shape=[2, 2]), "", r"no tensor has shape \(2, 2\) and strides \(1,\)"),
        (tensor(shape=[0, 2**40, 2**40], strides=[1, 1, 1]), "", "no tensor has shape"),
    ],
)
def test_damaged_blobs_are_refused(header: dict[str, Any], without: str, reason: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=f"blob of NpuBackend is damaged: .*{reason}"):
        unpack(changed(header, without))


@pytest.mark.parametrize("section", ["stream", "tables", "weights"])
def test_a_flipped_bit_is_told(section: str) -> None:
    packed = bytearray(pack(BLOB))
    place = np.frombuffer(FORMAT.unpack(packed).view(section), np.uint8).ctypes.data
    offset = place - np.frombuffer(packed, np.uint8).ctypes.data
    assert offset % 16 == 0
    packed[offset] ^= 1
    with pytest.raises(DelegateInvalidCompatibility, match=f"the checksum of its section '{section}' is wrong"):
        unpack(packed)


@pytest.mark.parametrize(
    ("version", "verdict", "reason"),
    [
        (2, Verdict.OK, ""),
        (3, Verdict.REFUSE, "install a newer release of the backend"),
        (1, Verdict.RECOMPILE, "2 is needed"),
    ],
)
def test_versions(version: int, verdict: Verdict, reason: str) -> None:
    answer = NpuBackend().check(BlobStamp("NpuBackend", "delegraph-npu", "0.1.0", version))
    assert answer.verdict is verdict and reason in answer.reason


def test_weights_that_lie_elsewhere() -> None:
    backend, blob = NpuBackend(), replace(BLOB, weights=NamedWeights("NpuBackend/1a2b", 7))
    handle = backend.init(BackendInitContext("forward", named_data={"NpuBackend/1a2b": b"weights"}), pack(blob), ())
    assert backend.num_outputs(handle) == 1
    with pytest.raises(DelegateInvalidCompatibility, match=r"7 bytes of named data 'NpuBackend/1a2b', .* has none"):
        backend.init(BackendInitContext("forward"), pack(blob), ())
    with pytest.raises(DelegateInvalidCompatibility, match="the program has 3; copy or lower the program again"):
        backend.init(BackendInitContext("forward", named_data={"NpuBackend/1a2b": b"few"}), pack(blob), ())
    with pytest.raises(InvalidExternalData, match=r"is in a .ptd file; pass it as data_path"):
        backend.init(BackendInitContext("forward"), pack(replace(blob, weights=NamedWeights("conv.weight", 7))), ())
