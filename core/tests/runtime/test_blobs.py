"""The container for blobs, whole and damaged, and what a backend makes of a stamp that does not judge it itself."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendInterface, BlobStamp, pack_blob, unpack_blob

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.zeros((0, 4), np.int64),
    np.array(True),
    np.array([1.5, -2], ml_dtypes.bfloat16),
    np.arange(12, dtype=np.int16).reshape(3, 4).T,
    np.arange(3, dtype=">f8"),
]


def test_what_goes_in_comes_out() -> None:
    head, arrays = unpack_blob(pack_blob({"steps": [["add", 1]], "name": "né"}, ARRAYS))
    assert head == {"steps": [["add", 1]], "name": "né"}
    for given, got in zip(ARRAYS, arrays, strict=True):
        assert (got.shape, got.dtype) == (given.shape, given.dtype.newbyteorder("<"))
        np.testing.assert_array_equal(got, given)
        assert not got.flags.writeable


def test_arrays_stay_where_they_are() -> None:
    blob = bytearray(b"\0" + pack_blob([], [np.arange(5)]))
    _, (array,) = unpack_blob(memoryview(blob)[1:])
    assert np.shares_memory(array, np.frombuffer(blob, np.uint8))
    assert (array.ctypes.data - np.frombuffer(blob, np.uint8).ctypes.data - 1) % 16 == 0


def test_no_arrays_and_no_head() -> None:
    assert unpack_blob(pack_blob(None)) == (None, [])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda blob: b"", "unpack_from requires a buffer"),
        (lambda blob: bytes(len(blob)), "its first bytes are not those of a head"),
        (lambda blob: blob[:-1], "and an array ends at"),
        (lambda blob: blob + b"\0", "and its content ends at"),
        (lambda blob: blob[: len(blob) // 3], "its first bytes are not those of a head"),
        (lambda blob: blob.replace(b"float32", b"float99"), "float99"),
        (lambda blob: blob.replace(b"[2,3]", b"[2,-"), "expecting value|Expecting"),
        (lambda blob: blob.replace(b"[2,3]", b"[-2]".ljust(5)), r"an array of shape \[-2\]"),
        (lambda blob: blob.replace(b"[2,3]", b"[9e9]"[:5]), r"an array of shape \[9000000000\.0\]"),
        (lambda blob: b"\xbd\x02\0\0\0{}", "not enough values to unpack"),
        (lambda blob: b"\xbd" + (10**5).to_bytes(4, "little") + b"[" * 10**5, "recursion"),
    ],
)
def test_a_damaged_one_is_refused(change: Any, says: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=f"the blob is damaged, or somebody else's: .*({says})"):
        unpack_blob(change(pack_blob({}, ARRAYS[:1])))


def test_no_byte_makes_another_error() -> None:
    whole, draw = pack_blob({"steps": [1, 2, 3]}, ARRAYS[:2]), random.Random(0)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            unpack_blob(damaged)
        except DelegateInvalidCompatibility:
            continue


class Versioned(BackendInterface):
    """Reads two versions of its blobs."""

    blob_version = 4
    oldest_blob_version = 3

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

    def execute(self, context: Any, handle: Any, args: Any) -> None: ...


class Unversioned(Versioned):
    """Reads whatever comes."""

    blob_version = 0
    oldest_blob_version = 0


@pytest.mark.parametrize(
    ("version", "verdict", "reason"),
    [
        (5, "refuse", "blob version 4 is read here: install a newer release of the backend"),
        (4, "ok", ""),
        (3, "ok", ""),
        (2, "recompile", "Npu blob version 2, made by acme 1.0; blob version 4 is needed: lower the model again"),
    ],
)
def test_a_stamp_is_judged_by_its_version(version: int, verdict: str, reason: str) -> None:
    stamp = BlobStamp("Npu", "acme", "1.0", version)
    answer = Versioned().check(stamp)
    assert answer.verdict.value == verdict
    assert reason in answer.reason
    assert Unversioned().check(stamp).verdict.value == Versioned().check(None).verdict.value == "ok"
